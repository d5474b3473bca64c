"""Read the reports of all runs and group them into sweeps.

Rows and groups are pure functions of the reports. `Fleet` reads these, a few at a time, and keeps those of ended runs.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

from monitor.model.group import best
from monitor.model.report import Best, Finding, Report
from monitor.model.view import View, split_evenly
from monitor.runs import catalogue
from monitor.runs.catalogue import RunEntry
from monitor.runs.far_runs import FarRuns
from monitor.runs.follow import Run, load
from monitor.runs.members import PLANNED_TAG

MAX_READ_RUNS = 200  # runs whose reports are read; older ones show only what `trainmon ls` shows
MAX_FOLLOWED = 32  # running runs that are followed event by event
READ_SECONDS = 0.5  # seconds of reading ended runs in one call, so that the list stays responsive
MIN_SPEED_STEPS = 20  # steps of an ended run from which its speed counts for the typical speed of its command
MAX_PACE_VALUES = 100  # means of a run's step times that are kept for its sparkline
GROUP_TAG = "group"  # --tag group=NAME: the runs of a sweep

_SETTING = re.compile(r"[-_. =]*\d[\w.+=-]*$")  # the part of a name that differs within a sweep: `lr-3e-4`, `seed7`


@dataclass(frozen=True, slots=True)
class Row:
    """One run in the list. None is unknown."""

    entry: RunEntry
    report: Report | None = None
    speed_ratio: float | None = None  # speed relative to the expected or the typical one
    ratio_to: str = ""  # expected | median
    best: Best | None = None
    verdict: Finding | None = None
    pace: tuple[float, ...] = ()  # seconds per step, oldest first: means over equal stretches

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
class RunSummary:
    """The part of a View that is kept: there may be hundreds of runs."""

    report: Report
    verdict: Finding
    pace: tuple[float, ...]


def summarize(view: View) -> RunSummary:
    return RunSummary(view.report, view.verdict, sampled_pace(view.step_seconds.mean))


def sampled_pace(values: Sequence[float], most: int = MAX_PACE_VALUES) -> tuple[float, ...]:
    """Return the means of the values over at most `most` equal stretches, without unknown values."""
    return tuple(fmean(known) for known in split_evenly(values, most) if known)


@dataclass(frozen=True, slots=True)
class Group:
    """Runs of one sweep; a single run is a group without a name."""

    name: str | None
    rows: tuple[Row, ...]

    @property
    def planned(self) -> int | None:
        planned = [row.entry.tags.get(PLANNED_TAG, "") for row in self.rows]
        numbers = [int(text) for text in planned if text.isdecimal() and len(text) < 7]
        return max(numbers, default=None)

    @property
    def cost(self) -> float | None:
        costs = [row.cost for row in self.rows if row.cost is not None]
        return sum(costs) if costs else None

    @property
    def best(self) -> Row | None:
        """Return the run with the best value; None unless all values are of the same metric."""
        judged = [(row.best, row) for row in self.rows if row.best is not None]
        if len(judged) < 2 or len({(best.metric, best.word) for best, _ in judged}) > 1:
            return None
        ordered = sorted(judged, key=lambda pair: pair[0].value)
        return ordered[0][1] if ordered[0][0].word == "lowest" else ordered[-1][1]

    def eta(self) -> float | None:
        """Return the seconds until all runs have ended; None where unknown.

        Assume that planned runs take as long as the others, and that as many run at once as now.
        """
        living = [row for row in self.rows if row.living]
        left = [row.eta for row in living]
        if not living or any(seconds is None for seconds in left):
            return None
        known = [seconds for seconds in left if seconds is not None]
        to_come = max(0, (self.planned or 0) - len(self.rows))
        lengths = [length for row in self.rows if (length := _length(row)) is not None]
        if not to_come or not lengths:
            return max(known) if not to_come else None
        return max(max(known), (sum(known) + to_come * fmean(lengths)) / len(living))


def _length(row: Row) -> float | None:
    """Return the total seconds of a run; None for one that failed or was lost."""
    if row.report is None or row.entry.state not in ("running", "finished"):
        return None
    elapsed = row.report.progress.elapsed_seconds
    if row.living:
        return None if row.eta is None or elapsed is None else elapsed + row.eta
    return elapsed


COMMAND, ALONE = "command", "nothing"  # what runs are grouped by, beside their tags


def regrouped(rows: Iterable[Row], by: str) -> list[Group]:
    """Group the rows by the program that they ran, by a tag of theirs, or not at all; the newest runs first."""
    groups: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.entry.started or 0.0, reverse=True):
        tag = row.entry.tags.get(by)
        own = _program(row.entry.command) if by == COMMAND else f"{by}={tag}" if tag is not None and by != ALONE else ""
        groups.setdefault(own or f"\0{row.path}", []).append(row)
    return [Group(name if len(members) > 1 else None, tuple(members)) for name, members in groups.items()]


def _program(command: Sequence[str]) -> str:
    """Return the script or module of a command, without its arguments; else its first word."""
    script = next((Path(word).name for word in command if word.endswith(".py")), None)
    module = next((word for flag, word in pairwise(command) if flag == "-m"), None)
    return script or module or (Path(command[0]).name if command else "")


def grouped(rows: Iterable[Row]) -> list[Group]:
    """Group the rows by their tag `group`, else by a common prefix of their names; keep the order of the rows."""
    rows = list(rows)
    prefixes = {row.path: _SETTING.sub("", row.entry.name) for row in rows if GROUP_TAG not in row.entry.tags}
    names = {(prefixes[row.path], row.entry.name) for row in rows if row.path in prefixes}
    prefix_counts = Counter(prefix for prefix, _ in names)  # different names with the same beginning
    groups: dict[str, list[Row]] = {}
    alone: dict[str, bool] = {}
    for row in rows:
        tag = row.entry.tags.get(GROUP_TAG)
        prefix = prefixes.get(row.path, "")
        name = tag or (prefix if prefix and prefix_counts[prefix] > 1 else None)
        key = f"group {name}" if name else f"run {row.path}"
        groups.setdefault(key, []).append(row)
        alone[key] = not name
    return [Group(None if alone[key] else key.removeprefix("group "), tuple(paths)) for key, paths in groups.items()]


def with_typical_speed(pairs: list[tuple[RunEntry, Report | None]]) -> list[Row]:
    """Return rows with speeds relative to the expected one, else to the typical one of the same command."""
    typical: dict[tuple[str, ...], list[float]] = {}
    for entry, report in pairs:
        if report is not None and entry.state == "finished" and report.progress.steps_done >= MIN_SPEED_STEPS:
            speed = report.throughput.steps_per_second
            if speed and entry.command:
                typical.setdefault(entry.command, []).append(speed)
    rows = []
    for entry, report in pairs:
        ratio, to = _ratio(entry, report, typical.get(entry.command, []))
        rows.append(Row(entry, report, ratio, to, best(report) if report is not None else None))
    return rows


def with_summaries(rows: Iterable[Row], summaries: Iterable[RunSummary | None]) -> Iterator[Row]:
    """Return the rows with the fields that are not in a report: verdict and pace."""
    for row, view in zip(rows, summaries, strict=True):
        yield replace(row, verdict=view.verdict, pace=view.pace) if view is not None else row


def _ratio(entry: RunEntry, report: Report | None, typical: list[float]) -> tuple[float | None, str]:
    if report is None:
        return None, ""
    whole, recent = report.throughput, report.throughput.recent
    living = entry.state == "running"
    wanted = whole.expected_tokens_per_second
    tokens = (recent.tokens_per_second if living else None) or whole.tokens_per_second
    if wanted and tokens:
        return tokens / wanted, "expected"
    steps = (recent.steps_per_second if living else None) or whole.steps_per_second
    if living and typical and steps:
        return steps / median(typical), "median"
    return None, ""


@dataclass
class Fleet:
    """Read the runs of this machine. A call to `groups` is bounded in time; the next call reads more.

    Attributes:
        far: the runs of other hosts, which are only listed.
    """

    far: FarRuns = field(default_factory=lambda: FarRuns(()))
    _ended: dict[Path, RunSummary] = field(default_factory=dict)
    _followed: dict[Path, Run] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    reading: bool = True  # whether some reports have not been read yet

    def groups(self) -> list[Group]:
        """Return the current runs. Any thread may call this; the calls run one at a time."""
        with self._lock:
            return self._groups()

    def _groups(self) -> list[Group]:
        far = self.far.entries()
        entries = catalogue.list_runs()
        self._forget({entry.path for entry in entries})
        until = time.monotonic() + READ_SECONDS
        self.reading = False
        summaries = [
            self._summary(entry, until) if place < MAX_READ_RUNS else None for place, entry in enumerate(entries)
        ]
        if far:
            pairs = sorted([*zip(entries, summaries, strict=True), *((entry, None) for entry in far)], key=_begun)
            entries, summaries = [entry for entry, _ in pairs], [view for _, view in pairs]
        reports = [view.report if view is not None else None for view in summaries]
        return grouped(with_summaries(with_typical_speed(list(zip(entries, reports, strict=True))), summaries))

    def _summary(self, entry: RunEntry, until: float) -> RunSummary | None:
        path = entry.path
        if entry.state == "running":
            return self._living(path, until)
        if path in self._followed:
            self._followed.pop(path).close()
        if path not in self._ended:
            if time.monotonic() > until:
                self.reading = True
                return None
            self._ended[path] = summarize(load(path, measured=False))
        return self._ended[path]

    def _living(self, path: Path, until: float) -> RunSummary | None:
        run = self._followed.get(path)
        if run is None:
            if len(self._followed) >= MAX_FOLLOWED:
                return None
            run = self._followed[path] = Run(path)
        while run.advance() and time.monotonic() < until:
            pass
        return summarize(run.view())

    def _forget(self, paths: set[Path]) -> None:
        for path in [known for known in self._followed if known not in paths]:
            self._followed.pop(path).close()
        for path in [known for known in self._ended if known not in paths]:
            del self._ended[path]

    def close(self) -> None:
        self.far.close()
        self._forget(set())


def _begun(pair: tuple[RunEntry, RunSummary | None]) -> float:
    return -(pair[0].started or 0.0)
