#!/usr/bin/env python3
"""An independent reader of what feeds write into Kafka, written from docs/feed-format.md.

    feed_reader.py [vectors FILE]     check test vectors: parse, format, refuse

Standard library only. Exit status: 0 fine, 1 something is not what the format
allows, 2 usage. What feeds write into a bucket is read by feeds/testdata/commits.py.
"""

import json
import os
import re
import sys

I53, I63, U64 = 2**53 - 1, 2**63 - 1, 2**64 - 1
MAX_HEADER = 16384


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


def number(text, limit=I53):
    need(isinstance(text, str) and re.fullmatch(r"0|[1-9][0-9]*", text, re.ASCII), "%r is not a number", text)
    need(len(text) <= 20 and int(text) <= limit, "%r is too large", text)
    return int(text)


# Section 2: the WAL.

APPEND = ("stream", "ep", "first", "last", "bytes", "at", "id")


def parse_append(raw):
    need(raw is not None and len(raw) <= MAX_HEADER, "null, or too long")
    need(re.fullmatch(rb"[ -~]+", raw), "not printable ASCII")
    pairs = [re.fullmatch(r"([a-z]+)=([!-~]+)", pair) for pair in raw.decode("ascii").split(" ")]
    need(all(pairs), "not key=value pairs, separated by one space each")
    need(pairs[0][1] == "v", "no version")
    version = number(pairs[0][2], U64)
    if version != 1:
        raise UnknownVersion(version)
    a, rank = {}, -1
    for pair in pairs[1:]:
        key, value = pair[1], pair[2]
        need(key != "v", "two versions")
        if key not in APPEND:
            continue
        need(APPEND.index(key) > rank, "key %s is repeated or out of order", key)
        rank = APPEND.index(key)
        if key == "id":
            need(len(value) <= 64, "an id of %d characters", len(value))
            a[key] = value
        elif key == "at":
            a[key] = number(value, I63)
        else:
            a[key] = number(value)
            need(a[key] > 0, "%s is 0", key)
    for key in ("stream", "ep", "first", "last", "at"):
        need(key in a, "no %s", key)
    need(a["first"] <= a["last"], "last before first")
    return a


def format_append(a):
    return " ".join(["v=1"] + ["%s=%s" % (key, a[key]) for key in APPEND if key in a]).encode("ascii")


def header(record, name):
    """Returns whether there is such a record header, and its value."""
    values = [value for key, value in record["headers"] if key == name]
    need(len(values) <= 1, "header %s is repeated", name)
    need(None not in values, "header %s is null", name)
    return values[0] if values else None


def parse_batch(records):
    need(records, "no records")
    text = header(records[-1], "flusso-append")
    need(text is not None, "the last record has no flusso-append")
    a = parse_append(text)
    need(a["last"] - a["first"] + 1 == len(records), "%d records", len(records))
    batch = []
    for i, record in enumerate(records):
        need(i == len(records) - 1 or header(record, "flusso-append") is None, "flusso-append inside a batch")
        need(record["value"] is not None, "no payload")
        out = {"key": record["key"], "payload": record["value"]}
        version = header(record, "flusso-version")
        if version is not None:
            out["version"] = number(version.decode("latin-1"), U64)
        tombstone = header(record, "flusso-tombstone")
        if tombstone is not None:
            need(tombstone == b"1", "tombstone is %r", tombstone)
            need(record["key"] is not None, "a tombstone without a key")
            out["tombstone"] = True
        fingerprint = header(record, "flusso-fingerprint")
        if fingerprint is not None:
            need(len(fingerprint) == 32, "a fingerprint of %d bytes", len(fingerprint))
            out["fingerprint"] = fingerprint
        batch.append(out)
    return batch, a


def format_batch(batch, a):
    records = []
    for r in batch:
        headers = []
        if "version" in r:
            headers.append(("flusso-version", str(r["version"]).encode()))
        if r.get("tombstone"):
            headers.append(("flusso-tombstone", b"1"))
        if "fingerprint" in r:
            headers.append(("flusso-fingerprint", r["fingerprint"]))
        records.append({"key": r["key"], "value": r["payload"], "timestamp": a["at"], "headers": headers})
    records[-1]["headers"].append(("flusso-append", format_append(a)))
    return records


# Section 3: the log.

KINDS = {
    "created": False, "opened": True, "resumed": True, "taken": False, "released": True, "kept": False,
    "sealed": True, "committed": True, "discarded": True, "deleting": False,
}  # and whether they are about a stream


class Number(str):
    """A number as it is written."""


class Object(list):
    """Members of an object in their order, repeated ones included."""


def members(value):
    need(isinstance(value, Object), "not an object")
    out = dict(value)
    need(len(out) == len(value), "a member is repeated")
    return {name: v for name, v in out.items() if v is not None}


def no_constant(name):
    raise Malformed("%s is not JSON" % name)


def integer(m, name):
    if name not in m:
        return 0
    need(isinstance(m[name], Number), "%s is not a number", name)
    return number(str(m[name]))


def text(m, name):
    value = m.get(name, "")
    need(isinstance(value, str) and not isinstance(value, Number), "%s is not a string", name)
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise Malformed("half of a surrogate pair in %s" % name) from None
    return value


def truth(m, name):
    need(isinstance(m.get(name, False), bool), "%s is not a truth value", name)
    return m.get(name, False)


def parse_settings(value):
    m = members(value)
    s = {"id": text(m, "id"), "keyed": truth(m, "keyed"), "latest": text(m, "latest"), "bucket": text(m, "bucket"), "maxUnsealedBytes": integer(m, "maxUnsealedBytes")}
    need(s["id"] and s["bucket"], "no id or bucket")
    need(s["latest"] in ("sequence", "version"), "unknown rule")
    return s


def parse_state(value):
    m = members(value)
    h = members(m.get("holder"))
    s = {
        "epoch": integer(m, "epoch"), "holder": {"name": text(h, "name"), "address": text(h, "address")}, "streams": [],
        "newest": integer(m, "newest"), "commits": integer(m, "commits"), "deleted": truth(m, "deleted"),
    }
    need(s["epoch"] > 0 and s["holder"]["name"], "no holder")
    streams = m.get("streams", [])
    need(isinstance(streams, list) and not isinstance(streams, Object), "streams is not an array")
    before = 0
    for value in streams:
        m = members(value)
        st = {
            "number": integer(m, "number"), "step": text(m, "step"), "from": integer(m, "from"), "epoch": integer(m, "epoch"),
            "last": integer(m, "last"), "bytes": integer(m, "bytes"), "message": text(m, "message"), "sealedAt": integer(m, "sealedAt"),
        }
        need(before < st["number"] <= s["newest"], "streams out of order, or above the newest")
        need(st["step"] in ("open", "abandoned", "sealed"), "unknown step %r", st["step"])
        need(0 < st["epoch"] <= s["epoch"], "a stream without an epoch")
        need(not st["sealedAt"] or st["step"] == "sealed", "sealedAt without a seal")
        before = st["number"]
        s["streams"].append(st)
    need([st["step"] for st in s["streams"]].count("open") <= 1, "two open streams")
    need(s["commits"] + len(s["streams"]) <= s["newest"], "more commits and streams than streams")
    return s


def parse_commit(value):
    m = members(value)
    c = {name: integer(m, name) for name in ("number", "records", "first", "last", "bytes")}
    c.update(manifest=text(m, "manifest"), manifestHash=text(m, "manifestHash"), wal=integer(m, "wal"))
    need(c["last"] == c["records"] and c["first"] == min(1, c["last"]), "records and sequences differ")
    need(c["manifest"] and re.fullmatch(r"[0-9a-f]{64}", c["manifestHash"]), "no manifest, or no hash")
    return c


def parse_event(key, raw):
    need(key is not None and raw is not None, "no key or value")
    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=Object, parse_int=Number, parse_float=Number, parse_constant=no_constant)
    except ValueError:
        raise Malformed("not JSON in UTF-8") from None
    m = members(value)
    need(isinstance(m.get("v"), Number), "no version")
    version = number(str(m["v"]), U64)
    if version != 1:
        raise UnknownVersion(version)
    e = {"at": integer(m, "at"), "kind": text(m, "kind"), "stream": integer(m, "stream"), "message": text(m, "message"), "wal": integer(m, "wal")}
    need("at" in m, "no time")
    need(e["kind"] in KINDS, "unknown kind %r", e["kind"])
    need(e["kind"].encode() == key, "its key is %r", key)
    e["settings"], e["state"] = parse_settings(m.get("settings")), parse_state(m.get("state"))
    need(KINDS[e["kind"]] == (e["stream"] > 0), "about no stream, or about one")
    need(e["stream"] <= e["state"]["newest"], "about a stream above the newest")
    need(not e["wal"] or e["kind"] == "discarded", "wal on another event")
    need(("commit" in m) == (e["kind"] == "committed"), "commit and kind differ")
    if "commit" in m:
        e["commit"] = parse_commit(m["commit"])
        need(0 < e["commit"]["number"] == e["state"]["commits"], "not the newest commit")
        need(all(st["number"] != e["stream"] for st in e["state"]["streams"]), "with and without a commit")
    return e


def format_event(e):
    def less(m, *names):  # left out when zero or empty
        return {name: value for name, value in m.items() if value or name not in names}

    order = ("v", "at", "kind", "stream", "message", "commit", "wal", "settings", "state")
    out = less(dict(e, v=1), "stream", "message", "wal")
    state = less(e["state"], "deleted")
    state["holder"] = less(state["holder"], "address")
    state["streams"] = [less(st, "message", "sealedAt") for st in state["streams"]]
    out["state"] = state
    return json.dumps({name: out[name] for name in order if name in out}, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


# feed_reader.py vectors FILE


def blob(value):
    if isinstance(value, dict):
        return bytes.fromhex(value["hex"])
    return None if value is None else value.encode("utf-8")


def vector_fields(fields):
    names = {"epoch": "ep"}
    return {names.get(name, name): value if name == "id" else int(value) for name, value in fields.items()}


def vector_records(records):
    return [
        {"key": blob(r["key"]), "value": blob(r["value"]), "timestamp": int(r["timestamp"]), "headers": [(k, blob(v)) for k, v in r["headers"]]}
        for r in records
    ]


def vector_batch(batch):
    out = []
    for r in batch:
        r = dict(r, key=blob(r["key"]), payload=blob(r["payload"]))
        if "version" in r:
            r["version"] = int(r["version"])
        if "fingerprint" in r:
            r["fingerprint"] = bytes.fromhex(r["fingerprint"])
        out.append(r)
    return out


def vectors(path):
    with open(path, encoding="utf-8") as f:
        v = json.load(f)
    failed = []

    def check(group, e, got, want, what):
        if got != want:
            failed.append("%s %r %s %r, want %r" % (group, e["name"], what, got, want))

    def refuse(group, parse):
        for e in v[group]:
            try:
                parse(e)
            except Malformed as error:
                got = str(error.version) if isinstance(error, UnknownVersion) else None
                if "version" in e:
                    check(group, e, got, e["version"], "is of version")
            else:
                failed.append("%s %r was accepted" % (group, e["name"]))

    for e in v["appends"]:
        want = vector_fields(e["fields"])
        check("appends", e, parse_append(e["text"].encode()), want, "reads as")
        if not e.get("read_only"):
            check("appends", e, format_append(want), e["text"].encode(), "is written as")
    refuse("bad_appends", lambda e: parse_append(e["text"].encode()))
    for e in v["batches"]:
        records, want = vector_records(e["records"]), (vector_batch(e["batch"]), vector_fields(e["fields"]))
        check("batches", e, parse_batch(records), want, "reads as")
        if not e.get("read_only"):
            check("batches", e, format_batch(*want), records, "is written as")
    refuse("bad_batches", lambda e: parse_batch(vector_records(e["records"])))
    for e in v["events"]:
        written = blob(e.get("written", e["value"]))
        event = parse_event(blob(e["key"]), blob(e["value"]))
        check("events", e, format_event(event), written, "is written as")
        check("events", e, event, parse_event(blob(e["key"]), written), "reads as")
    refuse("bad_events", lambda e: parse_event(blob(e["key"]), blob(e["value"])))
    for line in failed:
        print(line, file=sys.stderr)
    print(json.dumps({"vectors": sum(len(group) for group in v.values() if isinstance(group, list)), "failed": len(failed)}))
    return 1 if failed else 0


def main(args):
    if not args:
        return vectors(os.path.join(os.path.dirname(os.path.abspath(__file__)), "feed-vectors.json"))
    if len(args) == 2 and args[0] == "vectors":
        return vectors(args[1])
    print(__doc__.strip(), file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
