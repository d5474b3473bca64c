"""The page of each finding: what it means, how it is detected, what to do, what that costs. Files of the package.

A page quotes thresholds as `{diagnosis.waiting.INPUT_WORTH:%}`: the constant of the module that uses it, filled in when
the page is read, so that page and rule cannot disagree. A test holds that every code has its page.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module, resources

HEADINGS = ("What it means", "How it is detected", "What to do", "What it costs", "When the folklore is wrong")
NOT_YET = "Not detected yet by this version."

# Every code that has a page, in the order in which a person may look for them.
FAMILIES: dict[str, tuple[str, ...]] = {
    "Is it moving": ("none", "nothing-reports", "stalled", "slow-steps", "slow-drift", "steps-skipped", "regressed"),
    "Is it worth anything": ("nonfinite-loss", "reward-flat", "loss-flat", "inconsistent-console"),
    "Waiting and stopping": (
        "input-bound", "unaccounted-time", "checkpoint-stall", "eval-heavy", "logging-overhead", "slow-startup",
        "straggler",
    ),
    "The batch and the model": (
        "padding-waste", "length-outliers", "sequential-batching", "sequential-generation", "duplicate-forward",
        "fp32-matmul", "no-mixed-precision", "slow-attention", "unfused-optimizer", "checkpointing-unneeded",
        "small-batch", "misaligned-shapes", "channels-last", "deterministic-mode", "debug-settings", "below-expected",
    ),
    "torch.compile": ("recompiling", "compile-fallback", "compile-warmup"),
    "The GPU": (
        "training-on-cpu", "gpu-starved", "launch-bound", "synchronizing", "pageable-copies", "offload", "gpu-shared",
        "thermal-throttle", "power-brake", "hw-slowdown", "power-capped", "low-clocks", "pcie-downtrained", "gpu-error",
    ),
    "Memory": ("oom-risk", "memory-fragmented", "memory-headroom", "memory-leak", "swap"),
    "The host": ("cpu-starved", "oversubscribed", "disk-slow"),
}  # fmt: skip
CODES = tuple(code for codes in FAMILIES.values() for code in codes)

NEAR = 0.6  # of difflib's ratio: `inputbound` and `recompile` find their page, and a word from elsewhere none
_SHORTEST = 3  # letters that may stand for a part of a code

_QUOTED = re.compile(r"\{([a-z_.]+)\.([A-Z_]+)(?:\[([^\]]+)\])?(?::([^}]+))?\}")
_FORMS: dict[str | None, Callable[[float], str]] = {
    None: lambda value: f"{value:g}",
    "%": lambda value: f"{100 * value:g} %",
    "+%": lambda value: f"{100 * (value - 1):g} %",  # a ratio as what lies beyond 1
    "ms": lambda value: f"{1000 * value:g}",
    "MiB": lambda value: f"{value / 2**20:g}",
    "GB": lambda value: f"{value / 1e9:g}",
}


@dataclass(frozen=True, slots=True)
class Page:
    """One code explained. A section is its heading and its text: paragraphs, and lists whose items begin with `- `."""

    code: str
    line: str
    sections: tuple[tuple[str, str], ...]

    @property
    def detected(self) -> bool:
        """Whether this version has a rule for it, by the page's own word."""
        return not any(NOT_YET in body for _, body in self.sections)


def page(code: str) -> Page:
    """The page of one of `CODES`, its thresholds filled in."""
    return parsed(filled(source(code)))


def source(code: str) -> str:
    """A page as it is written."""
    if code not in CODES:
        raise KeyError(code)
    file = resources.files("monitor.diagnosis") / "pages" / f"{code}.md"
    return file.read_text(encoding="utf-8")


def parsed(text: str) -> Page:
    """A page's parts. Of Markdown it knows two ranks of headings; all else is text."""
    head, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    code, _, line = head.removeprefix("# ").partition(": ")
    parts = [section.partition("\n") for section in sections]
    return Page(code, line.strip(), tuple((heading.strip(), body.strip()) for heading, _, body in parts))


def filled(text: str) -> str:
    """`text` with every constant that it quotes in its place."""
    return _QUOTED.sub(lambda found: _FORMS[found[4]](quoted(found[1], found[2], found[3])), text)


def quotes(text: str) -> list[tuple[str, str]]:
    """The constants that a page quotes: module below `monitor`, name."""
    return [(found[1], found[2]) for found in _QUOTED.finditer(text)]


def quoted(module: str, name: str, key: str | None = None) -> float:
    """A constant of a module below `monitor`; with `key`, one entry of a table."""
    value = getattr(import_module(f"monitor.{module}"), name)
    return float(value if key is None else value[key])


def nearest(word: str) -> str | None:
    """The code that somebody may have meant."""
    meant = word.strip().lower().replace("_", "-").replace(" ", "-")
    if meant in CODES:
        return meant
    close = get_close_matches(meant, CODES, n=1, cutoff=NEAR)
    parts = [code for code in CODES if len(meant) >= _SHORTEST and meant in code]
    return parts[0] if parts else close[0] if close else None
