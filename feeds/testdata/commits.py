#!/usr/bin/env python3
"""An independent reader of the commits of feeds, written from docs/feed-format.md, section 4.

    commits.py FOLDER     compare the feeds in a folder with what Go says of them

FOLDER is what `go test ./feeds -run TestF5_Sample -sample FOLDER` leaves: a bucket for
each feed and, beside it, FEED.json with what the Go client reads from it. Packs and key
indexes are read by DuckDB, their metadata by DuckDB and pyarrow: requirements.txt has the
versions. Exit status: 0 the same, 1 something differs, 2 usage.
"""

import base64
import datetime
import hashlib
import json
import os
import re
import sys

try:
    import duckdb
    import pyarrow.parquet
except ImportError as error:
    sys.exit("commits.py: %s: run it by `make test-python`, which installs what it needs into bin/python" % error)

PACK = [
    ("sequence", "INT64", "Int(bitWidth=64, isSigned=false)", False),
    ("key", "BYTE_ARRAY", "None", True),
    ("version", "INT64", "Int(bitWidth=64, isSigned=false)", True),
    ("tombstone", "BOOLEAN", "None", False),
    ("fingerprint", "FIXED_LEN_BYTE_ARRAY", "None", False),
    ("payload", "BYTE_ARRAY", "None", False),
    ("appended_at", "INT64", "Timestamp(isAdjustedToUTC=true, timeUnit=milliseconds", False),
]
INDEX = [
    ("key", "BYTE_ARRAY", "None", False),
    ("sequence", "INT64", "Int(bitWidth=64, isSigned=false)", False),
    ("version", "INT64", "Int(bitWidth=64, isSigned=false)", True),
    ("tombstone", "BOOLEAN", "None", False),
    ("pack", "INT32", "Int(bitWidth=32, isSigned=false)", False),
]
ROW_WEIGHT = 64  # what a record counts beside its key and payload
GROUP_BYTES = 8 << 20  # a row group is closed once it holds as much
BOUND = 256  # bytes of a page's least and greatest key in an index

counts = {"feeds": 0, "commits": 0, "packs": 0, "indexes": 0, "records": 0, "keys": 0, "pieces": 0, "row groups": 0, "pages": 0, "failed": 0}
database = duckdb.connect()
database.execute("SET TimeZone = 'UTC'")


def check(where, what, got, want):
    if got != want:
        counts["failed"] += 1
        print("%s: %s is %.400r, want %.400r" % (where, what, got, want), file=sys.stderr)


def rows(query, *parameters):
    """Runs a query and returns its rows as objects."""
    cursor = database.execute(query, list(parameters))
    names = [d[0] for d in cursor.description]
    return [dict(zip(names, row)) for row in cursor.fetchall()]


def structure(path, columns):
    """Checks the columns of a file, and what is kept of each in its footer and page index."""
    file = pyarrow.parquet.ParquetFile(path)
    check(path, "its number of columns", len(file.schema), len(columns))
    for i, (name, physical, logical, optional) in enumerate(columns):
        c = file.schema.column(i)
        check(path, "column %d" % i, c.name, name)
        check(path, "type of " + name, c.physical_type, physical)
        check(path, "logical type of " + name, str(c.logical_type).startswith(logical), True)
        check(path, "optional " + name, c.max_definition_level == 1, optional)
        if name == "fingerprint":
            check(path, "length of a fingerprint", c.length, 32)
    for g in range(file.metadata.num_row_groups):
        for i in range(len(columns)):
            c = file.metadata.row_group(g).column(i)
            check(path, "compression of " + c.path_in_schema, c.compression, "ZSTD")
            check(path, "offset index of " + c.path_in_schema, c.has_offset_index, True)
    return file.metadata


def raw(text):
    """Bytes, as DuckDB prints them."""
    return re.sub(rb"\\x([0-9A-F]{2})", lambda m: bytes([int(m[1], 16)]), text.encode("latin-1"))


def bounded(path, column, values, limit):
    """Checks that the bounds of each page are true: readers leave out pages by them."""
    starts, seen = {}, 0
    for g in rows("SELECT row_group_id, max(row_group_num_rows) AS n FROM parquet_metadata(?) GROUP BY row_group_id ORDER BY row_group_id", path):
        starts[g["row_group_id"]] = seen
        seen += g["n"]
    for page in rows("SELECT * FROM parquet_page_index(?) WHERE path_in_schema = ?", path, column):
        first = starts[page["row_group_id"]] + page["first_row_index"]
        some = [v for v in values[first : first + page["num_rows"]] if v is not None]
        check(path, "%s of page %d: null" % (column, page["page_id"]), page["null_page"], not some)
        check(path, "%s of page %d: nulls" % (column, page["page_id"]), page["null_count"], page["num_rows"] - len(some))
        if some:
            least, greatest = raw(page["min_value"] or ""), raw(page["max_value"] or "")
            check(path, "%s of page %d: least %r" % (column, page["page_id"], least), least <= min(some) and len(least) <= limit, True)
            check(path, "%s of page %d: greatest %r" % (column, page["page_id"], greatest), greatest >= max(some), True)
        counts["pages"] += 1


def checked(bucket, name, sha256, size=None):
    """Reads an object and checks it against its name, hash and size."""
    path = os.path.join(bucket, *name.split("/"))
    with open(path, "rb") as f:
        content = f.read()
    check(name, "its SHA-256", hashlib.sha256(content).hexdigest(), sha256)
    check(name, "the hash in its name", name.rsplit("-", 1)[1], sha256)
    if size is not None:
        check(name, "its size", len(content), size)
    return path, content


def read_pack(bucket, o, large):
    path, _ = checked(bucket, o["name"], o["sha256"], o["size"])
    counts["packs"] += 1
    metadata = structure(path, PACK)
    groups = rows("SELECT row_group_id, path_in_schema, stats_min_value, stats_max_value FROM parquet_metadata(?)", path)
    for g in groups:
        if g["path_in_schema"] in ("payload", "fingerprint"):
            check(path, "bounds of " + g["path_in_schema"], (g["stats_min_value"], g["stats_max_value"]), (None, None))
    out = rows(
        "SELECT sequence, key, version, tombstone, fingerprint, payload, epoch_ms(appended_at) AS appended_at, typeof(payload) AS type FROM read_parquet(?, file_row_number = true) ORDER BY file_row_number",
        path,
    )
    check(path, "sequences", [r["sequence"] for r in out], list(range(o["first"], o["last"] + 1)))
    check(path, "records", len(out), o["records"])
    check(path, "type of payloads", {r["type"] for r in out}, {"BLOB"})
    # Row groups are closed by bytes: each but the last holds as much as it may, and no record beside.
    at = 0
    for g in range(metadata.num_row_groups):
        some = out[at : at + metadata.row_group(g).num_rows]
        at += len(some)
        sizes = [len(r["key"] or b"") + len(r["payload"]) + ROW_WEIGHT for r in some]
        counts["row groups"] += 1
        check(path, "row group %d is closed too late" % g, sum(sizes[:-1]) >= GROUP_BYTES, False)
        if g < metadata.num_row_groups - 1:
            check(path, "row group %d is closed too early" % g, sum(sizes) < GROUP_BYTES, False)
    if large:
        check(path, "more than one row group", metadata.num_row_groups > 1, True)
    for column, limit in (("key", 64), ("payload", 16), ("fingerprint", 32)):
        bounded(path, column, [r[column] for r in out], limit)
    # One record, as somebody looks for it.
    r = out[len(out) // 2]
    same = rows("SELECT payload FROM read_parquet(?) WHERE sequence = ?", path, r["sequence"])
    check(path, "SELECT by sequence", [s["payload"] for s in same], [r["payload"]])
    same = rows("SELECT sequence FROM read_parquet(?) WHERE payload = ? ORDER BY sequence", path, r["payload"])
    check(path, "SELECT by payload", [s["sequence"] for s in same], [s["sequence"] for s in out if s["payload"] == r["payload"]])
    return path, out


def newest(records, by_version):
    """The newest record of each key, the slow way."""
    best = {}
    for r in records:  # in their order
        if r["key"] is None:
            continue
        old = best.get(r["key"])
        if old is None or not by_version or r["version"] >= old["version"]:
            best[r["key"]] = r
    return best


def read_index(bucket, o, records, by_version):
    path, _ = checked(bucket, o["name"], o["sha256"], o["size"])
    counts["indexes"] += 1
    structure(path, INDEX)
    for g in rows("SELECT path_in_schema, bloom_filter_length, column_index_length FROM parquet_metadata(?)", path):
        if g["path_in_schema"] == "key":
            check(path, "bloom filter on key", (g["bloom_filter_length"] or 0) > 0, True)
            check(path, "column index of key", (g["column_index_length"] or 0) > 0, True)
    out = rows("SELECT * FROM read_parquet(?, file_row_number = true) ORDER BY file_row_number", path)
    keys = [r["key"] for r in out]
    bounded(path, "key", keys, BOUND)
    check(path, "order of its keys", keys, sorted(set(keys)))
    want = newest(records, by_version)
    check(path, "keys", keys, sorted(want))
    counts["keys"] += len(keys)
    for r in out:
        w = want.get(r["key"], {})
        for name in ("sequence", "version", "tombstone", "pack"):
            check(path, "%s of key %r" % (name, r["key"]), r[name], w.get(name))
    # By key, as somebody looks for it, through bounds and bloom filter.
    for r in out:
        got = rows("SELECT sequence FROM read_parquet(?) WHERE key = ?", path, r["key"])
        check(path, "SELECT by key %r" % r["key"], [g["sequence"] for g in got], [r["sequence"]])
    absent = b"\xfe a key that is nowhere"
    check(path, "SELECT by an absent key", rows("SELECT sequence FROM read_parquet(?) WHERE key = ?", path, absent), [])
    # A filter never excludes a key that is there, and few of those that are not: one in a hundred is expected.
    check(path, "keys that the bloom filter excludes", [k for k in keys if excludes(path, k)], [])
    passed = sum(not excludes(path, b"%s %d" % (absent, i)) for i in range(100))
    check(path, "fewer than 20 of 100 absent keys pass the bloom filter (%d do)" % passed, passed < 20, True)
    sorting = pyarrow.parquet.ParquetFile(path).metadata.row_group(0).sorting_columns
    check(path, "sorting", [(s.column_index, s.descending) for s in sorting], [(0, False)])


def excludes(path, key):
    got = rows("SELECT bloom_filter_excludes FROM parquet_bloom_probe(?, 'key', ?)", path, key)
    return all(r["bloom_filter_excludes"] for r in got)


def crc32c(content):
    crc = 0xFFFFFFFF
    for byte in content:
        crc = CRC32C[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def crc32c_table():
    for crc in range(256):
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        yield crc


CRC32C = list(crc32c_table())


def read_sums(bucket, o):
    path, content = checked(bucket, o["name"], o["sha256"], o["size"])
    check(path, "members of its sums", sorted(o["sums"]), ["crc32c", "piece"])
    check_sums(path, content, o["sums"])


def check_sums(where, content, sums):
    pieces = [content[i : i + sums["piece"]] for i in range(0, len(content), sums["piece"])]
    check(where, "its sums", base64.b64decode(sums["crc32c"]), b"".join(crc32c(p).to_bytes(4, "big") for p in pieces))
    counts["pieces"] += len(pieces)


def read_vectors():
    name = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../internal/pack/testdata/sums.json")
    with open(name, encoding="utf-8") as f:
        for v in json.load(f):
            text = v["repeat"].encode()
            check_sums("%d bytes of %r" % (v["size"], text), (text * (v["size"] // len(text) + 1))[: v["size"]], v["sums"])


def moment(text):
    need = re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,3})?Z", text)
    return bool(need) and bool(datetime.datetime.fromisoformat(text.replace("Z", "+00:00")))


def read_commit(bucket, folder, want, c):
    path, content = checked(bucket, c["manifest"], c["manifestHash"])
    m = json.loads(content)
    place = "%s/%012d/e%012d/" % (folder, c["stream"], c["epoch"])
    for name, value in (
        ("v", 1), ("feed", want["feed"]), ("feedId", folder[len(want["feed"]) + 1 :]), ("stream", c["stream"]), ("epoch", c["epoch"]), ("first", c["first"]),
        ("last", c["last"]), ("records", c["records"]), ("bytes", c["bytes"]), ("keyed", want["keyed"]), ("latest", want["latest"]), ("message", c["message"]),
    ):
        check(path, name, m[name], value)
    check(path, "sealedAt", moment(m["sealedAt"]), True)
    check(path, "members", sorted(m), sorted("v feed feedId stream epoch first last records bytes keyed latest message sealedAt packs index".split()))
    check(path, "its name", c["manifest"], "%smanifest-%012d-%s" % (place, c["first"], c["manifestHash"]))
    counts["commits"] += 1
    records, sequence = [], 1
    for i, o in enumerate(m["packs"]):
        check(path, "first of pack %d" % i, o["first"], sequence)
        check(path, "name of pack %d" % i, o["name"], "%spack-%012d-%s" % (place, o["first"], o["sha256"]))
        sequence = o["last"] + 1
        _, some = read_pack(bucket, o, c["message"] == "large")
        records += [dict(r, pack=i, stream=c["stream"]) for r in some]
    check(path, "records in its packs", len(records), c["records"])
    check(path, "bytes in its packs", sum(len(r["key"] or b"") + len(r["payload"]) for r in records), c["bytes"])
    check(path, "key index", m["index"] is not None, any(r["key"] is not None for r in records))
    if m["index"]:
        check(path, "name of the index", m["index"]["name"], "%sindex-%012d-%s" % (place, m["index"]["first"], m["index"]["sha256"]))
        check(path, "range of the index", (m["index"]["first"], m["index"]["last"]), (c["first"], c["last"]))
        check(path, "keys in the index", m["index"]["records"], len(newest(records, False)))
        read_sums(bucket, m["index"])
        read_index(bucket, m["index"], records, m["latest"] == "version")
    if len(m["packs"]) > 1:
        check(path, "records of all packs, counted by DuckDB",
              rows("SELECT count(*) AS n, min(sequence) AS first, max(sequence) AS last FROM read_parquet(?)", [os.path.join(bucket, *o["name"].split("/")) for o in m["packs"]]),
              [{"n": c["records"], "first": c["first"], "last": c["last"]}])
    return records


def as_go_says(r):
    return {
        "stream": r["stream"], "sequence": r["sequence"], "key": None if r["key"] is None else r["key"].hex(), "version": None if r["version"] is None else str(r["version"]),
        "tombstone": r["tombstone"], "fingerprint": r["fingerprint"].hex(), "payload": hashlib.sha256(r["payload"]).hexdigest(), "size": len(r["payload"]), "appendedAt": r["appended_at"],
    }


def read_feed(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as f:
        want = json.load(f)
    bucket = os.path.join(folder, want["bucket"])
    counts["feeds"] += 1
    (below,) = os.listdir(bucket)
    with open(os.path.join(bucket, below, "feed.json"), encoding="utf-8") as f:
        check(name, "marker", json.load(f), {"v": 1, "feed": want["feed"], "id": below[len(want["feed"]) + 1 :]})
    records = []
    for i, c in enumerate(want["commits"]):
        check(name, "commit number", c["number"], i + 1)
        records += read_commit(bucket, below, want, c)
    counts["records"] += len(records)
    check(name, "number of records", len(records), len(want["records"]))
    for r, w in zip(records, want["records"]):
        check(name, "record %d of stream %d" % (r["sequence"], r["stream"]), as_go_says(r), w)
    best = newest(records, want["latest"] == "version") if want["keyed"] else {}
    check(name, "keys that Go knows", {w["key"] for w in want["newest"]}, {k.hex() for k in best})
    for w in want["newest"]:
        check(name, "newest record of %s" % w["key"], as_go_says(best[bytes.fromhex(w["key"])]), w)
    for key in want["absent"]:
        check(name, "key %s" % key, bytes.fromhex(key) in best, False)


def main(args):
    if len(args) != 1 or not os.path.isdir(args[0]):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    read_vectors()
    for name in sorted(os.listdir(args[0])):
        if name.endswith(".json"):
            read_feed(args[0], name)
    print(json.dumps(counts))
    return 1 if counts["failed"] or not counts["records"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
