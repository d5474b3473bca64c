"""Read named values in a line of text: `key: value`, `key=value`, `key value`, `value unit`.

Values are searched first, then the names before them, so that the time is proportional to the length of the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from monitor.console.configuration import is_configuration, is_setting, without_calls
from monitor.console.evaluations import (
    EvaluationSettings,
    evaluation_parts,
    with_evaluation,
    with_prefix_of_first,
    with_whole_words,
)
from monitor.console.field_mapping import TOTAL_TIME, is_about_training, known_phase, name, set_value, split_role
from monitor.console.formats import Format, register
from monitor.console.leading_numbers import leading_number
from monitor.console.printed_values import (
    DRAWN_BAR,
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
from monitor.console.reading import MAX_PERCENT_SUM, MAX_VALUES, Reading
from monitor.console.step_labels import read_labels, read_plan
from trainhooks.protocol.limits import Number

NAME_REACH = 72  # characters before a value that are searched for its name
MAX_SEGMENT = 400
MAX_TEXT = 8192  # characters that are split into segments

_END = r"(?![\w:]|[-./]\d)"
_VALUE = re.compile(
    rf"(?P<sign>[:=])[ \t]{{0,12}}['\"]?(?:[A-Za-z_.]{{1,12}}\d{{0,2}}\()?(?:\[(?=[^,\]]{{1,24}}\]))?(?:"
    rf"(?P<span>(?:{SPAN})){_END}"
    rf"|(?P<number>{NONFINITE}|{NUMBER})(?:/(?P<of>\d{{1,9}})(?![\w./:])|\s?(?P<time>{TIME_UNIT})"
    rf"|\s?(?P<bytes>[KMGT]i?B)(?![A-Za-z])|(?P<scale>{SCALE})|\s?(?P<percent>%)|{_END}))"
)
_NAME = re.compile(
    r"(?<![\w./])[A-Za-z_@][\w@./%#-]{0,60}(?:'s)?(?: [A-Za-z_@%][\w@./%#-]{0,60}){0,6}"
    r"(?: ?\((?P<unit>[A-Za-z/%]{1,16})\))?['\"]?[ \t]{0,12}$"
)
_LEVELS = re.compile(r"^(?:(?:INFO|WARNING|WARN|DEBUG|ERROR|NOTICE|root|stdout|stderr) )+(?=\S)")
_CUTS = re.compile(
    r"[,;]\s+|[|│┃\[\]()\t•·»]|\s[-–—]\s|(?<!\s)\s{2,}(?![\s\d.+-])|\.\s|->|=>|(?<=[\d%])\s/\s(?=[A-Za-z])|(?<=[A-Za-z]):\s(?=[A-Za-z])"
)
_SPACED = re.compile(
    rf"(?P<name>[A-Za-z_@][\w@./%-]{{0,40}}(?: (?!(?:[Nn]a[Nn]|[Ii]nf)\b)[A-Za-z_@][\w@./%-]{{0,40}}){{0,3}})"
    r"[ ]{1,8}"
    rf"(?P<number>{NONFINITE}|{NUMBER})(?:\s?(?P<time>{TIME_UNIT})|(?P<scale>{SCALE})|\s?(?P<percent>%))?"
)
_SENTENCE = re.compile(r".*[A-Za-z]{6,}\. ")  # before a name: `epoch is incremented. current_epoch`
# Where a logger was called, on which host and rank: `(trainer:464) INFO`, `host:0  train:816  INFO`, `[gpu01:0/2] `.
_CALLER = re.compile(
    r"^\[[\w.-]{1,64}:\d{1,5}/\d{1,5}\] "
    r"|(?:\([\w./]{1,64}:\d{1,6}\)|^\s{0,4}(?:[\w./-]{1,64}:\d{1,6}[\s|]{1,3}){1,3})"
    r"(?=\s?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b)"
)
_PREPOSITION = re.compile(r" (?:to|from|at|of|by|than|with|for|in|on)$", re.IGNORECASE)
_UNIT_LAST = re.compile(
    rf"(?:[A-Za-z]{{1,20}}:? )?(?P<number>{NUMBER})(?P<scale>{SCALE})?\s?"
    r"(?P<unit>(?:tok(?:en)?s?|samples?|seqs?|sequences?|examples?|images?|imgs?|img|steps?|its?|it|iters?|batch(?:es)?)"
    r"(?:\s?(?:/|per)\s?(?:s|sec|second)(?:/gpu|/device)?)?)"
)
_NAME_LAST = re.compile(
    rf"(?P<number>{NONFINITE}|{NUMBER}) (?P<name>(?:[a-z]{{1,12}} )?(?:loss|lr|acc(?:uracy)?))", re.IGNORECASE
)
# The same behind names and values, with nothing between: `loss 0.41 330 tok/s`, `loss 0.41 12.5 ms`.
_RATE_BEHIND = re.compile(
    rf"(?P<number>{NUMBER})(?P<scale>{SCALE})?\s?"
    r"(?P<unit>(?:tok(?:en)?s?|samples?|seqs?|sequences?|examples?|images?|imgs?|img|its?|iters?)/(?:s|sec|second))(?![\w/])"
)
# Of a step: other programs give the time elapsed in seconds.
_TIME_BEHIND = re.compile(
    rf"(?P<number>{NUMBER})\s?(?P<time>[mµμun]s|s(?:ec)?(?=/))(?:/(?:step|iter(?:ation)?|it|batch))?(?![\w/])"
)
_ACCURACY = re.compile(r"(?:.*[_/])?(?:accuracy|acc|top-?[15])")
_ROUNDED_ZERO = re.compile(r"0?\.0{2,24}")
_BARE_TIME = re.compile(rf"(?:{SPAN})|(?:{NUMBER})\s?{TIME_UNIT}")


_SPREAD = re.compile(rf"(?<=[\d%])\s?(?:\+/?-|±)\s?{NUMBER}%?")  # of a mean: `0.93 +- 0.02`
_SHARE = re.compile(r"(?P<name>[A-Za-z_][\w/-]{0,40})\s?[:= ]\s{0,12}(?P<share>\d{1,3}(?:\.\d{1,6})?)\s?%")
PASSES = {"forward", "backward"}  # a row of percents that has both is of a step; others may be rates of success


@register
class KeyValues(Format):
    """A line of words and values: any line that no other format reads."""

    order: ClassVar[int] = 90  # the last: it takes every line

    def __init__(self) -> None:
        self._evaluations = EvaluationSettings()

    def read(self, text: str) -> list[Reading] | None:
        line, rest = read_text(text), self._evaluations.without(text)
        if line.step is None and (line.total is not None or line.planned_epochs is not None) and rest != text:
            plan = read_plan(rest)
            line.total, line.planned_epochs = plan.total, plan.planned_epochs
        if line.metrics and line.step is None and line.epoch is None:
            line.head = leading_number(text)
        shares = read_shares(text)
        if shares is None or shares <= MAX_PERCENT_SUM:
            return [line]
        return [line, Reading("phases", shares=shares)]


def read_text(text: str) -> Reading:
    """Read a line of words and values. Without a step it counts only if it is about training."""
    if is_configuration(text) or is_setting(text):
        return read_plan(text)
    text = _SPREAD.sub("", with_whole_words(without_calls(_CALLER.sub("", text))))
    parts = evaluation_parts(text)
    if parts is None:
        return with_prefix_of_first(_read_part(text))
    before, prefix, behind = parts
    return with_evaluation(_read_part(before), _read_part(behind), prefix)


def _read_part(text: str) -> Reading:
    reading = Reading("metrics")
    rest = read_labels(text, reading)
    if not is_about_training(text):
        if reading.step is None and reading.epoch is None and reading.total is None:
            return Reading("metrics", planned_epochs=reading.planned_epochs)
        if reading.mention or (reading.step is None and reading.epoch is None):
            return reading  # of a printed configuration only the total counts
    read_pairs(DRAWN_BAR.sub(" | ", rest) if "[" in rest else rest, reading)
    if reading.step is not None:
        reading.family = "step"
        # `Step 1: load the data` is prose; a position comes with its total, with values, or alone.
        alone = not re.search(r"[A-Za-z]", rest)
        has_values = bool(
            reading.metrics
            or reading.phases
            or reading.seconds is not None
            or any(rate is not None for rate in (reading.tokens_rate, reading.samples_rate, reading.steps_rate))
        )
        if reading.total is None and not has_values and not alone:
            reading.step, reading.family = None, "metrics"
    elif reading.epoch is not None:
        reading.family = "epoch"
    return reading


def read_pairs(text: str, into: Reading) -> None:
    """Take every named value from `text`."""
    pairs = [pair for *_, pair in _signed_pairs(text)]
    roles = {role for pair in pairs if (role := split_role(name(pair.name))[0])}
    own_role = next(iter(roles)) if len(roles) == 1 else None
    for pair in pairs:
        plain = name(pair.name)
        role, rest = split_role(plain)
        if role is not None:
            plain = rest if role == own_role else f"{role}/{rest}"
        set_value(into, plain if role else pair.name, pair.value, pair.seconds)
        if pair.total is not None and plain in into.metrics:
            _set_total(into, plain, pair.value, pair.total)
    if own_role is not None and into.role is None:
        into.role = own_role
    _read_segments(text, into)


def _set_total(into: Reading, plain: str, value: Number, total: int) -> None:
    """`gen_passed=2/5` is two values; `Accuracy: 9832/10000 (98%)` is one, and it is the share."""
    if _ACCURACY.fullmatch(plain) and total > 0 and not isinstance(value, str):
        into.metrics[plain] = value / total
    else:
        into.metrics[f"{plain.removesuffix('_passed')}_total"] = total


@dataclass(frozen=True, slots=True)
class _Pair:
    name: str
    value: Number
    seconds: float | None = None
    total: int | None = None  # of which the value is a part


def _signed_pairs(text: str) -> Iterator[tuple[int, int, _Pair]]:
    """Yield values behind `:` or `=`, with where they begin and end."""
    before, count = 0, 0
    for match in _VALUE.finditer(text):
        if count >= MAX_VALUES:
            return
        begin = max(before, match.start() - NAME_REACH)
        named = _NAME.search(text[begin : match.start()])
        before = match.end()
        if named is None:
            continue
        count += 1
        raw_name = named.group()
        if named["unit"]:
            raw_name = raw_name[: raw_name.rindex("(")]
        raw_name = _SENTENCE.sub("", _LEVELS.sub("", raw_name.strip(" \t'\"")))
        if match["span"]:
            span = seconds(match["span"])
            if span is not None:
                yield begin + named.start(), before, _Pair(raw_name, span, span)
            continue
        value = number(match["number"])
        if value is not None:
            of = int(match["of"]) if match["of"] else None
            yield begin + named.start(), before, _pair(raw_name, value, match, named["unit"], of)


def _is_rounded_away(raw_name: str, text: str) -> bool:
    """Return whether a learning rate was printed with too few places: as `0.0000`, which says nothing of it."""
    return _ROUNDED_ZERO.fullmatch(text) is not None and name(raw_name).rpartition("/")[2] in ("lr", "learning_rate")


def _pair(
    raw_name: str, value: Number, match: re.Match[str], unit: str | None = None, total: int | None = None
) -> _Pair:
    if _is_rounded_away(raw_name, match["number"]):
        return _Pair("", value)  # without a name it is not read
    length = unit_seconds(match["time"] or unit or "")
    if length is not None and not isinstance(value, str):
        return _Pair(raw_name, value, value * length)
    if match["scale"] and not isinstance(value, str):
        return _Pair(raw_name, scale(match["number"] + match["scale"]) or 0.0)
    return _Pair(raw_name, value, total=total)


def _read_segments(text: str, into: Reading) -> None:
    """Take values that stand alone between separators: `loss 0.41`, `330 tokens/sec`, `720 seq`, `1m16s`."""
    for segment in _CUTS.split(text[:MAX_TEXT])[:MAX_VALUES]:
        if not _read_segment(segment, into) and (":" in segment or "=" in segment):
            for part in _between_signed(segment):
                _read_segment(part, into)


def _between_signed(segment: str) -> list[str]:
    """Return what stands between values behind `:` or `=`: `loss 0.41` of `loss 0.41 time: 60.1s`."""
    parts, at = [], 0
    for start, end, _ in _signed_pairs(segment):
        parts.append(segment[at:start])
        at = end
    return [*parts, segment[at:]] if parts else []


def _read_segment(segment: str, into: Reading) -> bool:
    """Take the values of one segment. Return whether it has any, and nothing else."""
    segment = segment.strip(" .,:-")
    if not segment or len(segment) > MAX_SEGMENT:
        return True
    if match := _UNIT_LAST.fullmatch(segment):
        value = scale(match["number"] + (match["scale"] or ""))
        if value is not None and "steps" not in match["unit"]:
            set_value(into, re.sub(r"\s?(?:/|per)\s?", "/", match["unit"]), value)
    elif (match := _NAME_LAST.fullmatch(segment)) and (named := number(match["number"])) is not None:
        set_value(into, match["name"], named)
    elif pairs := _spaced_pairs(segment):
        for pair in pairs:
            set_value(into, pair.name, pair.value, pair.seconds)
    elif (match := _TIME_BEHIND.fullmatch(segment)) and (behind := _unnamed_pair(match)) is not None:
        into.seconds = behind.seconds if into.seconds is None else into.seconds
    elif _BARE_TIME.fullmatch(segment) and (span := seconds(segment)) is not None:
        if into.elapsed is None and into.seconds is None:
            into.ambiguous_times.setdefault(TOTAL_TIME, span)
    else:
        return False
    return True


def _spaced_pairs(segment: str) -> list[_Pair]:
    """Find names and values in turn, `loss 2.31 lr 1e-4`, to the end of a segment; none where it is anything else."""
    pairs: list[_Pair] = []
    at = 0
    while at < len(segment):
        match = (_RATE_BEHIND.match(segment, at) or _TIME_BEHIND.match(segment, at)) if pairs else None
        pair = _unnamed_pair(match) if match is not None and _is_last(segment, match) else None
        if pair is None:
            match = _SPACED.match(segment, at)
            value = number(match["number"]) if match is not None else None
            # `learning rate set to 0.03` announces a value
            if match is None or value is None or not _is_last(segment, match) or _PREPOSITION.search(match["name"]):
                return []
            pair = _pair(_LEVELS.sub("", match["name"]), value, match)
        assert match is not None
        pairs.append(pair)
        rest = segment[match.end() :]
        at = match.end() + len(rest) - len(rest.lstrip())
    return pairs


def _is_last(segment: str, match: re.Match[str]) -> bool:
    """Return whether a value ends where its match does: at the end of the segment, or before a space."""
    return not segment[match.end() : match.end() + 1].strip()


def _unnamed_pair(match: re.Match[str]) -> _Pair | None:
    """Return the rate or the short time that follows names and values without a name."""
    if "time" not in match.re.groupindex:
        rate = scale(match["number"] + (match["scale"] or ""))
        return _Pair(match["unit"], rate) if rate is not None else None
    length, value = unit_seconds(match["time"]), number(match["number"])
    if length is None or value is None or isinstance(value, str):
        return None
    return _Pair("step_time", value, value * length)


def read_shares(text: str) -> float | None:
    """Add up the percents of a step's parts, `data 40% forward 60% backward 35%`; None without such a row."""
    if text.count("%") < len(PASSES):
        return None
    rows = [(known_phase(name(match["name"])), float(match["share"])) for match in _SHARE.finditer(text)]
    shares = {phase: share for phase, share in rows if phase is not None}
    return sum(shares.values()) if shares.keys() >= PASSES else None
