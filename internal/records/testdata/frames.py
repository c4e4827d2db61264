#!/usr/bin/env python3
"""An independent reader of frames, written from docs/record-input.md, section binary.

    frames.py     check the vectors beside it

Standard library only. Exit status: 0 fine, 1 a vector is not what it says.
"""

import json
import os
import struct
import sys

KEY, VERSION, TOMBSTONE, FINGERPRINT = 1, 2, 4, 8
MOST = 128 << 20


class Malformed(Exception):
    pass


def cut(data, at, n):
    if n > len(data) - at:
        raise Malformed("%d bytes are wanted at %d, and %d are there" % (n, at, len(data) - at))
    return data[at : at + n], at + n


def frames(data):
    """Yield the records of frames that follow each other."""
    at = 0
    while at < len(data):
        head, at = cut(data, at, 4)
        (size,) = struct.unpack(">I", head)
        if not 1 <= size <= MOST:
            raise Malformed("a length of %d" % size)
        body, at = cut(data, at, size)
        marks, here, record = body[0], 1, {}
        if marks & ~15:
            raise Malformed("marks %#04x" % marks)
        if marks & KEY:
            length, here = cut(body, here, 4)
            key, here = cut(body, here, struct.unpack(">I", length)[0])
            record["key"] = key.hex()
        if marks & VERSION:
            version, here = cut(body, here, 8)
            record["version"] = str(struct.unpack(">Q", version)[0])
        if marks & FINGERPRINT:
            print_, here = cut(body, here, 32)
            record["fingerprint"] = print_.hex()
        if marks & TOMBSTONE:
            record["tombstone"] = True
        record["payload"] = body[here:].hex()
        yield record


def main():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "frames.json")) as f:
        vectors = json.load(f)
    wrong = 0
    for v in vectors:
        got, error = [], None
        try:
            for record in frames(bytes.fromhex(v["input"])):
                got.append(record)
        except Malformed as e:
            error = e
        if got != v["records"] or bool(error) != bool(v.get("error")):
            wrong += 1
            print("%s: got %s, %s" % (v["name"], got, error), file=sys.stderr)
    print("%d vectors of frames, %d wrong" % (len(vectors), wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
