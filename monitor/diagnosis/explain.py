"""The page of each finding, a file of the package: meaning, detection, fix, cost; and short texts about findings.

A page quotes thresholds as `{diagnosis.rules.waiting.MIN_INPUT_SHARE:%}`: the constant of the module that uses it,
filled in when the page is read, so that page and rule cannot disagree.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module, resources

from monitor.diagnosis.diagnose import RULES
from monitor.diagnosis.rule import Family
from monitor.diagnosis.verdict import NO_FINDING
from monitor.model.comparison.what_if import is_past, without_finding
from monitor.model.report import Finding, Gain, Report
from monitor.model.steps.pace import SINCE
from monitor.units import duration, pace, rough, times

HEADINGS = ("Meaning", "Detection", "Fix", "Cost", "Common misconceptions")

# Every code that has a page, by family.
FAMILIES: dict[str, tuple[str, ...]] = {
    family.value: tuple(rule.code for rule in RULES if rule.family is family) for family in Family
}
FAMILIES[Family.PROGRESS.value] = (NO_FINDING, *FAMILIES[Family.PROGRESS.value])
CODES = tuple(code for codes in FAMILIES.values() for code in codes)

MIN_SIMILARITY = 0.6  # of difflib: `inputbound` and `recompile` match a code, unrelated words do not
MIN_LETTERS = 3  # of a word that may match a part of a code

_QUOTED = re.compile(r"\{([a-z_.]+)\.([A-Z_]+)(?:\[([^\]]+)\])?(?::([^}]+))?\}")
_NUMBER_FORMATS: dict[str | None, Callable[[float], str]] = {
    None: lambda value: f"{value:g}",
    "%": lambda value: f"{100 * value:g}%",
    "+%": lambda value: f"{100 * (value - 1):g}%",  # a ratio as its excess over 1
    "ms": lambda value: f"{1000 * value:g}",
    "us": lambda value: f"{1e6 * value:g}",
    "MiB": lambda value: f"{value / 2**20:g}",
    "GB": lambda value: f"{value / 1e9:g}",
}


@dataclass(frozen=True, slots=True)
class Page:
    """One code explained. A section is its heading and its text: paragraphs, and lists whose items begin with `- `."""

    code: str
    line: str
    sections: tuple[tuple[str, str], ...]


def read_page(code: str) -> Page:
    """Return the page of one of `CODES`, its thresholds filled in."""
    return parse_page(fill_constants(read_page_source(code)))


def read_page_source(code: str) -> str:
    """Return a page as written.

    Raises:
        KeyError: there is no such code.
    """
    if code not in CODES:
        raise KeyError(code)
    file = resources.files("monitor.diagnosis") / "pages" / f"{code}.md"
    return file.read_text(encoding="utf-8")


def parse_page(text: str) -> Page:
    """Return the parts of a page. Of Markdown it knows two levels of headings; all else is text."""
    head, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    code, _, line = head.removeprefix("# ").partition(": ")
    parts = [section.partition("\n") for section in sections]
    return Page(code, line.strip(), tuple((heading.strip(), body.strip()) for heading, _, body in parts))


def fill_constants(text: str) -> str:
    """Return `text` with the constants that it quotes."""
    return _QUOTED.sub(lambda match: _NUMBER_FORMATS[match[4]](constant_value(match[1], match[2], match[3])), text)


def quoted_constants(text: str) -> list[tuple[str, str]]:
    """Return the constants that a page quotes: module below `monitor`, name."""
    return [(match[1], match[2]) for match in _QUOTED.finditer(text)]


def constant_value(module: str, name: str, key: str | None = None) -> float:
    """Return a constant of a module below `monitor`; with `key`, one entry of a table."""
    value = getattr(import_module(f"monitor.{module}"), name)
    return float(value if key is None else value[" ".join(key.split())])  # a page may break the line in it


def nearest_code(word: str) -> str | None:
    """Return the code most similar to `word`; None: none is similar."""
    meant = word.strip().lower().replace("_", "-").replace(" ", "-")
    if meant in CODES:
        return meant
    close = get_close_matches(meant, CODES, n=1, cutoff=MIN_SIMILARITY)
    parts = [code for code in CODES if len(meant) >= MIN_LETTERS and meant in code]
    parts.sort(key=lambda code: not code.startswith(meant))
    return parts[0] if parts else close[0] if close else None


_CLAUSE_END = re.compile(r"[.;:](?= )|,(?= (?:and|or|but|else) )")


def shorten_advice(advice: str, room: int, width: Callable[[str], int] = len) -> str:
    """Return as many whole clauses of `advice` as fit; empty where not even the first one does.

    Args:
        width: cells of a text.
    """
    if width(advice) <= room:
        return advice
    ends = [match.start() for match in _CLAUSE_END.finditer(advice)]
    return next((advice[:end] for end in reversed(ends) if width(advice[:end]) <= room), "")


MIN_GAIN = 1.01  # times as fast: a smaller gain is not shown


def gain_text(gain: Gain | None) -> str:
    """Return how much faster the steps would be, as `about 1.92x`; empty where that is unknown or hardly anything."""
    likely = None if gain is None else gain.likely
    return f"about {times(likely)}" if likely is not None and likely >= MIN_GAIN else ""


def gain_line(report: Report, finding: Finding) -> str | None:
    """Return what would remain without a finding, in one line; None where that is unknown.

    As `without it: about 1.48x faster (1.2x to 1.48x), 3.11 it/s instead of 2.10 it/s since the first step`.
    """
    gain = finding.gain
    change = without_finding(report, finding, finding.likely_fraction)
    if change is None:
        return None if gain is None else f"without it: gain not known, {times(gain.most)} is the bound"
    if is_past(report, finding):
        return f"over: cost about {duration(change.saved_seconds)}, later steps gain nothing"
    parts = []
    if gain is not None and (likely := gain_text(gain)):
        now, then = pace(change.now.steps_per_second), pace(change.then.steps_per_second)
        between = f" ({times(gain.least)} to {times(gain.most)})" if gain.least is not None else ""
        parts.append(f"{likely} faster{between}, {then} instead of {now} {SINCE}")
    now_left, then_left = change.now.eta_seconds, change.then.eta_seconds
    if now_left is not None and then_left is not None:
        if now_left - then_left >= 1.0:
            parts.append(f"done about {rough(now_left - then_left)} earlier")
    elif change.saved_seconds is not None and change.saved_seconds >= 1.0:
        parts.append(f"run about {rough(change.saved_seconds)} shorter")
    return f"without it: {'; '.join(parts)}" if parts else None
