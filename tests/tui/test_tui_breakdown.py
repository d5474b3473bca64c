"""The histograms of the phases: one scale, of the phases that matter, in bins of one width. Pure functions, no app."""

import math
from dataclasses import replace

import sample_views as views
from by_hand import text

from monitor import units
from monitor.model.report import PhaseRow
from monitor.model.steps.stack_samples import SampledPart, UnnamedTime
from monitor.tui.drawing.clock_lanes import lane
from monitor.tui.drawing.rows import row_width
from monitor.tui.panels.base import ViewOptions
from monitor.tui.screens import breakdown_screen


def phase(name: str, share: float, times: list[float]) -> tuple[PhaseRow, list[tuple[float, int]]]:
    """A phase's row, and how its times are spread, in bars of 2%."""
    held = [math.floor(math.log(time, 1.02)) for time in times]
    bars = [(1.02**place, held.count(place)) for place in range(min(held), max(held) + 1)]
    return PhaseRow(name, share, *[max(times)] * 4, clock="host", count=len(times)), bars


def test_the_scale_of_the_histograms_is_that_of_the_phases_that_matter(options: ViewOptions) -> None:
    slow, fast = [0.07 * 1.02**number for number in range(30)], [0.02 * 1.02**number for number in range(30)]
    parts = [phase("backward", 0.69, slow), phase("forward", 0.305, fast), phase("data", 0.0001, [3e-6, 4e-6]),
             phase("other", 0.002, [1e-5, 0.03]), phase("saved", 0.001, [3.0, 4.0])]  # fmt: skip
    view = views.running()
    view = replace(view, details=replace(view.details, distributions={row.name: bars for row, bars in parts}))
    rows = text(breakdown_screen._table([row for row, _ in parts], lane(view, False), options, 158)).split("\n")
    begin = rows[0].index("up to 20 ms")
    shown = {row.split()[1]: row[begin:] for row in rows[1:]}
    assert shown["data"].strip() == "all below 20 ms" and shown["saved"].strip() == "all above 124 ms"
    assert rows[0].endswith("124 ms") and "clock   up to 20 ms  " in rows[0], "a part of other is shorter"
    assert all(len(shown[name].replace(" ", "")) >= 20 for name in ("backward", "forward")), "not a few cells"
    assert len(shown["other"].replace(" ", "")) <= 6, "the short ones in the first bin"
    assert all(len(row) <= 158 for row in rows)
    narrow = breakdown_screen._table([row for row, _ in parts], lane(view, False), options, 98)
    assert all(row_width(row) <= 98 for row in narrow) and "all below 20 ms" in text(narrow)


def test_the_bins_of_a_histogram_are_equally_wide() -> None:
    apart = [(1.02**number, 5 if number % 9 == 0 else 0) for number in range(0, 91)]
    wide = breakdown_screen.bin_cells([apart], 1.0, 1.02**91, 150)
    assert wide == 2
    shown = breakdown_screen.spread_of(apart, 1.0, 1.02**91, 150, wide)
    assert {len(run) % wide for run in shown.split()} == {0}
    assert breakdown_screen.bin_cells([[]], 1.0, 2.0, 50) == 1


def test_a_histogram_reaches_to_the_maximum_and_has_no_comb(options: ViewOptions) -> None:
    view = views.running()
    shown = text(breakdown_screen._table(view.report.phases, lane(view, False), options, 158)).split("\n")
    longest = max(view.report.phases, key=lambda row: row.max)
    assert shown[0].endswith(units.duration(longest.max))
    few = [(1.5**number, 9) for number in range(6)]
    assert " " not in breakdown_screen.spread_of(few, 1.0, 1.5**6, 60), "bars of several cells fill them"
    ticked = [(1.02**number, 40 if number % 4 == 0 else 0) for number in range(40)]
    assert " " not in breakdown_screen.spread_of(ticked, 1.0, 1.02**40, 40), "finer than what was measured"
    apart = [(1.02**number, 20 if number < 8 or number > 32 else 0) for number in range(40)]
    assert breakdown_screen.spread_of(apart, 1.0, 1.02**40, 40).count(" ") > 20, "two heaps stay two"
    assert (
        breakdown_screen.spread_of([(0.01, 5)], 0.01, 0.015, 20).strip()
        and breakdown_screen.spread_of([], 1.0, 2.0, 5) == " " * 5
    )


def test_the_time_in_no_phase_is_shown_by_line_where_it_matters() -> None:
    view = views.running()
    seconds = 0.3 * view.report.wall.stepping
    fsync = SampledPart("log.py:14 (os.fsync) in write", "fsync", seconds, 0.3, 90, True, 0.001, 0.004)
    view = replace(view, report=replace(view.report, unnamed=UnnamedTime(seconds, 90, [fsync])))
    for width in (60, 158):
        rows = breakdown_screen._unnamed(view, width)
        assert all(row_width(row) <= width for row in rows)
    shown = text(rows)
    assert "fsync, log.py:14 (os.fsync) in write" in shown and "sampled, 90 looks" in shown
    assert "1.0 ms → 4.0 ms per step" in shown
    little = UnnamedTime(0.01 * view.report.wall.stepping, 90, [fsync])
    for nothing in (None, little):
        assert breakdown_screen._unnamed(replace(view, report=replace(view.report, unnamed=nothing)), 158) == []
