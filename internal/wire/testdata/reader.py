#!/usr/bin/env python3
"""An independent reader of flusso-kafka lanes, written from docs/wire-format.md.

    reader.py [vectors FILE]     check test vectors: parse, format, refuse
    kcat -C -J -X check.crcs=true -e -b BROKERS -t PIPELINE.lane.SINK | reader.py lane

lane reads a lane from its log start, as kcat prints it, checks every rule of the
format and prints a summary as one JSON object. Standard library only. Exit status:
0 fine, 1 something is not what the format allows, 2 usage.
"""

import base64
import json
import os
import re
import sys

U32, I63, U64 = 2**32 - 1, 2**63 - 1, 2**64 - 1
MAX_HEADER = 16384
MAX_ACKED = 4096


class Malformed(Exception):
    """Something that the format does not allow."""


class UnknownVersion(Malformed):
    """Something of a version that this reader does not know."""

    def __init__(self, version):
        super().__init__("version %d, this reader knows 1" % version)
        self.version = version


def need(condition, reason, *args):
    if not condition:
        raise Malformed(reason % args if args else reason)


# Section 3: key=value text.


def number(text, limit=U64):
    need(re.fullmatch(r"0|[1-9][0-9]*", text, re.ASCII), "%r is not a number", text)
    need(len(text) <= 20 and int(text) <= limit, "%r is too large", text)
    return int(text)


def positive(limit=U64):
    def parse(text):
        n = number(text, limit)
        need(n > 0, "a zero is left out, not written")
        return n

    return parse


def incarnation(text):
    need(re.fullmatch(r"[A-Za-z0-9_.:-]{1,64}", text), "%r is not an incarnation", text)
    return text


def kind(text):
    need(text in ("live", "snapshot", "complete"), "unknown kind %r", text)
    return text


def more(text):
    need(text == "1", "more is %r", text)
    return True


def topic_id(text):
    need(re.fullmatch(r"[A-Za-z0-9_-]{22}", text), "%r is not a topic ID", text)
    raw = base64.urlsafe_b64decode(text + "==")
    need(format_topic_id(raw) == text, "%r has stray bits", text)
    need(any(raw), "a topic ID of zeros is left out")
    return raw


def format_topic_id(raw):
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


HEADER = {
    "kind": ("kind", kind),
    "pos": ("position", positive()),
    "more": ("more", more),
    "thru": ("through", positive()),
    "new": ("newest", positive()),
    "rec": ("records", positive(U32)),
    "env": ("envelopes", positive(U32)),
    "chg": ("changes", positive()),
    "inc": ("incarnation", incarnation),
    "ep": ("epoch", positive()),
    "at": ("built_at", lambda text: number(text, I63)),
    "seq": ("sequence", positive()),
    "tbatch": ("total_batches", positive()),
    "tenv": ("total_envelopes", positive()),
    "tbytes": ("total_bytes", positive()),
    "tchg": ("total_changes", positive()),
}



def escaped(limit):
    def parse(text):
        raw = bytearray()
        for match in re.finditer(r"%([0-9A-F]{2})|([!-$&-~])|(.)", text):
            need(match[3] is None, "%r is neither visible ASCII nor an escape", text)
            raw += bytes.fromhex(match[1]) if match[1] else match[2].encode()
        try:
            value = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise Malformed("%r is not UTF-8" % text) from None
        for c in value:
            need(ord(c) >= 0x20 and not 0x7F <= ord(c) <= 0x9F, "a control character")
        need(0 < len(raw) <= limit, "%d bytes, at most %d", len(raw), limit)
        need(format_escaped(value) == text, "%r escapes what it need not", text)
        return value

    return parse


def format_escaped(value):
    return "".join(chr(b) if 0x21 <= b <= 0x7E and b != 0x25 else "%%%02X" % b for b in value.encode())


METADATA = {
    "off": ("offset", lambda text: number(text, I63)),
    "thru": ("through", positive()),
    "seq": ("sequence", positive()),
    "ep": ("epoch", positive()),
    "tid": ("topic_id", topic_id),
    "inc": ("incarnation", incarnation),
    "ret": ("retired_at", positive(253402300799999)),
    "by": ("retired_by", escaped(64)),
    "why": ("retired_why", escaped(200)),
}

REQUEST_METADATA = {
    "req": ("offset", lambda text: number(text, I63)),
    "tid": ("topic_id", topic_id),
    "acked": ("acked", lambda text: text),
}


def parse_text(text, known):
    need(re.fullmatch(r"[ -~]+", text), "not visible ASCII")
    pairs = []
    for pair in text.split(" "):
        match = re.fullmatch(r"([a-z]+)=([!-~]+)", pair)
        need(match, "%r is not a key=value pair", pair)
        pairs.append(match.groups())
    need(pairs[0][0] == "v", "does not begin with the version")
    version = number(pairs[0][1])
    if version != 1:
        raise UnknownVersion(version)
    order = list(known)
    fields, last = {}, -1
    for key, value in pairs[1:]:
        need(key != "v", "the version is repeated")
        if key not in known:
            continue
        need(order.index(key) > last, "key %s is repeated or out of order", key)
        last = order.index(key)
        name, parse = known[key]
        fields[name] = parse(value)
    return fields


def format_text(fields, known):
    out = ["v=1"]
    for key, (name, _) in known.items():
        if name in fields:
            value = fields[name]
            if value is True:
                value = 1
            elif isinstance(value, bytes):
                value = format_topic_id(value)
            elif name in ("retired_by", "retired_why"):
                value = format_escaped(value)
            out.append("%s=%s" % (key, value))
    return " ".join(out)


def parse_header(text):
    need(len(text.encode("utf-8", "surrogateescape")) <= MAX_HEADER, "longer than %d bytes", MAX_HEADER)
    h = parse_text(text, HEADER)
    for key in ("kind", "rec", "inc", "ep", "at", "seq", "tbatch"):
        need(HEADER[key][0] in h, "key %s is missing", key)
    get = lambda name: h.get(name, 0)
    records, envelopes = get("records"), get("envelopes")
    need(envelopes == records or envelopes == 0 and records == 1, "%d envelopes in %d records", envelopes, records)
    if h["kind"] == "live":
        need(get("position") > 0, "no position")
        need(get("newest") == get("position"), "new differs from pos")
        if "more" in h:
            need(get("through") < get("position"), "through covers a position of which more follows")
        else:
            need(get("through") == get("position"), "through differs from pos")
    else:
        need("position" not in h and "more" not in h, "pos or more on a %s item", h["kind"])
        need(get("through") <= get("newest"), "through is above newest")
        if h["kind"] == "snapshot":
            need(envelopes > 0, "a snapshot batch without envelopes")
        else:
            need(envelopes == 0 and get("changes") == 0, "a marker with envelopes or changes")
    need(get("total_envelopes") >= envelopes, "tenv is below env")
    need(get("total_changes") >= get("changes"), "tchg is below chg")
    return h


ZERO = {}  # what the first item of a lane follows


def check_follows(h, before, size=None):
    get = lambda name: h.get(name, 0)
    was = lambda name: before.get(name, 0)
    need(get("sequence") == was("sequence") + 1, "seq %d follows %d", get("sequence"), was("sequence"))
    need(get("total_batches") == was("total_batches") + 1, "tbatch is wrong")
    need(get("total_envelopes") == was("total_envelopes") + get("envelopes"), "tenv is wrong")
    need(get("total_changes") == was("total_changes") + get("changes"), "tchg is wrong")
    if size is None:
        need(get("total_bytes") >= was("total_bytes"), "tbytes goes back")
    else:
        need(get("total_bytes") == was("total_bytes") + size, "tbytes is %d, not %d", get("total_bytes"), was("total_bytes") + size)
    need(get("epoch") >= was("epoch"), "ep goes back")
    through, newest = was("through"), was("newest")
    if before and h["incarnation"] != before["incarnation"]:
        need(get("epoch") > was("epoch"), "inc changes without ep")
        through, newest = 0, 0
    if h["kind"] == "live":
        if through == newest:
            need(get("position") > newest, "position %d follows %d", get("position"), newest)
        else:
            need(get("position") == newest, "position %d, but more of %d was announced", get("position"), newest)
    else:
        need(get("newest") == newest, "new is wrong")
    if h["kind"] != "live" or "more" in h:
        need(get("through") == through, "thru is wrong")


# Section 2: records.


def check_name(name, limit):
    for c in name:
        code = ord(c)
        need(c != "/", "a slash in a name")
        need(code >= 0x20 and not 0x7F <= code <= 0x9F, "a control character in a name")
        need(not 0xD800 <= code <= 0xDFFF, "a name that is not Unicode")
    need(0 < len(name.encode()) <= limit, "a name of 0 or more than %d bytes", limit)
    return name


def parse_indexes(value):
    try:
        names = json.loads(value)
    except ValueError:
        raise Malformed("not JSON") from None
    need(isinstance(names, list) and names, "not an array of index names")
    for name in names:
        need(isinstance(name, str), "not a string among the index names")
        check_name(name, 255)
    return names


def header_of(record):
    """Returns what the record headers say: position, header, indexes."""
    found = {}
    for key, value in record["headers"]:
        if key in ("flusso-position", "flusso-batch", "flusso-indexes"):
            need(key not in found, "%s is repeated", key)
            need(value is not None, "%s is null", key)
            need(len(value.encode("utf-8", "surrogateescape")) <= MAX_HEADER, "%s is too long", key)
            found[key] = value
    position = found.get("flusso-position")
    if position is not None:
        position = positive()(position)
    header = None
    if "flusso-batch" in found:
        header = parse_header(found["flusso-batch"])
    indexes = None
    if "flusso-indexes" in found:
        need(header and header["kind"] == "complete", "flusso-indexes on something else than a marker")
        indexes = parse_indexes(found["flusso-indexes"])
    need(indexes or not header or header["kind"] != "complete", "a marker without flusso-indexes")
    return position, header, indexes


def parse_item(records):
    need(records, "no records")
    parts = [header_of(r) for r in records]
    header, indexes = parts[-1][1:]
    need(header, "no header on the last record")
    need(all(p[1] is None for p in parts[:-1]), "a header inside an item")
    need(header["records"] == len(records), "%d records, its header says %d", len(records), header["records"])
    if not header.get("envelopes"):
        record = records[0]
        need(record["key"] is None and record["value"] is None, "key or value on an item without envelopes")
        need(parts[0][0] is None, "a position on an item without envelopes")
        if indexes:
            return {"kind": "complete", "indexes": indexes}, header
        return {"kind": header["kind"], "envelopes": []}, header
    envelopes = []
    for record, (position, _, _) in zip(records, parts):
        key, value = record["key"], record["value"]
        need(key is not None and "/" in key, "key %r is not index/id", key)
        index, _, name = key.partition("/")
        check_name(index, 255)
        check_name(name, 512)
        need(value != "", "an empty document")
        need(record["timestamp"] >= 0, "no timestamp")
        batch = header.get("position", 0)
        need(position is None or position < batch, "position %r is not below that of the batch", position)
        e = {"index": index, "id": name, "op": "delete" if value is None else "upsert", "built_at": record["timestamp"]}
        if position or batch:
            e["position"] = position or batch
        if value is not None:
            e["document"] = value
        envelopes.append(e)
    return {"kind": header["kind"], "envelopes": envelopes}, header


def padded(text):
    own = len(text) - text.index(" seq=")
    return text if own > 90 else text + " pad=" + "." * (96 - own - 5)


def format_item(item, header):
    if item["kind"] == "complete":
        indexes = json.dumps(item["indexes"], ensure_ascii=False, separators=(",", ":"))
        headers = [["flusso-batch", padded(format_text(header, HEADER))], ["flusso-indexes", indexes]]
        return [{"key": None, "value": None, "timestamp": header["built_at"], "headers": headers}]
    records = []
    for e in item["envelopes"]:
        headers = []
        if e.get("position", 0) != header.get("position", 0):
            headers.append(["flusso-position", str(e["position"])])
        records.append({"key": e["index"] + "/" + e["id"], "value": e.get("document"), "timestamp": e["built_at"], "headers": headers})
    if not records:
        records.append({"key": None, "value": None, "timestamp": header["built_at"], "headers": []})
    records[-1]["headers"].append(["flusso-batch", padded(format_text(header, HEADER))])
    return records


# Sections 5 and 7: metadata and requests.


def parse_metadata(text):
    m = parse_text(text, METADATA)
    need("offset" in m, "no offset")
    need(("sequence" in m) == ("epoch" in m), "seq and ep go together")
    if "sequence" in m:
        need("incarnation" in m, "no incarnation")
    else:
        need("through" not in m, "a through of nothing")
    retired = [name in m for name in ("retired_at", "retired_by", "retired_why")]
    need(all(retired) or not any(retired), "ret, by and why go together")
    return m


def parse_request_metadata(text):
    m = parse_text(text, REQUEST_METADATA)
    need("offset" in m, "no offset")
    if "acked" in m:
        offsets, above = [], 0
        for run in m["acked"].split(","):
            match = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", run, re.ASCII)
            need(match, "%r is not a run", run)
            first = number(match[1])
            last = first if match[2] is None else number(match[2])
            need(first > above, "runs do not ascend with gaps")
            need(match[2] is None or last > first, "a run backwards or of one")
            need(m["offset"] + last <= I63, "beyond every offset")
            need(last - first < MAX_ACKED - len(offsets), "too many offsets")
            offsets.extend(m["offset"] + n for n in range(first, last + 1))
            above = last + 1
        m["acked"] = offsets
    return m


def format_request_metadata(m):
    fields = dict(m)
    if "acked" in m:
        runs = []
        for offset in m["acked"]:
            distance = offset - m["offset"]
            if runs and runs[-1][1] == distance - 1:
                runs[-1][1] = distance
            else:
                runs.append([distance, distance])
        fields["acked"] = ",".join(str(a) if a == b else "%d-%d" % (a, b) for a, b in runs)
    return format_text(fields, REQUEST_METADATA)


def once(pairs):
    need(len(dict(pairs)) == len(pairs), "a member is repeated")
    return dict(pairs)


class Plain(str):
    """A number as it is written."""


def parse_request(key, value):
    need(value is not None, "no value")
    try:
        members = json.loads(value, object_pairs_hook=once, parse_int=Plain, parse_float=Plain)
    except ValueError:
        raise Malformed("not JSON") from None
    need(isinstance(members, dict), "not an object")
    version = members.get("v")
    need(isinstance(version, Plain), "v is not a number")
    if number(version) != 1:
        raise UnknownVersion(number(version))
    string = lambda member: isinstance(members.get(member), str) and not isinstance(members[member], Plain)
    need(string("kind") and members["kind"] == "backfill", "unknown kind")
    need(string("sink") and re.fullmatch(r"[a-z0-9_-]{1,100}", members["sink"]), "not a sink")
    need(key == members["sink"], "key %r is not the sink", key)
    indexes = members.get("indexes")
    need(isinstance(indexes, list) and indexes, "no indexes")
    for name in indexes:
        need(isinstance(name, str) and not isinstance(name, Plain), "not a string among the indexes")
        check_name(name, 255)
    return members["sink"], indexes


def format_request(sink, indexes):
    members = {"v": 1, "kind": "backfill", "sink": sink, "indexes": indexes}
    return json.dumps(members, ensure_ascii=False, separators=(",", ":"))


# reader.py vectors FILE


def from_vector(fields, known):
    """Turns the strings of a vector into what the parsers return."""
    out = {}
    for name, value in fields.items():
        if name == "topic_id":
            value = bytes.fromhex(value)
        elif name == "acked":
            value = [int(v) for v in value]
        elif name not in ("kind", "incarnation", "more", "retired_by", "retired_why"):
            value = int(value)
        out[name] = value
    return out


def vector_records(records):
    return [dict(r, timestamp=int(r["timestamp"])) for r in records]


def vector_item(item):
    if "envelopes" not in item:
        return item
    numbers = lambda e: {k: int(v) if k in ("built_at", "position") else v for k, v in e.items()}
    return dict(item, envelopes=[numbers(e) for e in item["envelopes"]])


def vectors(path):
    with open(path, encoding="utf-8") as f:
        v = json.load(f)
    failed = []

    def check(group, name, condition, detail=""):
        if not condition:
            failed.append("%s %r %s" % (group, name, detail))

    def refuse(group, parse):
        for e in v[group]:
            try:
                parse(e)
            except Malformed as error:
                got = str(error.version) if isinstance(error, UnknownVersion) else None
                check(group, e["name"], e.get("version") in (None, got), "version %s" % got)
            else:
                check(group, e["name"], False, "was accepted")

    texts = (
        ("headers", parse_header, lambda m: format_text(m, HEADER), HEADER),
        ("metadata", parse_metadata, lambda m: format_text(m, METADATA), METADATA),
        ("request_metadata", parse_request_metadata, format_request_metadata, REQUEST_METADATA),
    )
    for group, parse, form, known in texts:
        for e in v[group]:
            want = from_vector(e["fields"], known)
            check(group, e["name"], parse(e["text"]) == want, "reads as %r" % parse(e["text"]))
            check(group, e["name"], e.get("read_only") or form(want) == e["text"], "is written as %r" % form(want))
        refuse("bad_" + group, lambda e: parse(e["text"]))
    for e in v["requests"]:
        check("requests", e["name"], parse_request(e["key"], e["value"]) == (e["sink"], e["indexes"]), "is read wrong")
        text = format_request(e["sink"], e["indexes"])
        check("requests", e["name"], e.get("read_only") or text == e["value"], "is written as %r" % text)
    refuse("bad_requests", lambda e: parse_request(e["key"], e["value"]))
    for e in v["items"]:
        records = vector_records(e["records"])
        item, header = parse_item(records)
        check("items", e["name"], item == vector_item(e["item"]), "reads as %r" % item)
        check("items", e["name"], e.get("read_only") or format_item(item, header) == records, "is written as %r" % format_item(item, header))
    refuse("bad_items", lambda e: parse_item(vector_records(e["records"])))

    def sequence(e):
        headers = [parse_header(h) for h in e["headers"]]
        for before, h in zip(headers, headers[1:]):
            check_follows(h, before)

    for e in v["sequences"]:
        sequence(e)
    refuse("bad_sequences", sequence)
    for line in failed:
        print(line, file=sys.stderr)
    count = sum(len(group) for group in v.values() if isinstance(group, list))
    print(json.dumps({"vectors": count, "failed": len(failed)}))
    return 1 if failed else 0


# reader.py lane


def kcat_record(line):
    # Documents may be any bytes: surrogateescape carries them through.
    r = json.loads(line.decode("utf-8", "surrogateescape"))
    flat = r.get("headers") or []
    need(len(flat) % 2 == 0, "an odd list of headers")
    headers = list(zip(flat[::2], flat[1::2]))
    return {"offset": r["offset"], "partition": r.get("partition", 0), "key": r.get("key"), "value": r.get("payload"), "timestamp": r.get("ts", -1), "headers": headers}


def size(record):
    return sum(len(s.encode("utf-8", "surrogateescape")) for s in (record["key"], record["value"]) if s is not None)


def lane(lines):
    summary = {"items": 0, "live": 0, "snapshot": 0, "complete": 0, "records": 0, "envelopes": 0, "bytes": 0, "changes": 0}
    pending, before, last = [], None, -1
    record = {"offset": "?"}
    try:
        for line in lines:
            if not line.strip():
                continue
            record = kcat_record(line)
            need(record["partition"] == 0, "a lane has one partition")
            need(record["offset"] > last, "offsets go back")
            last = record["offset"]
            summary["records"] += 1
            pending.append(record)
            header = header_of(record)[1]
            if header is None:
                continue
            if before is None and header["records"] > len(pending):
                summary["trimmed"] = len(pending)  # the log starts inside this item
                before, pending = header, []
                continue
            item, header = parse_item(pending)
            length = sum(size(r) for r in pending)
            if before is None and header["sequence"] > 1:
                before = header  # the log starts at this item: nothing to compare with
            else:
                check_follows(header, before or ZERO, length)
            summary["items"] += 1
            summary[item["kind"]] += 1
            summary["envelopes"] += header.get("envelopes", 0)
            summary["changes"] += header.get("changes", 0)
            summary["bytes"] += length
            before, pending = header, []
        need(not pending, "the lane ends inside an item, %d records after its last header", len(pending))
    except Malformed as error:
        print("offset %s: %s" % (record["offset"], error), file=sys.stderr)
        return 1
    summary["last_offset"] = last
    if before:
        for name in ("sequence", "through", "newest", "epoch", "incarnation"):
            summary[name] = before.get(name, 0)
    print(json.dumps(summary))
    return 0


def main(args):
    if not args:
        return vectors(os.path.join(os.path.dirname(os.path.abspath(__file__)), "vectors.json"))
    if len(args) == 2 and args[0] == "vectors":
        return vectors(args[1])
    if args == ["lane"]:
        return lane(sys.stdin.buffer)
    print(__doc__.strip(), file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
