"""All runs side by side: how each stands, and how the sweeps stand that they make together.

What is drawn from the reports is pure. `Fleet` reads them, a few at a time, and remembers those that cannot change.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, median

from monitor.model.curves import stretches
from monitor.model.report import Finding, Report, View
from monitor.runs import catalogue
from monitor.runs.catalogue import RunEntry
from monitor.runs.follow import Run, load

MAX_READ = 200  # runs whose reports are read; of older ones only what `trainmon ls` shows
MAX_FOLLOWED = 32  # living runs that are followed event by event
SPARE = 0.5  # seconds of reading ended runs in one look, so that the list never waits for long
ENOUGH = 20  # steps before an ended run's speed is taken for what its command usually does
STRETCHES = 100  # of a run's step times that are kept for a picture
GROUP_TAG, PLANNED_TAG = "group", "planned"  # --tag group=NAME, --tag planned=N: runs of a sweep, and how many

# Which metric tells how good a run is, and which end of it is the good one. The first name that fits wins.
GOOD_LOW = ("loss", "perplexity", "ppl", "error", "wer", "cer", "bpb", "bits_per_byte", "nll", "mse", "mae")
GOOD_HIGH = ("reward", "accuracy", "acc", "f1", "bleu", "rouge", "score", "pass_rate", "win_rate", "auc")
HELD_OUT = ("eval", "val", "valid", "validation", "test", "dev")

_WORDS = re.compile(r"[a-z0-9]+")
_SETTING = re.compile(r"[-_. =]*\d[\w.+=-]*$")  # what tells the runs of a sweep apart: `lr-3e-4`, `seed7`


@dataclass(frozen=True, slots=True)
class Best:
    metric: str
    value: float
    word: str  # lowest | highest


@dataclass(frozen=True, slots=True)
class Row:
    """One run in the list. None is unknown."""

    entry: RunEntry
    report: Report | None = None
    speed_ratio: float | None = None  # to what was expected, or is usual
    ratio_to: str = ""  # expected | usual
    best: Best | None = None
    verdict: Finding | None = None
    pace: tuple[float, ...] = ()  # seconds a step, from the first to the newest: means of stretches alike in length

    @property
    def path(self) -> Path:
        return self.entry.path

    @property
    def living(self) -> bool:
        return self.entry.state == "running"

    @property
    def eta(self) -> float | None:
        return self.report.progress.eta_seconds if self.report is not None and self.living else None

    @property
    def cost(self) -> float | None:
        return self.report.progress.cost if self.report is not None else None


@dataclass(frozen=True, slots=True)
class Seen:
    """What is kept of a View: there may be hundreds of runs."""

    report: Report
    verdict: Finding
    pace: tuple[float, ...]


def seen(view: View) -> Seen:
    return Seen(view.report, view.verdict, outline(view.step_seconds.mean))


def outline(values: Sequence[float], most: int = STRETCHES) -> tuple[float, ...]:
    """The values as the means of at most so many stretches; what is unknown counts in none."""
    return tuple(fmean(known) for known in stretches(values, most) if known)


@dataclass(frozen=True, slots=True)
class Group:
    """Runs that belong together; a run on its own is a group without a name."""

    name: str | None
    rows: tuple[Row, ...]

    @property
    def planned(self) -> int | None:
        told = [row.entry.tags.get(PLANNED_TAG, "") for row in self.rows]
        numbers = [int(each) for each in told if each.isdecimal() and len(each) < 7]
        return max(numbers, default=None)

    @property
    def cost(self) -> float | None:
        costs = [row.cost for row in self.rows if row.cost is not None]
        return sum(costs) if costs else None

    @property
    def best(self) -> Row | None:
        """The run with the best value, where all that have one are judged by the same metric."""
        judged = [(row.best, row) for row in self.rows if row.best is not None]
        if len(judged) < 2 or len({(best.metric, best.word) for best, _ in judged}) > 1:
            return None
        ordered = sorted(judged, key=lambda pair: pair[0].value)
        return ordered[0][1] if ordered[0][0].word == "lowest" else ordered[-1][1]

    def eta(self) -> float | None:
        """Seconds until all of it has ended, as far as that can be told.

        Runs that are planned and have not started take as long as the others, and as many run at once as do now.
        """
        living = [row for row in self.rows if row.living]
        left = [row.eta for row in living]
        if not living or any(each is None for each in left):
            return None
        known = [each for each in left if each is not None]
        to_come = max(0, (self.planned or 0) - len(self.rows))
        lengths = [length for row in self.rows if (length := _length(row)) is not None]
        if not to_come or not lengths:
            return max(known) if not to_come else None
        return max(max(known), (sum(known) + to_come * fmean(lengths)) / len(living))


def _length(row: Row) -> float | None:
    """How long a run takes as a whole; None for one that did not come to its end."""
    if row.report is None or row.entry.state not in ("running", "finished"):
        return None
    elapsed = row.report.progress.elapsed_seconds
    if row.living:
        return None if row.eta is None or elapsed is None else elapsed + row.eta
    return elapsed


def best(report: Report) -> Best | None:
    """The best value of the metric by which a run is judged; held-out figures before the training's own."""
    for held_out in (True, False):
        for names, word in ((GOOD_HIGH, "highest"), (GOOD_LOW, "lowest")):
            for metric, row in report.metrics.items():
                words = _WORDS.findall(metric.lower())
                value = row.min if word == "lowest" else row.max
                if value is not None and set(words) & set(names) and bool(set(words) & set(HELD_OUT)) == held_out:
                    return Best(metric, value, word)
    return None


def grouped(rows: Iterable[Row]) -> list[Group]:
    """The rows by their tag `group`, else by what their names begin with; in the order of each one's newest run."""
    rows = list(rows)
    prefixes = {row.path: _SETTING.sub("", row.entry.name) for row in rows if GROUP_TAG not in row.entry.tags}
    names = {(prefixes[row.path], row.entry.name) for row in rows if row.path in prefixes}
    often = Counter(prefix for prefix, _ in names)  # different names with the same beginning
    found: dict[str, list[Row]] = {}
    alone: dict[str, bool] = {}
    for row in rows:
        tag = row.entry.tags.get(GROUP_TAG)
        prefix = prefixes.get(row.path, "")
        name = tag or (prefix if prefix and often[prefix] > 1 else None)
        key = f"group {name}" if name else f"run {row.path}"
        found.setdefault(key, []).append(row)
        alone[key] = not name
    return [Group(None if alone[key] else key.removeprefix("group "), tuple(each)) for key, each in found.items()]


def judged(pairs: list[tuple[RunEntry, Report | None]]) -> list[Row]:
    """Rows with their speeds set against what was expected, else against what the same command usually does."""
    usual: dict[tuple[str, ...], list[float]] = {}
    for entry, report in pairs:
        if report is not None and entry.state == "finished" and report.progress.steps_done >= ENOUGH:
            speed = report.throughput.steps_per_second
            if speed and entry.command:
                usual.setdefault(entry.command, []).append(speed)
    rows = []
    for entry, report in pairs:
        ratio, to = _ratio(entry, report, usual.get(entry.command, []))
        rows.append(Row(entry, report, ratio, to, best(report) if report is not None else None))
    return rows


def with_seen(rows: Iterable[Row], found: Iterable[Seen | None]) -> Iterator[Row]:
    """The rows with what a report does not tell of each."""
    for row, each in zip(rows, found, strict=True):
        yield replace(row, verdict=each.verdict, pace=each.pace) if each is not None else row


def _ratio(entry: RunEntry, report: Report | None, usual: list[float]) -> tuple[float | None, str]:
    if report is None:
        return None, ""
    whole, recent = report.throughput, report.throughput.recent
    living = entry.state == "running"
    wanted = whole.expected_tokens_per_second
    tokens = (recent.tokens_per_second if living else None) or whole.tokens_per_second
    if wanted and tokens:
        return tokens / wanted, "expected"
    steps = (recent.steps_per_second if living else None) or whole.steps_per_second
    if living and usual and steps:
        return steps / median(usual), "usual"
    return None, ""


@dataclass
class Fleet:
    """Reads the runs of this machine. One look is bounded; what it has not come to is read in the next."""

    _ended: dict[Path, Seen] = field(default_factory=dict)
    _followed: dict[Path, Run] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    reading: bool = True  # whether some reports are still to come

    def look(self) -> list[Group]:
        """The runs as they stand now. Any thread may ask; one is served at a time."""
        with self._lock:
            return self._look()

    def _look(self) -> list[Group]:
        entries = catalogue.list_runs()
        self._forget({entry.path for entry in entries})
        until = time.monotonic() + SPARE
        self.reading = False
        found = [self._seen(entry, until) if place < MAX_READ else None for place, entry in enumerate(entries)]
        reports = [each.report if each is not None else None for each in found]
        return grouped(with_seen(judged(list(zip(entries, reports, strict=True))), found))

    def _seen(self, entry: RunEntry, until: float) -> Seen | None:
        path = entry.path
        if entry.state == "running":
            return self._living(path, until)
        if path in self._followed:
            self._followed.pop(path).close()
        if path not in self._ended:
            if time.monotonic() > until:
                self.reading = True
                return None
            self._ended[path] = seen(load(path, measured=False))
        return self._ended[path]

    def _living(self, path: Path, until: float) -> Seen | None:
        run = self._followed.get(path)
        if run is None:
            if len(self._followed) >= MAX_FOLLOWED:
                return None
            run = self._followed[path] = Run(path)
        while run.advance() and time.monotonic() < until:
            pass
        return seen(run.view())

    def _forget(self, there: set[Path]) -> None:
        for path in [each for each in self._followed if each not in there]:
            self._followed.pop(path).close()
        for path in [each for each in self._ended if each not in there]:
            del self._ended[path]

    def close(self) -> None:
        self._forget(set())
