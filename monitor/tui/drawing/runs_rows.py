"""The list of runs as rows of text: columns that fit the width, each group above its runs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from monitor import units
from monitor.keymap import COMPARE, RUNS_ACTIONS, STOP_RUN
from monitor.runs.fleet import Group
from monitor.runs.fleet import Row as RunRow
from monitor.tui.drawing.rows import (
    Row,
    Span,
    column,
    fit,
    row_width,
    spread,
    text_width,
)

_Item = TypeVar("_Item")
EMPTY = "no runs yet; start one: trainmon run -- python train.py"
STATES = {
    "running": ("● running", "good"),
    "finished": ("✔ finished", "muted"),
    "failed": ("✖ failed", "bad"),
    "killed": ("✖ killed", "bad"),
    "lost": ("? lost", "warning"),
}
UNKNOWN_EXIT = ("? ended", "warning")  # the exit code is unknown
STATE_WIDTH = 10
MIN_BEST_WIDTH = 26  # cells of the column "best", which takes all spare cells
MAX_STEPS_WIDTH = 26  # cells of the column "steps": a million of a million
_INDENT = 2  # cells of a run below the head of its group
EXTREME_WORDS = {"highest": "max", "lowest": "min"}  # over one run's values
BASELINES = {"median": "past runs"}  # names of what a speed is compared with, where they differ from `ratio_to`
MIN_SPEED_RATIO = 0.9  # below this share of the compared speed, it is shown as a warning


@dataclass(frozen=True)
class Line:
    """One line of the list: a run, or the head of a group."""

    group: Group
    run: RunRow | None = None

    @property
    def path(self) -> Path | None:
        return self.run.path if self.run is not None else None


@dataclass(frozen=True)
class _Column:
    head: str
    width: int
    cell: Callable[[RunRow], tuple[str, str]]  # text and tone
    value: Callable[[RunRow], Any]  # what it sorts by; None: unknown
    of_group: Callable[[Group], str] = lambda group: ""


def lines(groups: Sequence[Group]) -> list[Line]:
    """Return the lines of the list, in order."""
    out = []
    for group in groups:
        if group.name is not None:
            out.append(Line(group))
        out += [Line(group, run) for run in group.rows]
    return out


def _total(run: RunRow) -> int | None:
    return (run.report.progress.steps_total if run.report is not None else None) or run.entry.steps_total


def _steps(run: RunRow) -> tuple[str, str]:
    done, total = _done(run), _total(run)
    if not done:
        return units.UNKNOWN, "muted"
    if not total:
        return f"{done:,}", "text"
    return f"{done:,}/{total:,} {units.share(min(1.0, done / total)):>4}", "text"


def _done(run: RunRow) -> int | None:
    return run.report.progress.steps_done if run.report is not None else run.entry.step


def _steps_width(runs: Sequence[RunRow]) -> int:
    """Return the cells that the steps will need at most, so that the columns do not move as the steps grow."""
    totals = [_total(run) for run in runs]
    known = max((len(f"{total:,}/{total:,} 100%") for total in totals if total), default=0)
    return min(MAX_STEPS_WIDTH, max(len("steps"), known, *(len(_steps(run)[0]) for run in runs)))


def _speed_value(run: RunRow) -> float | None:
    """Return the steps per second since the first step, as `trainmon ls` and the report tell them."""
    return run.report.throughput.steps_per_second if run.report is not None else run.entry.steps_per_second


def _speed(run: RunRow) -> tuple[str, str]:
    return units.pace(_speed_value(run)), "text"


def _ratio(run: RunRow) -> tuple[str, str]:
    if run.speed_ratio is None:
        return "", "faint"
    return (
        f"{units.share(run.speed_ratio)} of {BASELINES.get(run.ratio_to, run.ratio_to)}",
        "warning" if run.speed_ratio < MIN_SPEED_RATIO else "muted",
    )


def _eta(run: RunRow) -> tuple[str, str]:
    return (units.age(run.eta), "text") if run.living else ("", "faint")


def _elapsed(run: RunRow) -> tuple[str, str]:
    return units.age(run.report.progress.elapsed_seconds if run.report is not None else None), "muted"


def _cost(run: RunRow) -> tuple[str, str]:
    return units.money(run.cost), "text" if run.cost is not None else "muted"


def _best(run: RunRow) -> tuple[str, str]:
    if run.best is None:
        return "", "faint"
    return f"{run.best.metric} {units.number(run.best.value)} ({EXTREME_WORDS[run.best.word]})", "text"


def _best_value(run: RunRow) -> tuple[str, float] | None:
    return (run.best.metric, run.best.value) if run.best is not None else None


def _age(run: RunRow) -> tuple[str, str]:
    seconds = run.entry.age_seconds
    return (f"{units.age(max(0.0, seconds))} ago" if seconds is not None else units.UNKNOWN), "muted"


def _group_eta(group: Group) -> str:
    return units.age(group.eta()) if any(run.living for run in group.rows) else ""


def _group_best(group: Group) -> str:
    run = group.best
    if run is None or run.best is None:
        return ""
    return f"best: {run.entry.name}, {run.best.metric} {units.number(run.best.value)}"


_COLUMNS = (
    _Column("steps", MAX_STEPS_WIDTH, _steps, _done),
    _Column("speed", 13, _speed, _speed_value),
    _Column("speed against", 17, _ratio, lambda run: run.speed_ratio),
    _Column("left", 11, _eta, lambda run: run.eta, _group_eta),
    _Column("elapsed", 11, _elapsed, lambda run: run.report.progress.elapsed_seconds if run.report else None),
    _Column(
        "cost", 9, _cost, lambda run: run.cost, lambda group: units.money(group.cost) if group.cost is not None else ""
    ),
    _Column("started", 15, _age, lambda run: run.entry.started),
    _Column("best", MIN_BEST_WIDTH, _best, _best_value, _group_best),
)
_PRIORITY = ("steps", "left", "speed", "best", "cost", "elapsed", "speed against", "started")  # the first fits first
_LEFT = {"best"}  # columns that are aligned on the left
_VALUES: dict[str, Callable[[RunRow], Any]] = {
    "run": lambda run: run.entry.name,
    "state": lambda run: [*STATES, run.entry.state].index(run.entry.state),
    **{column_.head: column_.value for column_ in _COLUMNS},
}
RISING = ("run", "state")  # columns whose order is not from the highest value on at first


def ordered(groups: Sequence[Group], by: str, falling: bool) -> list[Group]:
    """Return the groups with their runs sorted by a column, and by their first run; unknown values come last."""

    def in_order(items: Iterable[_Item], value: Callable[[_Item], Any]) -> list[_Item]:
        known: list[_Item] = []
        unknown: list[_Item] = []
        for item in items:
            (unknown if value(item) is None else known).append(item)
        return [*sorted(known, key=value, reverse=falling), *unknown]

    if by not in _VALUES:
        return list(groups)
    of = _VALUES[by]
    return in_order(
        [replace(group, rows=tuple(in_order(group.rows, of))) for group in groups], lambda group: of(group.rows[0])
    )


def layout(groups: Sequence[Group], width: int) -> tuple[int, list[_Column]]:
    """Return the width of the names, and the columns that fit and have a value for any run."""
    runs = [run for group in groups for run in group.rows]
    longest = max((text_width(run.entry.name[:40]) for run in runs), default=0) + _INDENT
    rest = width - STATE_WIDTH - 6
    name = max(8, min(longest, 36, rest // 3))
    rest -= name
    chosen = set()
    columns = [
        replace(column_, width=_steps_width(runs)) if column_.head == "steps" else column_ for column_ in _COLUMNS
    ]
    for column_ in sorted(columns, key=lambda column: _PRIORITY.index(column.head)):
        if column_.width + 2 <= rest and any(column_.cell(run)[0] not in ("", units.UNKNOWN) for run in runs):
            chosen.add(column_.head)
            rest -= column_.width + 2
    shown = [column_ for column_ in columns if column_.head in chosen]
    more = min(rest, 36 - name, max(0, longest - name))
    wider = [
        replace(column_, width=column_.width + rest - more) if column_.head == "best" else column_ for column_ in shown
    ]
    return name + more, wider


def head(groups: Sequence[Group], width: int, by: str = "", falling: bool = True) -> list[tuple[str, Span]]:
    """Return the names of the columns, each with its cells of the line; `by` is the one that the runs are sorted by."""
    name, shown = layout(groups, width)
    widths = {"run": name, "state": STATE_WIDTH, **{column_.head: column_.width for column_ in shown}}
    heads = []
    for title, wide in widths.items():
        left = title in _LEFT or title in RISING
        text = title if title != by else f"{fit(title, wide - 1)}{'↓' if falling else '↑'}"
        gap = "   " if title == "run" else "  "
        heads.append((title, (gap + column(text, wide, not left), "accent bold" if title == by else "muted")))
    return heads


def row(line: Line, placed: tuple[int, list[_Column]], here: bool, marked: Collection[Path]) -> Row:
    """Return one line of the list. Cursor and mark are characters, so that they are visible without color.

    Args:
        placed: what `layout` returned.
        here: whether the cursor is on this line.
        marked: the runs marked for a comparison.
    """
    weight = " bold" if here else ""
    pointer = "▸" if here else " "
    if line.run is None:
        return _group_row(line.group, placed, pointer, weight)
    name, shown = placed
    run = line.run
    mark = "*" if run.path in marked else " "
    exit_unknown = run.entry.state == "finished" and run.entry.exit_code is None
    words, tone = UNKNOWN_EXIT if exit_unknown else STATES.get(run.entry.state, ("?", "warning"))
    indent = " " * _INDENT if line.group.name is not None else ""
    out: Row = [(f"{pointer}{mark} ", "accent bold")]
    out.append((column(indent + run.entry.name, name), f"text{weight}"))
    out.append(("  " + column(words, STATE_WIDTH), f"{tone}{weight}"))
    for column_ in shown:
        text, tone = column_.cell(run)
        out.append(("  " + column(text, column_.width, column_.head not in _LEFT), f"{tone}{weight}"))
    return out


def _group_row(group: Group, placed: tuple[int, list[_Column]], pointer: str, weight: str) -> Row:
    name, shown = placed
    states = [run.entry.state for run in group.rows]
    counts = ", ".join(f"{states.count(state)} {state}" for state in STATES if state in states)
    planned = f", {group.planned} planned" if group.planned else ""
    label = f"{group.name}: {units.plural(len(states), 'run', 'runs')}{planned}, {counts}"
    room = name + 2 + STATE_WIDTH
    out: Row = []
    for column_ in shown:
        text = column_.of_group(group)
        if not out and not text:
            room += column_.width + 2  # the label extends over columns that are empty for a group
        else:
            out.append(("  " + column(text, column_.width, column_.head not in _LEFT), f"accent{weight}"))
    return [(f"{pointer}  ", "accent bold"), (column(label, room), f"accent{weight}"), *out]


def top(groups: Sequence[Group], reading: bool, width: int, by: str = "") -> Row:
    """Return the line above the list, with the number of runs, and what they are grouped by where that was chosen."""
    everything = [run for group in groups for run in group.rows]
    living = sum(run.living for run in everything)
    left: Row = [(" trainmon ", "accent bold"), (f"{units.plural(len(everything), 'run', 'runs')}, ", "text")]
    left.append((f"{living} running", "good bold" if living else "text"))
    if by:
        left.append((f", grouped by {fit(by, 30)}", "muted"))
    right: Row = [("reading reports… ", "muted")] if reading else []
    return spread(left, right, width)


def footer(width: int, marked: int, living: bool = True) -> list[tuple[str, Row]]:
    """Return the keys that fit into the line, each with the action and its cells.

    Args:
        marked: how many runs are marked.
        living: whether the run at the cursor can be stopped.
    """
    out: list[tuple[str, Row]] = [("", [(" ", "text")])]
    for action in RUNS_ACTIONS:
        if not action.footer or (action is STOP_RUN and not living):
            continue
        label = f"{action.footer} {marked}" if action is COMPARE and marked > 1 else action.footer
        part: Row = [(action.shown, "accent bold"), (f" {label}   ", "muted")]
        if sum(row_width(row) for _, row in out) + row_width(part) > width:
            break
        out.append((action.name, part))
    return out


MAX_BELOW_SHARE = 4  # of the height, at most one part in so many is for lines below the runs


def below(lines: Sequence[str], width: int, height: int) -> list[Row]:
    """Return the rows below the runs: these lines, the first of which is a heading, as many as there is room for."""
    most = height // MAX_BELOW_SHARE
    kept = list(lines[:most]) if most > 1 else []
    if kept and len(kept) < len(lines):
        kept[-1] = f"  and {len(lines) - len(kept) + 1} more: trainmon ls"
    return [[(" " + fit(line, max(0, width - 1)), "muted")] for line in kept]


def empty(width: int) -> Row:
    """Return the line shown where there are no runs."""
    return [(" " + fit(EMPTY, max(0, width - 1)), "muted")]
