"""Read progress bars: tqdm and its relatives, rich, Keras, and the `[=====>   ] 45/100` of many other programs."""

from __future__ import annotations

import re
from typing import ClassVar, NamedTuple

from monitor.console import step_labels
from monitor.console.bar_roles import counts_epochs
from monitor.console.formats import Format, key_values, register
from monitor.console.printed_values import CLOCK, DRAWN_BAR, NUMBER, SPAN, TIME_UNIT, seconds, whole
from monitor.console.reading import MAX_LINE_CHARACTERS, Reading
from trainhooks.protocol.limits import clean

MAX_LABEL = 120  # characters, the last of them: the words next to the bar name it
# Read from the text behind a bar where the bar itself lacks them.
_SHARED = ("epoch", "tokens_rate", "samples_rate", "tokens_total", "samples_total")

_COUNT = r"(?<![\w.,])(?P<n>\d[\d.,]{0,24}[kKMGTP]?)(?P<bytes>i?B)?/(?P<total>\d[\d.,]{0,24}[kKMGTP]?|\?)(?:i?B)?"
_TQDM = re.compile(
    rf"{_COUNT}\s{{0,4}}\[(?P<elapsed>(?:\d{{1,4}} days?, )?\d{{1,4}}(?::\d\d){{1,2}})"
    r"<(?:\d{1,4} days?, )?[\d:?]{1,12}"
    r"(?:,\s{0,4}(?P<rate>[\d.,]{1,16}[kKMGT]?|\?)\s?(?P<unit>[A-Za-z/]{0,24}))?(?:[,\s]\s{0,4}(?P<rest>[^\]]{0,2000}))?\]"
)
_IN_BRACKETS = re.compile(  # [150/3558 00:05<02:15, 3.50it/s], and with spaces as in a notebook
    rf"\[\s{{0,8}}{_COUNT}\s{{1,4}}(?P<elapsed>(?:\d{{1,4}} days?, )?\d{{1,4}}(?::\d\d){{1,2}})"
    r"\s?<\s?(?:\d{1,4} days?, )?[\d:?]{1,12}"
    r"(?:,\s{0,4}(?P<rate>[\d.,]{1,16}[kKMGT]?|\?)\s?(?P<unit>[A-Za-z/]{0,24}))?(?:[,\s]\s{0,4}(?P<rest>[^\]]{0,2000}))?\]"
)
_TQDM_ENDLESS = re.compile(
    r"(?<![\w.,])(?P<n>\d[\d.,]{0,24}[kKMGTP]?)\s?(?P<of>[A-Za-z]{1,20})\s\[(?P<elapsed>\d{1,4}(?::\d\d){1,2}),"
    r"\s{0,4}(?P<rate>[\d.,]{1,16}|\?)\s?(?P<unit>[A-Za-z/]{0,24})(?:,\s{0,4}(?P<rest>[^\]]{0,2000}))?\]"
)
_BEFORE_TQDM = re.compile(r"^(?P<label>.*?):?\s*\d{1,3}(?:\.\d+)?%\s?\|[^|]{0,600}\|\s*$")
_KERAS = re.compile(
    r"(?<![\w.,/])(?P<n>\d{1,12})/(?P<total>\d{1,12}|Unknown)\s+"
    r"(?:\[[=>.]{3,200}\]|[━╸╺─]{3,200}|(?=\d[\d:]{0,8}\S{0,2} \d)|(?=- \d{1,6}m?s - ))"
    rf"(?:\s*-)?\s*(?:ETA:\s*)?(?P<time>{SPAN}|\d{{1,6}}(?:\.\d+)?\s?{TIME_UNIT})?"
    rf"(?:\s*(?P<each>\d{{1,9}}(?:\.\d+)?(?:ms|us|µs|s|m|min))/(?P<unit>step|epoch|sample))?(?P<rest>.*)$"
)
_RICH = re.compile(r"[━╸╺]{5,400}")
_BLOCKS = re.compile(r"[|▕]?[█▉▊▋▌▍▎▏▓■]{2,200}[░▒ ─.·□-]{0,200}[|▏]?")
_COUNT_INSIDE = re.compile(
    r"\[(?=[^\]]{0,240}[=#>.]{3})[-=#>. ]{0,200} (?P<n>\d{1,12})/(?P<total>\d{1,12}) [-=#>. ]{0,200}\]"
)
_AFTER = re.compile(
    r"\s{0,8}(?:(?P<percent>\d{1,3}(?:\.\d{1,4})?)\s?%)?[\s(\[]{0,8}"
    r"(?:(?:[a-z]{1,12}[=:]\s?)?(?P<n>\d{1,12})\s?/\s?(?P<total>\d{1,12})(?!\d|:\d))?"
    rf"(?: (?P<elapsed>{CLOCK})\s?<)?"
)
_PERCENT = re.compile(r"(?<![\d.])(\d{1,3}(?:\.\d{1,4})?)\s?%")
_N_OF = re.compile(r"(?<![\d./])(\d{1,12})\s?/\s?(\d{1,12})(?![\d./])")
_COUNT_LAST = re.compile(r"(\d{1,12})\s?/\s?(\d{1,12})\s*(?:\d{1,3}\s?%)?\s*\|?$")
_PERCENT_LAST = re.compile(r"(?<![\d.])(\d{1,3}(?:\.\d+)?)\s?%\s*\|?\s*$")
_RATE_WORDS = re.compile(rf"({NUMBER})\s?(it/s|s/it|steps?/s|batch(?:es)?/s)")
_TIMES = re.compile(rf"(?:\d+:\d\d:\d\d|-:--:--|{CLOCK})(?:\s?[<•/]\s?(?:\d+:\d\d:\d\d|-:--:--|{CLOCK}))?")


class DrawnBar(NamedTuple):
    """A bar, with the text before and behind it."""

    bar: Reading
    before: str
    after: str


@register
class ProgressBars(Format):
    """A bar, its label, and the values in its line."""

    order: ClassVar[int] = 40  # before lines of text, which would read the position as a metric

    def read(self, text: str) -> list[Reading] | None:
        drawn = read_bar(text)
        return None if drawn is None else complete_bar(*drawn, Reading("bar"))


def complete_bar(bar: Reading, before: str, after: str, beside: Reading) -> list[Reading]:
    """Return a bar with the values of the text around it, then the text behind it as a reading if it has its own step.

    Args:
        beside: what is known of the text before the bar.
    """
    rest = step_labels.read_labels(before[-MAX_LINE_CHARACTERS:], beside)
    key_values.read_pairs(rest, bar)
    bar.epoch, bar.epochs = beside.epoch, beside.epochs
    if bar.epoch is not None and not counts_epochs(bar):
        bar.per_epoch = True
    elapsed, bar.elapsed = bar.elapsed, None
    behind = key_values.read_text(after) if after.strip(" |") else None
    if behind is None or behind.step is not None or behind.reason is not None:
        bar.elapsed = elapsed
        return [bar] if behind is None else [bar, behind]
    bar.metrics.update({key: value for key, value in behind.metrics.items() if key not in bar.metrics})
    for field in _SHARED:
        if getattr(bar, field) is None:
            setattr(bar, field, getattr(behind, field))
    bar.impossible += behind.impossible
    bar.elapsed = elapsed
    return [bar]


def read_bar(text: str) -> DrawnBar | None:
    """Return the bar in a line; None without one."""
    if "/" not in text and "%" not in text and "[" not in text:
        return None
    return _tqdm(text) or _keras(text) or _rich(text) or _brackets(text)


def _tqdm(text: str) -> DrawnBar | None:
    match = _TQDM.search(text) or _IN_BRACKETS.search(text) if "<" in text else None
    if match is None:
        match = _TQDM_ENDLESS.search(text) if "[" in text else None
        if match is None:
            return None
    groups = match.groupdict()
    before = text[max(0, match.start() - 1200) : match.start()]
    drawn = _BEFORE_TQDM.match(before)
    label = drawn["label"] if drawn is not None else before
    unit = (groups["unit"] or groups.get("of") or "").replace("/s", "").replace("s/", "")
    bar = _bar(label, groups["n"], groups.get("total"), unit)
    if groups.get("bytes") or unit.endswith("B"):
        bar.unit = "B"
    bar.elapsed = seconds(groups["elapsed"])
    return DrawnBar(bar, label, (groups["rest"] or "") + " | " + text[match.end() :])


def _keras(text: str) -> DrawnBar | None:
    match = _KERAS.search(text) if any(mark in text for mark in ("/step", "ETA", "[", "━", "s - ")) else None
    if match is None or not (match["time"] or match["each"] or "ETA" in match.group()):
        return None
    bar = _bar("", match["n"], match["total"], "step")
    bar.per_epoch = True
    step_seconds = seconds(match["each"]) if match["each"] and match["unit"] == "step" else None
    if bar.step is not None and step_seconds is not None:
        bar.elapsed = step_seconds * bar.step  # the time beside it is the time left
    if bar.step == bar.total and match["time"] and "ETA" not in match.group():
        bar.elapsed = max(seconds(match["time"]) or 0.0, bar.elapsed or 0.0)
    return DrawnBar(bar, "", (match["rest"] or "").lstrip(" -"))


def _rich(text: str) -> DrawnBar | None:
    match = _RICH.search(text)
    if match is None:
        return None
    last = match.end()
    while (more := _RICH.match(text, last)) or text[last : last + 1] in ("╸", "╺", "━"):
        last = more.end() if more else last + 1
    label, rest = text[: match.start()], text[last:]
    count, percent = _N_OF.search(rest) or _N_OF.search(label), _PERCENT.search(rest)
    if count is None and percent is None:
        return None  # a ruler, not a bar
    n, total = count.groups() if count is not None else (None, None)
    bar = _bar(_N_OF.sub(" ", label), n, total, "")
    bar.fraction = float(percent.group(1)) / 100 if percent else None
    for used in (_N_OF, _PERCENT, _RATE_WORDS, _TIMES):
        rest = used.sub(" ", rest)
    return DrawnBar(bar, label, rest.replace("•", " "))


def _brackets(text: str) -> DrawnBar | None:
    inside = _COUNT_INSIDE.search(text) if "[" in text else None
    if inside is not None:
        label = text[: inside.start()]
        return DrawnBar(_bar(label, inside["n"], inside["total"], ""), label, text[inside.end() :])
    match = DRAWN_BAR.search(text) or _BLOCKS.search(text)
    if match is None:
        return None
    label, after = text[: match.start()], _AFTER.match(text, match.end())
    assert after is not None  # all its parts may be absent
    n, total, end, percent = after["n"], after["total"], after.end(), after["percent"]
    if n is None and (count := _COUNT_LAST.search(label)) is not None:
        n, total, label = count.group(1), count.group(2), label[: count.start()]
    if percent is None and (percent_match := _PERCENT_LAST.search(label)) is not None:
        percent, label = percent_match.group(1), label[: percent_match.start()]
    if n is None and percent is None:
        return None
    bar = _bar(label, n, total, "")
    bar.fraction = float(percent) / 100 if percent else None
    bar.elapsed = seconds(after["elapsed"]) if after["elapsed"] else None
    return DrawnBar(bar, label, text[end:].lstrip(" )]:-|"))


def _bar(label: str, n: str | None, total: str | None, unit: str) -> Reading:
    bar = Reading("bar", completed=True, unit=unit or None)
    bar.step = whole(n) if n else None
    bar.total = whole(total) if total else None
    if bar.total == 0 or (bar.total is not None and bar.step is not None and bar.step > bar.total):
        if bar.total:
            bar.impossible.append(f"{bar.step} of {bar.total}")
        bar.step = bar.total = None
    name = clean(label[-4 * MAX_LABEL :], 4 * MAX_LABEL)[-MAX_LABEL:].strip(" :|-")
    bar.label = name or None
    bar.key = "bar " + re.sub(r"\d+", "#", name.lower())
    return bar
