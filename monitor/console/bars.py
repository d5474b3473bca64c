"""Progress bars: tqdm and its cousins, rich, Keras, and the `[=====>   ] 45/100` of many other programs. Pure."""

from __future__ import annotations

import re

from monitor.console.figures import CLOCK, NUMBER, SPAN, TIME_UNIT, seconds, whole
from monitor.console.reading import Reading
from trainhooks.events import clean

MAX_LABEL = 120

_COUNT = r"(?<![\w.,])(?P<n>\d[\d.,]{0,24}[kKMGTP]?)(?P<bytes>i?B)?/(?P<total>\d[\d.,]{0,24}[kKMGTP]?|\?)(?:i?B)?"
_TQDM = re.compile(
    rf"{_COUNT}\s{{0,4}}\[(?P<elapsed>(?:\d{{1,4}} days?, )?\d{{1,4}}(?::\d\d){{1,2}})"
    r"<(?:\d{1,4} days?, )?[\d:?]{1,12}"
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
_BRACKETS = re.compile(r"\[(?=[^\]]{0,200}[=#>█▉▊▋▌▍▎▏●■])[-=#>.*+ █▏▎▍▌▋▊▉░▒▓●○■□]{3,200}\]")
_BLOCKS = re.compile(r"[|▕]?[█▉▊▋▌▍▎▏▓■]{2,200}[░▒ ─.·□-]{0,200}[|▏]?")
_AFTER = re.compile(
    r"\s{0,8}(?:(?P<percent>\d{1,3}(?:\.\d{1,4})?)\s?%)?[\s(\[]{0,8}(?:[a-z]{1,12}[=:]\s?)?(?:(?P<n>\d{1,12})\s?/\s?(?P<total>\d{1,12})(?!\d|:\d))?"
    rf"(?: (?P<elapsed>{CLOCK})\s?<)?"
)
_PERCENT = re.compile(r"(?<![\d.])(\d{1,3}(?:\.\d{1,4})?)\s?%")
_N_OF = re.compile(r"(?<![\d./])(\d{1,12})\s?/\s?(\d{1,12})(?![\d./])")
_RATE_WORDS = re.compile(rf"({NUMBER})\s?(it/s|s/it|steps?/s|batch(?:es)?/s)")
_TIMES = re.compile(rf"(?:\d+:\d\d:\d\d|-:--:--|{CLOCK})(?:\s?[<•/]\s?(?:\d+:\d\d:\d\d|-:--:--|{CLOCK}))?")

_STEP_WORDS = re.compile(r"train|\bfit|step|iter|updat|optim|learn", re.IGNORECASE)
_EPOCH_WORDS = re.compile(r"^\s*(?:training\s)?epochs?\s*:?$", re.IGNORECASE)


def read_bar(text: str) -> tuple[Reading, str, str] | None:
    """The bar in a line, with the text before and behind it that may say more; None where there is none."""
    if "/" not in text and "%" not in text and "[" not in text:
        return None
    return _tqdm(text) or _keras(text) or _rich(text) or _brackets(text)


def _tqdm(text: str) -> tuple[Reading, str, str] | None:
    found = _TQDM.search(text) if "<" in text else None
    if found is None:
        found = _TQDM_ENDLESS.search(text) if "[" in text else None
        if found is None:
            return None
    groups = found.groupdict()
    before = text[max(0, found.start() - 1200) : found.start()]
    drawn = _BEFORE_TQDM.match(before)
    label = drawn["label"] if drawn is not None else before
    unit = (groups["unit"] or groups.get("of") or "").replace("/s", "").replace("s/", "")
    bar = _bar(label, groups["n"], groups.get("total"), unit)
    if groups.get("bytes") or unit.endswith("B"):
        bar.unit = "B"
    bar.elapsed = seconds(groups["elapsed"])
    return bar, label, (groups["rest"] or "") + " | " + text[found.end() :]


def _keras(text: str) -> tuple[Reading, str, str] | None:
    found = _KERAS.search(text) if any(mark in text for mark in ("/step", "ETA", "[", "━", "s - ")) else None
    if found is None or not (found["time"] or found["each"] or "ETA" in found.group()):
        return None
    bar = _bar("", found["n"], found["total"], "step")
    bar.per_epoch = True
    each = seconds(found["each"]) if found["each"] and found["unit"] == "step" else None
    if bar.step is not None and each is not None:
        bar.elapsed = each * bar.step  # the time beside it is what is left, until the end
    if bar.step == bar.total and found["time"] and "ETA" not in found.group():
        bar.elapsed = max(seconds(found["time"]) or 0.0, bar.elapsed or 0.0)
    return bar, "", (found["rest"] or "").lstrip(" -")


def _rich(text: str) -> tuple[Reading, str, str] | None:
    found = _RICH.search(text)
    if found is None:
        return None
    last = found.end()
    while (more := _RICH.match(text, last)) or text[last : last + 1] in ("╸", "╺", "━"):
        last = more.end() if more else last + 1
    label, rest = text[: found.start()], text[last:]
    count, percent = _N_OF.search(rest) or _N_OF.search(label), _PERCENT.search(rest)
    if count is None and percent is None:
        return None  # a ruler, not a bar
    n, total = count.groups() if count is not None else (None, None)
    bar = _bar(_N_OF.sub(" ", label), n, total, "")
    bar.fraction = float(percent.group(1)) / 100 if percent else None
    for used in (_N_OF, _PERCENT, _RATE_WORDS, _TIMES):
        rest = used.sub(" ", rest)
    return bar, label, rest.replace("•", " ")


def _brackets(text: str) -> tuple[Reading, str, str] | None:
    found = _BRACKETS.search(text) or _BLOCKS.search(text)
    if found is None:
        return None
    label, after = text[: found.start()], _AFTER.match(text, found.end())
    assert after is not None  # all its parts may be absent
    n, total, end, percent = after["n"], after["total"], after.end(), after["percent"]
    if n is None and (count := re.search(r"(\d{1,12})\s?/\s?(\d{1,12})\s*(?:\d{1,3}\s?%)?\s*\|?$", label)) is not None:
        n, total, label = count.group(1), count.group(2), label[: count.start()]
    if percent is None and (told := re.search(r"(?<![\d.])(\d{1,3}(?:\.\d+)?)\s?%\s*\|?\s*$", label)) is not None:
        percent, label = told.group(1), label[: told.start()]
    if n is None and percent is None:
        return None
    bar = _bar(label, n, total, "")
    bar.fraction = float(percent) / 100 if percent else None
    bar.elapsed = seconds(after["elapsed"]) if after["elapsed"] else None
    return bar, label, text[end:].lstrip(" )]:-|")


def _bar(label: str, n: str | None, total: str | None, unit: str) -> Reading:
    bar = Reading("bar", completed=True, unit=unit)
    bar.step = whole(n) if n else None
    bar.total = whole(total) if total else None
    if bar.total == 0 or (bar.total is not None and bar.step is not None and bar.step > bar.total):
        if bar.total:
            bar.impossible.append(f"{bar.step} of {bar.total}")
        bar.step = bar.total = None
    bar.label = clean(label[-4 * MAX_LABEL :], 4 * MAX_LABEL)[-MAX_LABEL:].strip(" :|-")
    bar.key = "bar " + re.sub(r"\d+", "#", bar.label.lower())
    return bar


def strip_bar(text: str) -> str:
    """The text without the drawing of a bar that tells no figures: `Training [>....] 0.03M tokens`."""
    return _BRACKETS.sub(" | ", text) if "[" in text else text


# What a bar is about

_SPANS = (
    ("download", re.compile(r"^\W*(?:download|fetching|uploading|pulling)", re.IGNORECASE)),
    ("load", re.compile(r"^\W*(?:\w{1,20} )?(?:loading|materializing)|checkpoint shards", re.IGNORECASE)),
    (
        "tokenize",
        re.compile(
            r"^\W*(?:(?:running )?tokeni[sz]|map\b|filter\b|casting|grouping|packing|truncating|applying|converting"
            r"|adding (?:eos|bos)|extracting prompt|formatting|encoding)",
            re.IGNORECASE,
        ),
    ),
    (
        "preparation",
        re.compile(
            r"^\W*(?:[a-z]{1,12}: )?(?:saving the dataset|generating \w{1,20} (?:split|examples)|pre-?process|preparing"
            r"|reading|parsing"
            r"|building|compiling|linking|creating|indexing|sanity|caching|extracting|collecting|scanning)",
            re.IGNORECASE,
        ),
    ),
    (
        "eval",
        re.compile(
            r"^\W*(?:evaluat|eval\b|valid|val\b|test\b|testing\b|predict|inference|class\s+images\b)", re.IGNORECASE
        ),
    ),
    ("checkpoint", re.compile(r"^\W*(?:saving|writing|checkpointing)", re.IGNORECASE)),
)


def span_of(bar: Reading) -> str | None:
    """The stretch that a bar stands for, if it counts no training steps: load, download, eval..."""
    for called, pattern in _SPANS:
        if pattern.search(bar.label):
            return called
    return "download" if bar.unit == "B" else None


def counts_epochs(bar: Reading) -> bool:
    """Whether a bar counts epochs: `Epochs: 2/3`; not `Epoch 2: 45/100`, which counts steps in one."""
    return bar.unit.lower().startswith("epoch") or _EPOCH_WORDS.match(bar.label) is not None


def says_training(bar: Reading) -> bool:
    return _STEP_WORDS.search(bar.label) is not None
