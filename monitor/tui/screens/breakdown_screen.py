"""The phases screen: times, histograms, medians by role and stage, and each phase over the run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from monitor import units
from monitor.model.device.account_table import gain_text
from monitor.model.device.device_use import bound_text, busy_text
from monitor.model.report import PhaseRow, usual_shares
from monitor.model.steps.baseline import WARM_UP, WINDOW
from monitor.model.steps.series import Curve
from monitor.model.view import KindRow, View
from monitor.tui.drawing.clock_lanes import HOST_CLOCK, Lane, lane, two_lanes
from monitor.tui.drawing.curve_columns import across, fold_means, grid, top_limit
from monitor.tui.drawing.rows import Row, Span, column, cut, fit, flow, row_width, skyline, sparkline, text_width, wrap
from monitor.tui.panels.base import ViewOptions
from monitor.tui.panels.curve_panels import ABOVE, steps_axis
from monitor.tui.panels.header import shown_rank
from monitor.tui.panels.phases_panel import account_rows, iteration_rows, wall_account
from monitor.tui.panels.steps_panel import no_steps
from monitor.tui.screens.page import Body, screen

_COLUMNS = ("share", "mean", "p50", "p95", "max", "steps", "clock")
_WIDTHS = (8, 10, 10, 10, 10, 9, 7)
_ALL = tuple(range(7))
_NARROW = (0, 1, 3)  # columns shown if there is no room for all
_OF_STEPS = 5
_LEAST_CHART = 16
_MIN_SCALE_SHARE = 0.01  # of step time: smaller phases do not affect the scale of the histograms
_ROUNDING_CELLS = 1e-6  # cells: the rounding error of a difference of 0
MIN_COMB_BINS = 5  # filled bins: fewer show no comb pattern
MAX_JOINED_BINS = 8  # cells of a bin, at most
MAX_KIND_PHASES = 8  # of a role and stage
_MOST_ROWS = 4  # rows of a phase in the chart over the run
_MOST_PLACES = 5  # rows of the time in no phase
_NOTHING = Curve()
_SCALE = ("step count by duration, log scale", "count by duration, log", "log scale")


def _names(rows: list[PhaseRow]) -> int:
    return max(8, min(24, max(len(row.name) for row in rows)))


def _table(rows: list[PhaseRow], times: Lane, options: ViewOptions, width: int) -> list[Row]:
    names = _names(rows)
    shown = _shown(rows, width - names - 4)
    used = names + 3 + sum(_WIDTHS[index] for index in shown)
    room = width - used - 3 if times.distributions else 0
    title: Row = [(" " * (names + 3), "text")]
    title += [(column(_COLUMNS[index], _WIDTHS[index], right=True), "muted") for index in shown]
    low, high = _range(rows, times)
    shown_bars = {row.name: times.distributions.get(row.name, ()) for row in rows}
    wide = bin_cells([shown_bars[row.name] for row in _scale_rows(rows)], low, high, max(1, room))
    room -= room % wide
    if room >= _LEAST_CHART:
        ends = _ends(rows, shown_bars, low, high)
        between = room - len(ends[0]) - len(ends[1])
        words = next((words for words in _SCALE if len(words) + 2 <= between), "")
        title.append((f"   {ends[0]}{words.center(between)}{ends[1]}", "muted"))
    out = [title]
    shares = usual_shares(rows)
    for row in rows:
        cells = (
            units.share(shares[row.name]), units.duration(row.usual_mean), units.duration(row.p50),
            units.duration(row.p95), units.duration(row.max), f"{row.count:,}", row.clock,
        )  # fmt: skip
        line: Row = [(" ■ ", options.phases[row.name]), (column(row.name, names), "text")]
        for index in shown:
            line.append((column(cells[index], _WIDTHS[index], right=True), "text bold" if index == 0 else "text"))
        if room >= _LEAST_CHART:
            line += [("   ", "text"), _spread_or_side(row, shown_bars[row.name], (low, high), (room, wide), options)]
        out.append(line)
    return out


def _shown(rows: list[PhaseRow], room: int) -> tuple[int, ...]:
    """Return the columns that fit; the step count is among them if phases differ in it, since means depend on it."""
    counts_differ = len({row.count for row in rows}) > 1
    ways = [_ALL, *([(*_NARROW, _OF_STEPS), (*_NARROW[:2], _OF_STEPS)] if counts_differ else []), _NARROW]
    return next((way for way in ways if sum(_WIDTHS[index] for index in way) <= room), _NARROW)


def _scale_rows(rows: list[PhaseRow]) -> list[PhaseRow]:
    return [row for row in rows if row.share >= _MIN_SCALE_SHARE] or rows


def _range(rows: list[PhaseRow], times: Lane) -> tuple[float, float]:
    """Return the shortest and the longest time of the larger phases: tiny ones would take most of the scale."""
    histograms = [times.distributions.get(row.name, ()) for row in _scale_rows(rows)]
    low = min((start for bars in histograms for start, count in bars if count), default=0.001)
    high = max((row.max for row in _scale_rows(rows)), default=1.0)
    return low, max(high, low * 1.5)


def _ratio(bars: Sequence[tuple[float, int]]) -> float:
    """Return the ratio of the times of neighboring bars."""
    return min((two / one for (one, _), (two, _) in pairwise(bars)), default=1.0)


def bin_cells(histograms: Iterable[Sequence[tuple[float, int]]], low: float, high: float, width: int) -> int:
    """Return the cells of a bin: what the widest bar of these phases needs, the same for all bins."""
    widest = max((math.log(_ratio(bars)) for bars in histograms), default=0.0)
    return max(1, min(width, MAX_JOINED_BINS, math.ceil(width / math.log(high / low) * widest - _ROUNDING_CELLS)))


def _ends(
    rows: list[PhaseRow], histograms: Mapping[str, Sequence[tuple[float, int]]], low: float, high: float
) -> tuple[str, str]:
    """Return the labels of the scale's ends, which say so if a phase goes beyond."""
    below = any(bars and bars[0][0] < low <= row.max for row in rows for bars in [histograms[row.name]])
    above = any(bars and bars[0][0] < high < row.max for row in rows for bars in [histograms[row.name]])
    return "up to " * below + units.duration(low), units.duration(high) + " or more" * above


def _spread_or_side(
    row: PhaseRow,
    bars: Sequence[tuple[float, int]],
    ends: tuple[float, float],
    cells: tuple[int, int],
    options: ViewOptions,
) -> Span:
    """Return the histogram of a phase; if all of it is beyond the scale, words that say so."""
    low, high = ends
    if row.max < low:
        words = f"all below {units.duration(low)}", f"< {units.duration(low)}"
        return next((word for word in words if len(word) <= cells[0]), ""), "muted"
    if bars and bars[0][0] >= high:
        words = f"all above {units.duration(high)}", f"> {units.duration(high)}"
        return next((word for word in words if len(word) <= cells[0]), "").rjust(cells[0]), "muted"
    return spread_of(bars, low, high, *cells), options.phases[row.name]


def spread_of(bars: Sequence[tuple[float, int]], low: float, high: float, width: int, wide: int = 1) -> str:
    """Return a histogram on the logarithmic scale that all phases share; values beyond an end count in its bin.

    Args:
        bars: start in seconds and count of each bar.
        low, high: the ends of the scale in seconds.
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
        for at in range(int(first), int(last) + 1):  # a bar over several bins is split among them
            part = (min(at + 1.0, last) - max(float(at), first)) / (last - first) if last > first else 1.0
            counts[at] += part * count
    counts = _without_comb(counts, max(1, MAX_JOINED_BINS // wide))
    top = max(counts, default=0.0)
    # The square root makes single steps visible beside thousands.
    signs = [" " if not count else sparkline([math.sqrt(count / top)], 1, 1.0) for count in counts]
    return "".join(sign * wide for sign in signs).ljust(width)


def _without_comb(counts: list[float], most: int) -> list[float]:
    """Return the counts with up to `most` bins joined if the values are too coarse for the bins (a comb pattern)."""
    held = [at for at, count in enumerate(counts) if count]
    if len(held) < MIN_COMB_BINS:
        return counts
    gaps = sorted(two - one for one, two in pairwise(held))
    size = min(most, gaps[len(gaps) * 3 // 4])  # two clusters have only one wide gap between them
    parts = [sum(counts[at : at + size]) for at in range(0, len(counts), size)]
    return [part for part in parts for _ in range(size)][: len(counts)]


def _kinds(kinds: tuple[KindRow, ...], options: ViewOptions, width: int, by: str = "") -> list[Row]:
    which = f"   medians, up to {WINDOW} latest steps{by}"
    rows: list[Row] = [[], [(" By role and stage", "text bold"), (which, "muted")]]
    names = [" / ".join(fit(part, 30) for part in (kind.role, kind.stage) if part) or "no role" for kind in kinds]
    wide = min(26, max(map(text_width, names)))
    for kind, name in zip(kinds, names, strict=True):
        row: Row = [
            (f"   {column(name, wide)}", "text bold"),
            (column(units.duration(kind.seconds), 10, right=True), "text"),
        ]
        rows.append([*row, ("  ", "text"), *cut([(_of_which(kind), "muted")], width - row_width(row) - 2)])
        shown = sorted(kind.phases, key=lambda phase: -kind.phases[phase])[:MAX_KIND_PHASES]
        words: list[Row] = [
            [("■ ", options.phases[phase]), (f"{fit(phase, 20)} {units.duration(seconds)}", "muted")]
            for phase, seconds in kind.phases.items()
            if seconds > 0 and phase in shown
        ]
        rows += [[("     ", "text"), *line] for line in flow(words, width - 7, ("   ", "text"), limit=4)]
    return rows


def _of_which(kind: KindRow) -> str:
    """Return the words for the steps behind the medians."""
    steps = units.plural(kind.steps, "step", "steps")
    if not kind.window:
        return f"{steps}, too few for a median"
    if kind.steps - kind.window == WARM_UP:
        return f"{kind.window:,} of {steps} (first {WARM_UP} excluded)"
    return f"the latest {kind.window:,} of {steps}" if kind.steps != kind.window else steps


def _tall(phases: int, free: int) -> int:
    """Return the rows of each phase, out of `free` for all; with more than one row there is a gap between phases."""
    return max(1, min(_MOST_ROWS, (free + 1) // max(1, phases) - 1))


def over_the_run(rows: list[PhaseRow], times: Lane, options: ViewOptions, width: int, height: int = 0) -> list[Row]:
    """Return a chart of each phase over the run, scaled from 0 to its maximum; empty if there is no room.

    Args:
        height: rows for all charts; one row per phase if fewer.
    """
    names = _names(rows)
    gutter, tail = names + 4, 12
    layout = grid(times.step_seconds, width - gutter - tail)
    if layout is None or width - gutter - tail < _LEAST_CHART:
        return []
    drawn = [row for row in rows if times.phase_seconds.get(row.name, _NOTHING).x]
    means = {row.name: across(fold_means(times.phase_seconds[row.name], layout), layout) for row in drawn}
    tops = {name: min(max(values), top_limit(values)) for name, values in means.items()}
    beyond = f", {ABOVE} beyond it" * any(tops[name] < max(values) for name, values in means.items())
    of = f"means of {layout.steps:,} steps" if layout.steps > 1 else "single steps"
    scale = cut([(f"   {of}; scale 0 to max (right){beyond}", "muted")], width - 14)
    out: list[Row] = [[], [(" Over the run", "text bold"), *scale]]
    tall = _tall(len(drawn), height - len(out) - 1)
    for row in drawn:
        longest, top, tone = max(means[row.name]), tops[row.name], options.phases[row.name]
        head: Row = [(" ■ ", tone), (column(row.name, names), "text"), (" ", "text")]
        out += [[]] if tall > 1 and row is not drawn[0] else []
        highest, *others = skyline(means[row.name], tall, top)
        end = column(f"{ABOVE} " * (top < longest) + units.duration(longest), tail - 2, right=True)
        out.append([*head, (column(highest, width - gutter - tail), tone), (end, "text")])
        out += [[(" " * gutter, "text"), (line, tone)] for line in others]
    return [*out, steps_axis(layout, gutter, width - gutter - tail)] if drawn else []


def _unnamed(view: View, width: int) -> list[Row]:
    """Return the unnamed time by lines of the program; empty where it is little or not sampled."""
    account = view.report.unnamed
    if account is None or not account.matters(view.report.wall.stepping):
        return []
    measured = f"   {units.duration(account.seconds)}; places sampled, {account.looks:,} looks"
    rows: list[Row] = [[], cut([(" Unnamed time", "text bold"), (measured, "muted")], width - 1)]
    for part in account.parts[:_MOST_PLACES]:
        name = ", ".join(filter(None, (part.activity, part.place))) or "elsewhere"
        line: Row = [(column(units.share(part.share), 8, right=True), "text bold"), ("  ", "text"), (name, "text")]
        if part.grows:
            grown = f"growing, {units.duration(part.early)} → {units.duration(part.late)} per step"
            line.append((f"   {grown}", "muted"))
        rows.append(cut(line, width - 1))
    return rows


def _clocks(view: View, host: bool, width: int) -> list[Row]:
    return wrap([(f" {_clock_note(view, host)}", "muted")], width - 1, 8)


def _clock_note(view: View, host: bool) -> str:
    device = view.report.device
    if device is None:
        why = "no GPU timed" if not view.details.gpus else "GPU of the training unknown"
        return f"clock: host ({why})"
    if device.clock is None:
        return "host clock: Python time, not GPU time; no step timed on the GPU"
    timed = units.plural(device.timed_steps, "step", "steps")
    if not two_lanes(view.report):
        return f"host clock: Python time; {timed} timed on the GPU, too few for GPU phases"
    if host:
        return "host clock: Python time, waits for the GPU included; h: GPU clock"
    return f"GPU clock: CUDA events in {timed}, weighted to all steps; h: host clock"


def _device(view: View, width: int) -> list[Row]:
    """Return how busy the GPU was, and the possible speedup."""
    device = view.report.device
    if device is None:
        return []
    bound = bound_text(device)
    text = f" {bound[0].upper()}{bound[1:]}: GPU {busy_text(device)} of step time"
    if gain := gain_text(device):
        text += f"; {gain}"
    return wrap([(text, "text")], width - 1, 6)


@screen
class Breakdown(Body):
    screen_name = "breakdown"
    title = "Phases"
    about = (
        "Shares are of the time of all steps; times (mean, median, 95th percentile, max) are of the steps in which a"
        " phase occurs. The histograms at the right share one logarithmic scale for all phases of at least 1% of the"
        " time; values beyond its ends are counted at the ends, and heights are square roots of counts. `other` is time"
        " inside a step in no phase.",
        "Steps are compared within their role and stage; with several, the typical times of each follow below. On a GPU"
        " the times are GPU times where events exist (clock cuda); h shows host times. Over the run shows phases that"
        " grew, started or ended. An iteration of reinforcement learning is the rollout and the steps that learn from"
        " it: the mean of the recent ones, a bar for each role, which take turns.",
    )

    has_lanes = True

    def data(self, view: View, options: ViewOptions) -> object:
        return (
            options.host,
            view.report.phases,
            view.report.host_phases,
            view.report.device,
            view.report.wall,
            view.report.unnamed,
            view.report.cycle,
            view.step_seconds,
            view.phase_seconds,
            view.host_step_seconds,
            view.details.distributions,
            view.details.kinds,
            self._away,
        )

    def aside(self, view: View, options: ViewOptions) -> Row:
        steps = units.plural(view.report.progress.steps_done, "step", "steps")
        return [(steps + (f" of {rank}" if (rank := shown_rank(view.report)) else ""), "muted")]

    def everything(self, view: View, options: ViewOptions, width: int) -> list[Row]:
        if not view.report.phases:
            return no_steps(view, width, self.size.height)
        times = lane(view, options.host)
        rows = [
            *_table(times.rows, times, options, width),
            [],
            *_clocks(view, options.host, width),
            *_device(view, width),
        ]
        if view.report.device is not None and not options.host:
            rows += account_rows(view.report.device, width)
        if view.details.kinds:
            rows += _kinds(
                view.details.kinds, options, width, f", {HOST_CLOCK}" if view.report.device is not None else ""
            )
        cycle = iteration_rows(view.report, options, width)
        rows += [[], *cycle] if cycle else []
        rows += [[], *wall_account(view.report.wall, options, width), *_unnamed(view, width)]
        return [*rows, *over_the_run(times.rows, times, options, width, self.size.height - 1 - len(rows))]
