"""Inputs that nobody should send: valid ones bent, cut, doubled and mixed. Pure; the dice are passed in."""

from __future__ import annotations

import dataclasses
import json
from random import Random
from typing import Any

from tests.console.test_properties import PIECES
from tests.model.test_decode import every_event
from trainhooks.protocol.encoding import encoder, to_dict

# What corrupts a terminal, disguises a text, is taken for markup, a formula or a path, or has no end.
HOSTILE = (
    "\x1b[2J\x1b[1;1H",
    "\x1b]0;owned\x07",
    "\x1b]52;c;eHg=\x07",
    "\x1bP1$r\x1b\\",
    "\x9b31m",
    "\x9d0;x\x9c",
    "\x90q\x9c",
    "\r\nfake line",
    "\x00",
    "\x07",
    "\x08\x08\x08",
    "\x7f",
    "\x85",
    "\u2028",
    "\u2029",
    "\u202etxt.exe",
    "\u2066x\u2069",
    "\u200e",
    "\u061c",
    "\ufeff",
    "loss[/foo]",
    "[@click=app.quit]x",
    "[bold red]x",
    "=cmd|' /C calc'!A0",
    "@SUM(1)",
    "+1",
    "-1",
    "../../etc/passwd",
    "<script>alert(1)</script>",
    "|a|b|",
    "`x`",
    "$(id)",
    "%s%n",
    "{0}",
    "a" * 300,
    "漢字",
    "🔥👩‍👩‍👧",
    "e\u0301",
    "",
    " ",
    "nan",
    "overflow",
    "other",
)
NUMBERS = (
    0,
    -1,
    1,
    2**31,
    2**53,
    2**53 + 1,
    2**63,
    2**64,
    10**300,
    10**400,
    -(10**400),
    1e308,
    -1e308,
    1e-308,
    0.1,
    True,
    1e12,
    1e15,
    253_402_300_800,
)
TOKENS = (
    b"\\u001b",
    b"\\u009b",
    b"\\ud800",
    b"\\udcff",
    b"\xff",
    b"\xc3\x28",
    b"\xe2\x80\xae",
    b"\x1b",
    b"\x00",
    b"\xc2\x9b",
    b"NaN",
    b"Infinity",
    b"-",
    b"1e999",
    b"-1e999",
    b"9" * 40,
    b"null",
    b"true",
    b"[[[[",
    b"{",
    b"}",
    b'"',
    b"\\",
    b",",
    b":",
    b'"kind"',
    b'"step"',
    b'"seq":',
    b'"producer":"',
    b"-0",
    b"0.0000001",
    b"[]",
    b"{}",
    b"\r",
    b"\n",
    b"[" * 40,
)

_encode = encoder()
EVENTS = [to_dict(event) for event in every_event()]
LINES = [_encode(event) for event in EVENTS]
WHOLE = [{"kind": event.kind, **dataclasses.asdict(event)} for event in every_event()]  # what is absent as null
_SIZES = (1, 1, 1, 2, 4, 16)


def value(dice: Random, depth: int = 3) -> Any:
    """Anything that JSON can hold."""
    kind = dice.randrange(8 if depth else 6)
    if kind < 3:
        return dice.choice(HOSTILE)
    if kind < 5:
        return dice.choice(NUMBERS)
    if kind == 5:
        return dice.choice((None, True, False))
    if kind == 6:
        return [value(dice, depth - 1) for _ in range(dice.randrange(4))]
    return {dice.choice(HOSTILE): value(dice, depth - 1) for _ in range(dice.randrange(4))}


def like(dice: Random, pattern: Any) -> Any:
    """A value of the same shape as `pattern`, its leaves exchanged now and then: it gets past the types."""
    if isinstance(pattern, dict):
        out = {}
        for key, each in pattern.items():
            out[dice.choice(HOSTILE) if dice.random() < 0.02 else key] = like(dice, each)
        return out
    if isinstance(pattern, (list, tuple)):
        return [like(dice, each) for each in pattern]
    if dice.random() < 0.8:
        return pattern
    if pattern is None:
        return value(dice, 1)
    if isinstance(pattern, str):
        return dice.choice(HOSTILE)
    if isinstance(pattern, bool):
        return dice.random() < 0.5
    return dice.choice(NUMBERS) if dice.random() < 0.5 else dice.uniform(-5.0, 5.0) if type(pattern) is float else 7


def event_line(dice: Random) -> bytes:
    """A line that says a known kind and is well-formed, with odd values in it."""
    mapping = like(dice, dice.choice(EVENTS if dice.random() < 0.5 else WHOLE))
    if dice.random() < 0.1:
        mapping[dice.choice(list(mapping))] = value(dice)
    mapping["kind"] = mapping.get("kind", "step")
    try:
        return json.dumps(mapping, allow_nan=dice.random() < 0.1).encode("utf-8", "surrogatepass")
    except ValueError:
        return b"{}"


def bent(dice: Random, line: bytes) -> bytes:
    """`line` with some of its bytes exchanged, cut out, doubled, or replaced by something meant to hurt."""
    out = bytearray(line)
    for _ in range(dice.choice((1, 1, 1, 2, 3, 5))):
        at = dice.randrange(len(out) + 1)
        how = dice.randrange(6)
        if how == 0:
            out[at : at + 1] = bytes((dice.randrange(256),))
        elif how == 1:
            del out[at : at + dice.choice(_SIZES)]
        elif how == 2:
            out[at:at] = dice.choice(TOKENS)
        elif how == 3:
            out[at : at + dice.choice(_SIZES)] = dice.choice(TOKENS)
        elif how == 4:
            del out[at:]
        else:
            other = dice.choice(LINES)
            out[at:] = other[dice.randrange(len(other)) :]
    return bytes(out)


def line(dice: Random) -> bytes:
    """One line, made in one of many ways."""
    how = dice.randrange(10)
    if how < 5:
        return bent(dice, dice.choice(LINES))
    if how < 9:
        return event_line(dice)
    return dice.randbytes(dice.randrange(60))


def told(dice: Random, count: int) -> list[bytes]:
    """Lines of one producer: what it tells hangs together, under hostile names, and some of it is bent."""
    names = [dice.choice(HOSTILE) for _ in range(4)]
    rows = [
        {"kind": "hello", "wall": 1e9, "name": names[0], "host": names[1], "facts": {names[2]: {names[3]: names[0]}}}
    ]
    now = dice.choice((0.0, 5.0, 1e6))
    for index in range(1, count):
        seconds = dice.choice((0.1, 0.1, 0.1, 0.2, 3.0, 0.0))
        if dice.random() < 0.6:
            step = {"index": index, "start": now, "duration": seconds, "metrics": {names[0]: seconds, names[1]: "nan"}}
            phases = [[dice.choice(names), seconds / 3, "host", 1] for _ in range(2)]
            status = {"status": "skipped", "reason": names[2]} if dice.random() < 0.1 else {}
            rows.append({"kind": "step", **step, "phases": phases, "tokens": 9, "role": dice.choice(names), **status})
        else:
            event = dice.choice(EVENTS)
            texts = [key for key, each in event.items() if isinstance(each, str) and key != "kind"]
            rows.append({**event, **{key: dice.choice(names) for key in texts}})
        now += seconds + dice.choice((0.0, 0.01, 1.0, 3600.0, -3600.0) if dice.random() < 0.05 else (0.01,))
        rows[-1]["t"] = now
    out = []
    for seq, row in enumerate(rows):
        made = json.dumps({"t": now, **row, "producer": "p", "seq": seq}).encode()
        out.append(bent(dice, made) if dice.random() < 0.05 else made)
    return out


def output(dice: Random) -> bytes:
    """A piece of a program's output: what the patterns look for, mixed with what breaks terminals."""
    parts = []
    for _ in range(dice.randrange(1, 7)):
        how = dice.randrange(10)
        if how < 7:
            parts.append(dice.choice(PIECES))
        elif how == 7:
            parts.append(dice.choice(HOSTILE).encode("utf-8", "surrogatepass"))
        elif how == 8:
            parts.append(dice.choice(TOKENS))
        else:
            parts.append(dice.randbytes(dice.randrange(8)))
    return b"".join(parts)


def mapping(dice: Random, kinds: dict[str, Any]) -> dict[str, Any]:
    """A small file of a run, with wrong values under right names, and wrong names."""
    out = {key: like(dice, each) if dice.random() < 0.7 else value(dice) for key, each in kinds.items()}
    for key in list(out):
        if dice.random() < 0.1:
            del out[key]
    if dice.random() < 0.2:
        out[dice.choice(HOSTILE)] = value(dice)
    return out
