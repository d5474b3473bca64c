"""The list of runs as rows of text: columns that fit the width, groups above their members. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from monitor import units as fmt
from monitor.runs.fleet import Group
from monitor.runs.fleet import Row as RunRow
from monitor.tui.rows import Row, column, fit, row_width, spread, text_width

EMPTY = "no runs yet; start one: trainmon run -- python train.py"
STATES = {
    "running": ("● running", "good"),
    "finished": ("✔ finished", "muted"),
    "failed": ("✖ failed", "bad"),
    "killed": ("✖ killed", "bad"),
    "lost": ("? lost", "warning"),
}
UNSEEN = ("? ended", "warning")  # nobody saw its exit code: no word of success
STATE_WIDTH = 10
BEST_WIDTH = 26  # at least; it takes what is left over
MOST_STEPS = 26  # a million of a million
_INDENT = 2  # of a run below the head of its group
WORDS = {"highest": "max", "lowest": "min"}  # of its own values, and not of all runs
AGAINST = {"usual": "past runs"}  # what a speed is set against: the median of the finished runs of its command
FEW = 0.9  # of the expected speed: below it the share is shown as a warning


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
    of_group: Callable[[Group], str] = lambda group: ""


def lines(groups: Sequence[Group]) -> list[Line]:
    """What the list consists of, in order."""
    out = []
    for group in groups:
        if group.name is not None:
            out.append(Line(group))
        out += [Line(group, run) for run in group.rows]
    return out


def _total(run: RunRow) -> int | None:
    return (run.report.progress.steps_total if run.report is not None else None) or run.entry.steps_total


def _steps(run: RunRow) -> tuple[str, str]:
    entry = run.entry
    report = run.report
    done = report.progress.steps_done if report is not None else entry.step
    total = _total(run)
    if not done:
        return fmt.UNKNOWN, "muted"
    if not total:
        return f"{done:,}", "text"
    return f"{done:,}/{total:,} {fmt.share(min(1.0, done / total)):>5}", "text"


def _steps_width(runs: Sequence[RunRow]) -> int:
    """As many cells as the steps will ever need: a column does not move while they are counted."""
    totals = [_total(run) for run in runs]
    known = max((len(f"{total:,}/{total:,} 100 %") for total in totals if total), default=0)
    return min(MOST_STEPS, max(len("steps"), known, *(len(_steps(run)[0]) for run in runs)))


def _speed(run: RunRow) -> tuple[str, str]:
    if run.report is None:
        return fmt.pace(run.entry.steps_per_second), "text"
    whole, recent = run.report.throughput, run.report.throughput.recent
    tokens = (recent.tokens_per_second if run.living else None) or whole.tokens_per_second
    if tokens:
        return fmt.rate(tokens, "tok/s"), "text"
    return fmt.pace((recent.steps_per_second if run.living else None) or whole.steps_per_second), "text"


def _against(run: RunRow) -> tuple[str, str]:
    if run.speed_ratio is None:
        return "", "faint"
    return (
        f"{fmt.share(run.speed_ratio)} of {AGAINST.get(run.ratio_to, run.ratio_to)}",
        "warning" if run.speed_ratio < FEW else "muted",
    )


def _eta(run: RunRow) -> tuple[str, str]:
    return (fmt.age(run.eta), "text") if run.living else ("", "faint")


def _elapsed(run: RunRow) -> tuple[str, str]:
    return fmt.age(run.report.progress.elapsed_seconds if run.report is not None else None), "muted"


def _cost(run: RunRow) -> tuple[str, str]:
    return fmt.money(run.cost), "text" if run.cost is not None else "muted"


def _best(run: RunRow) -> tuple[str, str]:
    if run.best is None:
        return "", "faint"
    return f"{run.best.metric} {fmt.number(run.best.value)} ({WORDS[run.best.word]})", "text"


def _age(run: RunRow) -> tuple[str, str]:
    seconds = run.entry.age_seconds
    return (f"{fmt.age(max(0.0, seconds))} ago" if seconds is not None else fmt.UNKNOWN), "muted"


def _group_eta(group: Group) -> str:
    return fmt.age(group.eta()) if any(run.living for run in group.rows) else ""


def _group_best(group: Group) -> str:
    found = group.best
    if found is None or found.best is None:
        return ""
    return f"best: {found.entry.name}, {found.best.metric} {fmt.number(found.best.value)}"


_COLUMNS = (
    _Column("steps", MOST_STEPS, _steps),
    _Column("speed", 13, _speed),
    _Column("speed against", 17, _against),
    _Column("left", 11, _eta, _group_eta),
    _Column("elapsed", 11, _elapsed),
    _Column("cost", 9, _cost, lambda group: fmt.money(group.cost) if group.cost is not None else ""),
    _Column("started", 15, _age),
    _Column("best", BEST_WIDTH, _best, _group_best),
)
_FIRST = ("steps", "left", "speed", "best", "cost", "elapsed", "speed against", "started")  # what gets its place first
_LEFT = {"best"}  # columns of words


def layout(groups: Sequence[Group], width: int) -> tuple[int, list[_Column]]:
    """The width of the names, and the columns: those that fit, and of which any run has something to say."""
    runs = [run for group in groups for run in group.rows]
    longest = max((text_width(each.entry.name[:40]) for each in runs), default=0) + _INDENT
    rest = width - STATE_WIDTH - 6
    name = max(8, min(longest, 36, rest // 3))
    rest -= name
    chosen = set()
    columns = [replace(each, width=_steps_width(runs)) if each.head == "steps" else each for each in _COLUMNS]
    for each in sorted(columns, key=lambda each: _FIRST.index(each.head)):
        if each.width + 2 <= rest and any(each.cell(run)[0] not in ("", fmt.UNKNOWN) for run in runs):
            chosen.add(each.head)
            rest -= each.width + 2
    shown = [each for each in columns if each.head in chosen]
    more = min(rest, 36 - name, max(0, longest - name))
    wider = [replace(each, width=each.width + rest - more) if each.head == "best" else each for each in shown]
    return name + more, wider


def head(groups: Sequence[Group], width: int) -> Row:
    name, shown = layout(groups, width)
    told = "   " + column("run", name) + "  " + column("state", STATE_WIDTH)
    return [(told + "".join("  " + column(each.head, each.width, each.head not in _LEFT) for each in shown), "muted")]


def row(line: Line, placed: tuple[int, list[_Column]], here: bool, marked: Collection[Path]) -> Row:
    """One line of the list, laid out as `layout` says. Cursor and mark are characters: they show without colour."""
    weight = " bold" if here else ""
    pointer = "▸" if here else " "
    if line.run is None:
        return _group_row(line.group, placed, pointer, weight)
    name, shown = placed
    run = line.run
    mark = "*" if run.path in marked else " "
    unseen = run.entry.state == "finished" and run.entry.exit_code is None
    words, tone = UNSEEN if unseen else STATES.get(run.entry.state, ("?", "warning"))
    indent = " " * _INDENT if line.group.name is not None else ""
    out: Row = [(f"{pointer}{mark} ", "accent bold")]
    out.append((column(indent + run.entry.name, name), f"text{weight}"))
    out.append(("  " + column(words, STATE_WIDTH), f"{tone}{weight}"))
    for each in shown:
        text, tone = each.cell(run)
        out.append(("  " + column(text, each.width, each.head not in _LEFT), f"{tone}{weight}"))
    return out


def _group_row(group: Group, placed: tuple[int, list[_Column]], pointer: str, weight: str) -> Row:
    name, shown = placed
    states = [run.entry.state for run in group.rows]
    counts = ", ".join(f"{states.count(each)} {each}" for each in STATES if each in states)
    planned = f", {group.planned} planned" if group.planned else ""
    label = f"{group.name}: {fmt.plural(len(states), 'run', 'runs')}{planned}, {counts}"
    room = name + 2 + STATE_WIDTH
    out: Row = []
    for each in shown:
        told = each.of_group(group)
        if not out and not told:
            room += each.width + 2  # the label takes the room of columns that say nothing of a group
        else:
            out.append(("  " + column(told, each.width, each.head not in _LEFT), f"accent{weight}"))
    return [(f"{pointer}  ", "accent bold"), (column(label, room), f"accent{weight}"), *out]


def top(groups: Sequence[Group], reading: bool, width: int) -> Row:
    """The line above the list: how many there are."""
    everything = [run for group in groups for run in group.rows]
    living = sum(run.living for run in everything)
    left: Row = [(" trainmon ", "accent bold"), (f"{fmt.plural(len(everything), 'run', 'runs')}, ", "text")]
    left.append((f"{living} running", "good bold" if living else "text"))
    right: Row = [("reading reports… ", "muted")] if reading else []
    return spread(left, right, width)


def footer(width: int, marked: int, living: bool = True) -> Row:
    """
    Args:
        living: whether the run at the cursor can be stopped.
    """
    keys = [("Enter", "open"), ("Space", "mark"), ("c", f"compare {marked}" if marked > 1 else "compare")]
    keys += [("q", "quit"), *([("k", "stop")] if living else []), ("r", "replay"), ("t", "theme")]
    out: Row = [(" ", "text")]
    for key, label in keys:
        part: Row = [(key, "accent bold"), (f" {label}   ", "muted")]
        if row_width(out) + row_width(part) > width:
            break
        out += part
    return out


def empty(width: int) -> Row:
    return [(" " + fit(EMPTY, max(0, width - 1)), "muted")]
