"""A far side that is not to be trusted: it says hello, names a run, and then tells what it is asked to on its line.

python hostile.py KIND
"""

import json
import os
import struct
import sys
import time
import zlib

MAGIC = b"\0trainmon relay 1\n"
packer = zlib.compressobj()


def send(header, data=b""):
    raw(packer.compress(json.dumps(header).encode() + b"\n" + data) + packer.flush(zlib.Z_SYNC_FLUSH))


def raw(packed):
    os.write(1, struct.pack(">I", len(packed)) + packed + b"\n")


def growing(name, data=b"x\n", offset=0):
    send({"kind": "bytes", "run": "r", "file": name, "offset": offset}, data)


def whole(name, data=b"{}"):
    send({"kind": "whole", "run": "r", "file": name}, data)


KINDS = {
    "up": lambda: growing("../../stolen.jsonl"),
    "up-in-name": lambda: growing("rank-0-/../../../stolen.jsonl"),
    "absolute": lambda: growing("/tmp/stolen-by-a-relay.jsonl"),
    "other-file": lambda: whole("config.toml"),
    "own-file": lambda: whole("far.json"),
    "cache": lambda: growing("state.cache"),
    "no-name": lambda: send({"kind": "bytes", "offset": 0}, b"x"),
    "negative": lambda: growing("console.log", offset=-1),
    "before": lambda: (growing("console.log", b"12345"), growing("console.log", offset=2)),
    "far-out": lambda: growing("console.log", offset=1 << 62),
    "no-number": lambda: growing("console.log", offset="0"),
    "a-bomb": lambda: send({"kind": "bytes", "file": "console.log", "offset": 0}, b"\0" * (64 << 20)),
    "long-frame": lambda: os.write(1, struct.pack(">I", 1 << 31)),
    "garbage": lambda: raw(os.urandom(1000)),
    "no-header": lambda: raw(packer.compress(b"{}") + packer.flush(zlib.Z_SYNC_FLUSH)),
    "deep": lambda: raw(packer.compress(b"[" * 100_000 + b"\n") + packer.flush(zlib.Z_SYNC_FLUSH)),
    "list": lambda: raw(packer.compress(b"[]\n") + packer.flush(zlib.Z_SYNC_FLUSH)),
}
HARMLESS = {
    "bad-identity": lambda: whole("run.json", b"[" * 1000),
    "odd-identity": lambda: whole("run.json", b'{"pid": 1, "name": {"a": []}, "command": 7, "host": "\\u001b[31m"}'),
    "odd-state": lambda: send({"kind": "state", "alive": "yes", "monotonic": "soon"}),
    "odd-time": lambda: send({"kind": "time", "n": [], "monotonic": 1e400}),
    "unknown": lambda: send({"kind": "later", "run": "r"}, b"x"),
}
LATE = {
    "never-even": lambda: None,
    "no-time": lambda: None,
    "slow": lambda: [(growing("console.log", b"x\n", 2 * place), time.sleep(0.5)) for place in range(6)],
}


def main():
    if sys.argv[1] == "banner":
        os.write(1, b"x" * (1 << 18))
        sys.stdin.read()
    if sys.argv[1] == "silence":
        sys.stdin.read()
    os.write(1, MAGIC)
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["do"] == "find":
            send({"kind": "found", "run": "../../../r" if sys.argv[1] == "name" else "r"})
        elif asked["do"] == "peek":
            send({"kind": "run", "run": "../r"})
        elif asked["do"] == "time":
            kind = "state" if sys.argv[1] == "no-time" else "time"
            send({"kind": kind, "n": asked["n"], "monotonic": 1.0, "wall": 1.0})
        elif asked["do"] == "follow":
            whole("run.json", b'{"id": "r", "name": "r"}')
            {**KINDS, **HARMLESS, **LATE, "name": lambda: None}[sys.argv[1]]()
            send({"kind": "state", "alive": True, "ranks": True, "monotonic": 1.0, "wall": 1.0})
            if sys.argv[1] != "never-even":
                send({"kind": "even"})


if __name__ == "__main__":
    main()
