"""The phases one by one: how long they take, how that is spread, and what is usual in each role and stage."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import ClassVar

from textual.binding import BindingType

from monitor import units as fmt
from monitor.model.baseline import WARM_UP, WINDOW
from monitor.model.detail_rows import KindRow
from monitor.model.device_use import bound_in_words, busy_in_words
from monitor.model.report import Curve, PhaseRow, View
from monitor.tui.actions import screen_bindings
from monitor.tui.columns import across, fold_means, grid
from monitor.tui.lane import HOST_CLOCK, Lane, lane, two_lanes
from monitor.tui.panels.base import Look
from monitor.tui.panels.device_account import account_rows
from monitor.tui.panels.header import shown_rank
from monitor.tui.panels.phases import wall_account
from monitor.tui.panels.plot import steps_axis
from monitor.tui.panels.steps import silence
from monitor.tui.rows import Row, Span, column, cut, fit, flow, row_width, skyline, sparkline, text_width, wrap
from monitor.tui.screens.page import Body, PageScreen

_COLUMNS = ("share", "mean", "p50", "p95", "max", "steps", "clock")
_WIDTHS = (8, 10, 10, 10, 10, 9, 7)
_ALL = tuple(range(7))
_NARROW = (0, 1, 3)  # of them, where there is no room for all
_OF_STEPS = 5
_LEAST_CHART = 16
_MATTERS = 0.01  # of step time: a phase of less has no say in the scale of the histograms
_CLOSE = 1e-6  # of a cell: what arithmetic leaves of none
LEAST_COMB = 5  # cells: fewer are no comb, whatever lies between them
MOST_JOINED = 8  # cells
_MOST_ROWS = 4  # of a phase's line over the run
_NOTHING = Curve()
_SCALE = ("how many steps took how long, logarithmic scale", "steps by length, log scale", "log scale")


def _names(rows: list[PhaseRow]) -> int:
    return max(8, min(24, max(len(row.name) for row in rows)))


def _table(rows: list[PhaseRow], times: Lane, look: Look, width: int) -> list[Row]:
    names = _names(rows)
    shown = _shown(rows, width - names - 4)
    used = names + 3 + sum(_WIDTHS[index] for index in shown)
    room = width - used - 3 if times.distributions else 0
    title: Row = [(" " * (names + 3), "text")]
    title += [(column(_COLUMNS[index], _WIDTHS[index], right=True), "muted") for index in shown]
    low, high = _range(rows, times)
    shown_bars = {row.name: times.distributions.get(row.name, ()) for row in rows}
    wide = bin_cells([shown_bars[row.name] for row in _matter(rows)], low, high, max(1, room))
    room -= room % wide
    if room >= _LEAST_CHART:
        ends = _ends(rows, shown_bars, low, high)
        between = room - len(ends[0]) - len(ends[1])
        words = next((words for words in _SCALE if len(words) + 2 <= between), "")
        title.append((f"   {ends[0]}{words.center(between)}{ends[1]}", "muted"))
    out = [title]
    for row in rows:
        cells = (
            fmt.share(row.share), fmt.duration(row.mean), fmt.duration(row.p50), fmt.duration(row.p95),
            fmt.duration(row.max), f"{row.count:,}", row.clock,
        )  # fmt: skip
        line: Row = [(" ■ ", look.phases[row.name]), (column(row.name, names), "text")]
        for index in shown:
            line.append((column(cells[index], _WIDTHS[index], right=True), "text bold" if index == 0 else "text"))
        if room >= _LEAST_CHART:
            line += [("   ", "text"), _spread_or_side(row, shown_bars[row.name], (low, high), (room, wide), look)]
        out.append(line)
    return out


def _shown(rows: list[PhaseRow], room: int) -> tuple[int, ...]:
    """The columns for which there is room. A mean tells little without the number of steps where that is not all."""
    seldom = len({row.count for row in rows}) > 1
    ways = [_ALL, *([(*_NARROW, _OF_STEPS), (*_NARROW[:2], _OF_STEPS)] if seldom else []), _NARROW]
    return next((way for way in ways if sum(_WIDTHS[index] for index in way) <= room), _NARROW)


def _matter(rows: list[PhaseRow]) -> list[PhaseRow]:
    return [row for row in rows if row.share >= _MATTERS] or rows


def _range(rows: list[PhaseRow], times: Lane) -> tuple[float, float]:
    """The shortest and the longest time of the phases that matter: microseconds of others would take most of it."""
    told = [times.distributions.get(row.name, ()) for row in _matter(rows)]
    low = min((start for bars in told for start, count in bars if count), default=0.001)
    high = max((row.max for row in _matter(rows)), default=1.0)
    return low, max(high, low * 1.5)


def _ratio(bars: Sequence[tuple[float, int]]) -> float:
    """How much longer the times of a bar are than those of the one before."""
    return min((two / one for (one, _), (two, _) in pairwise(bars)), default=1.0)


def bin_cells(told: Iterable[Sequence[tuple[float, int]]], low: float, high: float, width: int) -> int:
    """The cells of a bin: as many as the widest bar of these phases needs, so that all bins are alike."""
    widest = max((math.log(_ratio(bars)) for bars in told), default=0.0)
    return max(1, min(width, MOST_JOINED, math.ceil(width / math.log(high / low) * widest - _CLOSE)))


def _ends(
    rows: list[PhaseRow], told: Mapping[str, Sequence[tuple[float, int]]], low: float, high: float
) -> tuple[str, str]:
    """What stands at the ends of the scale; it says so where a phase goes beyond one."""
    below = any(bars and bars[0][0] < low <= row.max for row in rows for bars in [told[row.name]])
    above = any(bars and bars[0][0] < high < row.max for row in rows for bars in [told[row.name]])
    return "up to " * below + fmt.duration(low), fmt.duration(high) + " and more" * above


def _spread_or_side(
    row: PhaseRow, bars: Sequence[tuple[float, int]], ends: tuple[float, float], cells: tuple[int, int], look: Look
) -> Span:
    """How often the phase took how long, or on which side of the scale all of it lies."""
    low, high = ends
    if row.max < low:
        words = f"all shorter than {fmt.duration(low)}", f"< {fmt.duration(low)}"
        return next((each for each in words if len(each) <= cells[0]), ""), "muted"
    if bars and bars[0][0] >= high:
        words = f"all longer than {fmt.duration(high)}", f"> {fmt.duration(high)}"
        return next((each for each in words if len(each) <= cells[0]), "").rjust(cells[0]), "muted"
    return spread_of(bars, low, high, *cells), look.phases[row.name]


def spread_of(bars: Sequence[tuple[float, int]], low: float, high: float, width: int, wide: int = 1) -> str:
    """How often the phase took how long: a bar a stretch of time, on a logarithmic scale that all phases share.

    What lies beyond an end of the scale is in the bin there.

    Args:
        wide: the cells of a bin.
    """
    bins = max(1, width // wide)
    counts = [0.0] * bins
    scale = bins / math.log(high / low)
    size = scale * math.log(_ratio(bars))
    for start, count in bars:
        begin = scale * math.log(max(start, 1e-300) / low)
        first = min(bins - 1.0, max(0.0, begin))
        last = min(bins - 0.001, max(first, begin + size))
        for at in range(int(first), int(last) + 1):  # a bar that reaches into several bins is shared out
            part = (min(at + 1.0, last) - max(float(at), first)) / (last - first) if last > first else 1.0
            counts[at] += part * count
    counts = _even(counts, max(1, MOST_JOINED // wide))
    top = max(counts, default=0.0)
    # The root makes single steps visible beside thousands.
    signs = [" " if not count else sparkline([math.sqrt(count / top)], 1, 1.0) for count in counts]
    return "".join(sign * wide for sign in signs).ljust(width)


def _even(counts: list[float], most: int) -> list[float]:
    """As fine as the values are: several bins as one, where else those that hold any would stand apart like a comb."""
    held = [at for at, count in enumerate(counts) if count]
    if len(held) < LEAST_COMB:
        return counts
    gaps = sorted(two - one for one, two in pairwise(held))
    size = min(most, gaps[len(gaps) * 3 // 4])  # of two heaps only the one gap between them is wide
    parts = [sum(counts[at : at + size]) for at in range(0, len(counts), size)]
    return [part for part in parts for _ in range(size)][: len(counts)]


def _kinds(kinds: tuple[KindRow, ...], look: Look, width: int, by: str = "") -> list[Row]:
    which = f"   medians of up to {WINDOW} latest steps{by}"
    rows: list[Row] = [[], [(" By role and stage", "text bold"), (which, "muted")]]
    names = [" / ".join(fit(part, 30) for part in (kind.role, kind.stage) if part) or "no role" for kind in kinds]
    wide = min(26, max(map(text_width, names)))
    for kind, name in zip(kinds, names, strict=True):
        row: Row = [
            (f"   {column(name, wide)}", "text bold"),
            (column(fmt.duration(kind.seconds), 10, right=True), "text"),
        ]
        rows.append([*row, ("  ", "text"), *cut([(_of_which(kind), "muted")], width - row_width(row) - 2)])
        parts = sorted(kind.phases.items(), key=lambda item: -item[1])
        words: list[Row] = [
            [("■ ", look.phases[phase]), (f"{fit(phase, 20)} {fmt.duration(seconds)}", "muted")]
            for phase, seconds in parts[:8]
            if seconds > 0
        ]
        rows += [[("     ", "text"), *line] for line in flow(words, width - 7, ("   ", "text"), limit=4)]
    return rows


def _of_which(kind: KindRow) -> str:
    """The steps of which the medians are."""
    steps = fmt.plural(kind.steps, "step", "steps")
    if not kind.window:
        return f"{steps}, too few for a median yet"
    if kind.steps - kind.window == WARM_UP:
        return f"{kind.window:,} of {steps} (the first {WARM_UP} left out)"
    return f"the latest {kind.window:,} of {steps}" if kind.steps != kind.window else steps


def _tall(phases: int, free: int) -> int:
    """Rows of a phase's line, of `free` for all of them: above one, each has a gap above it."""
    return max(1, min(_MOST_ROWS, (free + 1) // max(1, phases) - 1))


def over_the_run(rows: list[PhaseRow], times: Lane, look: Look, width: int, height: int = 0) -> list[Row]:
    """How each phase went as the run went on: between 0 and its longest stretch of steps, in a row each or more.

    Args:
        height: rows that there are for it.
    """
    names = _names(rows)
    gutter, tail = names + 4, 12
    layout = grid(times.step_seconds, width - gutter - tail)
    if layout is None or width - gutter - tail < _LEAST_CHART:
        return []
    means_of = f"means of {layout.steps:,} steps, each from 0 to the highest of them, at the right"
    each_one = "step by step, each from 0 to the longest, at the right"
    scale = cut([("   " + (means_of if layout.steps > 1 else each_one), "muted")], width - 14)
    out: list[Row] = [[], [(" Over the run", "text bold"), *scale]]
    drawn = [row for row in rows if times.phase_seconds.get(row.name, _NOTHING).x]
    tall = _tall(len(drawn), height - len(out) - 1)
    for row in drawn:
        means = across(fold_means(times.phase_seconds[row.name], layout), layout)
        top, tone = max(means), look.phases[row.name]
        head: Row = [(" ■ ", tone), (column(row.name, names), "text"), (" ", "text")]
        out += [[]] if tall > 1 and row is not drawn[0] else []
        highest, *others = skyline(means, tall, top)
        longest = column(fmt.duration(top), tail - 2, right=True)
        out.append([*head, (column(highest, width - gutter - tail), tone), (longest, "text")])
        out += [[(" " * gutter, "text"), (each, tone)] for each in others]
    return [*out, steps_axis(layout, gutter, width - gutter - tail)] if drawn else []


def _clocks(view: View, host: bool, width: int) -> list[Row]:
    return wrap([(f" {_clock_told(view, host)}", "muted")], width - 1, 8)


def _clock_told(view: View, host: bool) -> str:
    device = view.report.device
    if device is None:
        told = "no GPU was timed" if not view.details.gpus else "which GPU the training uses is not known"
        return f"clock: the host's; {told}"
    if device.clock is None:
        return "host clock: where Python was, not what the GPU did; no step was timed on the GPU"
    timed = fmt.plural(device.timed_steps, "step", "steps")
    if not two_lanes(view.report):
        return f"host clock: where Python was; {timed} timed on the GPU so far, too few to tell its phases"
    if host:
        return "host clock: where Python was, its waits for the GPU among it; h: GPU clock"
    return f"GPU clock: CUDA events in {timed}, which stand for all; h: host clock"


def _device(view: View, width: int) -> list[Row]:
    """How busy the GPU was, and what that leaves to be won."""
    device = view.report.device
    if device is None:
        return []
    bound = bound_in_words(device)
    told = f" {bound[0].upper()}{bound[1:]}: the GPU is {busy_in_words(device)} of the time in steps"
    if device.gain_limit is not None:
        told += f"; without any idle time at most {fmt.times(device.gain_limit)} as fast"
    return wrap([(told, "text")], width - 1, 6)


class Breakdown(Body):
    screen_name = "breakdown"
    title = "Phases"
    about = (
        "The share is of the time of all steps. The times are those of the steps in which a phase occurs: mean, median"
        " (p50), what 95 % of them stay below, and the longest. The bars at the right show how often it took how long,"
        " on one logarithmic scale for all phases of at least 1 % of the time; what others have beyond its ends stands"
        " there. Their height is the root of the number of steps. `other` is time inside a step in no phase.",
        "Steps of different roles and stages are compared each with their like; where there are several, their usual"
        " times stand below. On a GPU the times are the GPU's as far as events tell them (clock cuda), and h"
        " shows the host's. Over the run: a phase that grew, or that came and went, is seen there.",
    )

    has_lanes = True

    def data(self, view: View, look: Look) -> object:
        return (
            look.host,
            view.report.phases,
            view.report.host_phases,
            view.report.device,
            view.report.wall,
            view.step_seconds,
            view.phase_seconds,
            view.host_step_seconds,
            view.details.distributions,
            view.details.kinds,
            self._away,
        )

    def aside(self, view: View, look: Look) -> Row:
        steps = fmt.plural(view.report.progress.steps_done, "step", "steps")
        return [(steps + (f" of {rank}" if (rank := shown_rank(view.report)) else ""), "muted")]

    def everything(self, view: View, look: Look, width: int) -> list[Row]:
        if not view.report.phases:
            return silence(view, width, self.size.height)
        times = lane(view, look.host)
        ordered = sorted(times.rows, key=lambda row: -row.share)
        rows = [*_table(ordered, times, look, width), [], *_clocks(view, look.host, width), *_device(view, width)]
        if view.report.device is not None and not look.host:
            rows += account_rows(view.report.device, width)
        if view.details.kinds:
            rows += _kinds(view.details.kinds, look, width, f", {HOST_CLOCK}" if view.report.device is not None else "")
        rows += [[], *wall_account(view.report.wall, look, width)]
        return [*rows, *over_the_run(ordered, times, look, width, self.size.height - 1 - len(rows))]


class BreakdownScreen(PageScreen):
    BINDINGS: ClassVar[list[BindingType]] = [*screen_bindings("breakdown")]

    def __init__(self) -> None:
        super().__init__(Breakdown())
