"""Figures with names in a line of text: `key: value`, `key=value`, `key value`, `value unit`. Pure.

Values are looked for, and names looked up before them, so that a line costs a time proportional to its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from monitor.console.figures import (
    CLOCK,
    NONFINITE,
    NUMBER,
    SCALE,
    SPAN,
    TIME_UNIT,
    number,
    scale,
    seconds,
    unit_seconds,
)
from monitor.console.place import ALL, figure
from monitor.console.reading import MAX_FIGURES, Reading, known_phase, name, phase, split_role
from trainhooks.events import Number

REACH = 72  # characters before a value in which its name stands
MAX_SEGMENT = 400

_END = r"(?![\w:]|[-./]\d)"
_VALUE = re.compile(
    rf"(?P<sign>[:=])[ \t]{{0,12}}['\"]?(?:[A-Za-z_.]{{1,12}}\d{{0,2}}\()?(?:\[(?=[^,\]]{{1,24}}\]))?(?:"
    rf"(?P<span>(?:{SPAN})){_END}"
    rf"|(?P<number>{NONFINITE}|{NUMBER})(?:/(?P<of>\d{{1,9}})(?![\w./:])|\s?(?P<time>{TIME_UNIT})"
    rf"|\s?(?P<bytes>[KMGT]i?B)(?![A-Za-z])|(?P<scale>{SCALE})|\s?(?P<percent>%)|{_END}))"
)
_NAME = re.compile(
    r"[A-Za-z_@][\w@./%#-]{0,60}(?:'s)?(?: [A-Za-z_@%][\w@./%#-]{0,60}){0,6}"
    r"(?: ?\((?P<unit>[A-Za-z/%]{1,16})\))?['\"]?[ \t]{0,12}$"
)
_LEVELS = re.compile(r"^(?:(?:INFO|WARNING|WARN|DEBUG|ERROR|NOTICE|root|stdout|stderr) )+(?=\S)")
_CUTS = re.compile(r"[,;]\s+|[|│┃\[\]()\t•·»]|\s[-–—]\s|\s{2,}(?![\d.+-])|\.\s|->|=>")
_SPACED = re.compile(
    rf"(?P<name>[A-Za-z_@][\w@./%-]{{0,40}}(?: (?!(?:[Nn]a[Nn]|[Ii]nf)\b)[A-Za-z_@][\w@./%-]{{0,40}}){{0,3}})"
    r"[ ]{1,8}"
    rf"(?P<number>{NONFINITE}|{NUMBER})(?:\s?(?P<time>{TIME_UNIT})|(?P<scale>{SCALE})|\s?(?P<percent>%))?"
)
_AIMLESS = re.compile(r" (?:to|from|at|of|by|than|with|for|in|on)$", re.IGNORECASE)
_UNIT_LAST = re.compile(
    rf"(?:[A-Za-z]{{1,20}}:? )?(?P<number>{NUMBER})(?P<scale>{SCALE})?\s?"
    r"(?P<unit>(?:tok(?:en)?s?|samples?|seqs?|sequences?|examples?|images?|imgs?|img|steps?|its?|it|iters?|batch(?:es)?)"
    r"(?:\s?(?:/|per)\s?(?:s|sec|second)(?:/gpu|/device)?)?)"
)
# The same behind pairs, with nothing between: `loss 0.41 330 tok/s`, `loss 0.41 12.5 ms`.
_RATE_BEHIND = re.compile(
    rf"(?P<number>{NUMBER})(?P<scale>{SCALE})?\s?"
    r"(?P<unit>(?:tok(?:en)?s?|samples?|seqs?|sequences?|examples?|images?|imgs?|img|its?|iters?)/(?:s|sec|second))(?![\w/])"
)
_TIME_BEHIND = re.compile(rf"(?P<number>{NUMBER})\s?(?P<time>(?:[mµμun]s))(?:/(?:step|iter|it))?(?![\w/])")
_SHARE = re.compile(r"(?:.*[_/])?(?:accuracy|acc|top-?[15])")
_SHORT = re.compile(r"[mµμun]s$")  # in these units a step is told, and not what has passed since the begin
_BARE_TIME = re.compile(rf"(?:{SPAN})|(?:{NUMBER})\s?{TIME_UNIT}")


def read_pairs(text: str, into: Reading) -> None:
    """Take every figure with a name from `text`."""
    figures = _by_sign(text)
    roles = {role for each in figures if (role := split_role(name(each.name))[0])}
    own_role = next(iter(roles)) if len(roles) == 1 else None
    for each in figures:
        plain = name(each.name)
        role, rest = split_role(plain)
        if role is not None:
            plain = rest if role == own_role else f"{role}/{rest}"
        figure(into, plain if role else each.name, each.value, each.unit, each.seconds)
        if each.of is not None and plain in into.metrics:
            _of(into, plain, each.value, each.of)
    if own_role is not None and into.role is None:
        into.role = own_role
    _by_place(text, into)


def _of(into: Reading, plain: str, value: Number, of: int) -> None:
    """`gen_passed=2/5` is two figures; `Accuracy: 9832/10000 (98%)` is one, and it is the share."""
    if _SHARE.fullmatch(plain) and of > 0 and not isinstance(value, str):
        into.metrics[plain] = value / of
    else:
        into.metrics[f"{plain.removesuffix('_passed')}_total"] = of


@dataclass(frozen=True, slots=True)
class _Figure:
    name: str
    value: Number
    unit: str = ""
    seconds: float | None = None
    of: int | None = None


def _by_sign(text: str) -> list[_Figure]:
    """Values behind `:` or `=`."""
    return list(_signed(text))


def _signed(text: str) -> Iterator[_Figure]:
    before, count = 0, 0
    for found in _VALUE.finditer(text):
        if count >= MAX_FIGURES:
            return
        named = _NAME.search(text[max(before, found.start() - REACH) : found.start()])
        before = found.end()
        if named is None:
            continue
        count += 1
        unit = named["unit"] or ""
        called = named.group()
        if unit:
            called = called[: called.rindex("(")]
        called = _LEVELS.sub("", called.strip(" \t'\""))
        if found["span"]:
            told = seconds(found["span"])
            if told is not None:
                yield _Figure(called, told, seconds=told)
            continue
        value = number(found["number"])
        if value is not None:
            yield _figure(called, value, found, unit)


def _figure(called: str, value: Number, found: re.Match[str], unit: str = "") -> _Figure:
    of = int(found["of"]) if "of" in found.re.groupindex and found["of"] else None
    length = unit_seconds(found["time"] or unit) if found["time"] or unit else None
    if length is not None and not isinstance(value, str):
        return _Figure(called, value, unit, value * length)
    if found["scale"] and not isinstance(value, str):
        return _Figure(called, scale(found["number"] + found["scale"]) or 0.0, found["scale"])
    return _Figure(called, value, found["percent"] or unit, of=of)


def _by_place(text: str, into: Reading) -> None:
    """Figures that stand by themselves between separators: `loss 0.41`, `330 tokens/sec`, `720 seq`, `1m16s`."""
    for segment in _CUTS.split(text[:8192])[:MAX_FIGURES]:
        segment = segment.strip(" .,:-")
        if not segment or len(segment) > MAX_SEGMENT:
            continue
        if found := _UNIT_LAST.fullmatch(segment):
            value = scale(found["number"] + (found["scale"] or ""))
            if value is not None and "steps" not in found["unit"]:
                figure(into, re.sub(r"\s?(?:/|per)\s?", "/", found["unit"]), value, found["unit"])
        elif row := _spaced(segment):
            for each in row:
                figure(into, each.name, each.value, each.unit, each.seconds)
        elif into.elapsed is None and into.seconds is None and _BARE_TIME.fullmatch(segment):
            told = seconds(segment)
            if _SHORT.search(segment):
                into.seconds = told
            elif told is not None:
                into.spare.setdefault(ALL, told)


def _spaced(segment: str) -> list[_Figure]:
    """`loss 2.31 lr 1e-4`: names and values in turn, to the end; empty where it is anything else."""
    row: list[_Figure] = []
    at = 0
    while at < len(segment):
        behind = _behind(segment, at) if row else None
        if behind is not None:
            row.append(behind[0])
            at = behind[1]
            continue
        found = _SPACED.match(segment, at)
        value = number(found["number"]) if found is not None else None
        if found is None or value is None or segment[found.end() : found.end() + 1].strip():
            return []
        if _AIMLESS.search(found["name"]):
            return []  # `learning rate set to 0.03` is told of something that is to come
        row.append(_figure(_LEVELS.sub("", found["name"]), value, found))
        at = found.end() + 1
        while segment[at : at + 1] == " ":
            at += 1
    return row


def _behind(segment: str, at: int) -> tuple[_Figure, int] | None:
    """A rate or a short time that stands behind pairs by itself, and where the next figure begins."""
    found = _RATE_BEHIND.match(segment, at) or _TIME_BEHIND.match(segment, at)
    if found is None or segment[found.end() : found.end() + 1].strip():
        return None
    length = unit_seconds(found["time"]) if "time" in found.re.groupindex else None
    value = number(found["number"]) if length is not None else scale(found["number"] + (found["scale"] or ""))
    if value is None or isinstance(value, str):
        return None
    end = found.end() + len(segment[found.end() :]) - len(segment[found.end() :].lstrip())
    return (_Figure("step_time", value, "", value * length) if length else _Figure(found["unit"], value)), end


# Parts of a step with their times

_PART = re.compile(
    rf"(?P<name>[A-Za-z_][\w ./&+-]{{0,60}}?)\s?[:=]\s{{0,12}}(?P<time>{CLOCK}|{NUMBER}\s?{TIME_UNIT})"
    r"(?:\s{0,4}\(\s?(?P<share>\d{1,3}(?:\.\d{1,6})?)\s?%\s?\))?"
)


def read_parts(text: str) -> tuple[dict[str, float], float] | None:
    """`Forward: 0.02s (1.5%), Loss: 76.45s (97.7%)`: seconds by phase, the sum of the percents; None without any."""
    parts: dict[str, float] = {}
    shares = 0.0
    for found in _PART.finditer(text[:4096]):
        taken = seconds(found["time"])
        if taken is not None and len(parts) < MAX_FIGURES:
            called = phase(found["name"])
            if not called:
                continue
            parts[called] = parts.get(called, 0.0) + taken
            shares += float(found["share"] or 0.0)
    return (parts, shares) if parts else None


_SHARE_OF = re.compile(r"(?P<name>[A-Za-z_][\w/-]{0,40})\s?[:= ]\s{0,12}(?P<share>\d{1,3}(?:\.\d{1,6})?)\s?%")
PASSES = {"forward", "backward"}  # a row that has both is of a step; others may be rates of success


def read_shares(text: str) -> float:
    """`data 40% forward 60% backward 35%`: the percents of a step's parts added up; 0 where there is no such row."""
    if text.count("%") < len(PASSES):
        return 0.0
    rows = [(known_phase(name(found["name"])), float(found["share"])) for found in _SHARE_OF.finditer(text)]
    told = {called: part for called, part in rows if called is not None}
    return sum(told.values()) if told.keys() >= PASSES else 0.0
