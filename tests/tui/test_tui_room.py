"""What has a place on a screen of a given size, and what says that there is more. Pure functions, no app."""

import re
from dataclasses import replace

import pytest
import sample_views as views

from monitor.model.device.throttle_watch import ThrottleEvent
from monitor.model.report import Outcome, RankRow
from monitor.model.steps.series import Curve
from monitor.model.view import KindRow, OpenWork
from monitor.tui.drawing import step_marks
from monitor.tui.drawing.clock_lanes import lane
from monitor.tui.drawing.layout import place
from monitor.tui.drawing.rows import Row, row_width
from monitor.tui.drawing.themes import FILL
from monitor.tui.panels import alerts_panel, header, machine_panel, phases_panel, ranks_panel, steps_panel
from monitor.tui.panels.base import ViewOptions
from monitor.tui.screens import breakdown_screen, charts_screen, ranks_screen, setup_screen


def text(rows: list[Row]) -> str:
    return "\n".join("".join(part for part, _ in row) for row in rows)


def test_where_the_time_goes_says_that_there_is_more(options: ViewOptions) -> None:
    panel = phases_panel.Phases("phases")
    shown = text(panel.body(views.running(), options, 38, 4))
    assert "between steps" not in shown and shown.endswith("↓")
    assert "2.42 s   14% 2.74 s" in shown, "the arrow has a place of its own"
    panel.scroll_rows(4)
    below = text(panel.body(views.running(), options, 38, 4))
    assert "between steps" in below and "generation " not in below
    assert "↓" not in text(panel.body(views.running(), options, 38, 30))
    narrow = text(phases_panel.Phases("phases").body(views.running(), options, 20, 2))
    assert "59%" in narrow and "14% ↓" in narrow, "a number is never cut for the arrow"


def test_the_time_that_is_left_finds_a_place_on_a_small_screen(options: ViewOptions) -> None:
    view = replace(views.running(), open=OpenWork())
    for width in (60, 80):
        _, numbers, _, fix = text(header.header(view, options, width, 4)).split("\n")
        assert "20.9 s/it  ·  365 tok/s  ·  ETA 1 h 48 min – 2 h 5 min" in numbers and "→" in fix
    _, numbers, doing = text(header.header(view, options, 60, 3)).split("\n")
    assert "ETA" not in numbers and "between steps  ·  ETA 1 h 48 min – 2 h 5 min" in doing
    _, numbers, doing = text(header.header(views.running(), options, 60, 3)).split("\n")
    assert "steps 20.9 s/it  ·  ETA 1 h 48 min" in numbers and "ETA" not in doing, "before other speeds"
    assert all(row_width(row) < 60 for row in header.header(view, options, 60, 3)[1:3]), "it does not touch the edge"
    assert "ETA" not in text(header.header(views.ended("finished", 0), options, 50, 4))


def test_a_run_that_has_ended_has_cost_what_it_cost(options: ViewOptions) -> None:
    assert "of about $7.57" in text(header.header(views.running(), options, 160, 8))
    ended = replace(views.running(), report=replace(views.running().report, outcome=Outcome("finished", 0)))
    told = text(header.header(ended, options, 160, 8))
    assert "$2.75" in told and "of about" not in told


def test_the_memory_of_many_gpus_is_told_with_its_limit_where_there_is_room(options: ViewOptions) -> None:
    gpus = views.running(gpus=8).report.gpus
    assert "80–87% busy  61–68 of 139 GiB" in text(machine_panel.gpu_ranges(gpus, 45))
    narrow = text(machine_panel.gpu_ranges(gpus, 36))
    assert "61–68 GiB" in narrow and "of 139" not in narrow
    unlike = [replace(gpus[0], memory_total=None), *gpus[1:]]
    assert "of 139" not in text(machine_panel.gpu_ranges(unlike, 60))


def test_letters_over_the_steps_are_explained_in_a_single_row_too(options: ViewOptions) -> None:
    layers = {"generation": [2.0], "execution": [1.0]}
    of = [step_marks.SLOW, step_marks.BOTH, step_marks.EVAL, step_marks.CHECKPOINT]
    assert text(steps_panel.legend(options, layers, of, 32, 1)) == "▲ slow  C saved  E eval  B both"
    assert text(steps_panel.legend(options, layers, of[1:], 32, 1)) == "C checkpoint  E eval  B both"
    alone = text(steps_panel.legend(options, layers, [step_marks.BOTH], 44, 1))
    assert alone == "B checkpoint and evaluation  ■ generation"
    assert text(steps_panel.legend(options, layers, (), 30, 1)) == "■ generation  ■ execution"


def test_a_legend_tells_phases_then_signs_and_first_what_is_large_enough_to_be_drawn(options: ViewOptions) -> None:
    layers = {"data": [0.01] * 9, "optimizer": [0.0] * 8 + [0.05], "generation": [2.0] * 9, "execution": [1.0] * 9}
    rows = steps_panel.legend(options, layers, [step_marks.SLOW, step_marks.EVAL], 60, 2, 0.03)
    assert text(rows) == ("■ data  ■ optimizer  ■ generation  ■ execution  ▲ slow step\nE evaluation")
    narrow = text(steps_panel.legend(options, layers, [step_marks.SLOW, step_marks.EVAL, step_marks.CHECKPOINT], 34, 2))
    assert narrow == "■ data  ■ generation  ■ execution\n▲ slow step  C checkpoint  E eval"


def test_signs_over_the_steps_are_explained_where_there_is_no_room_for_a_legend(options: ViewOptions) -> None:
    shown = text(steps_panel.chart(views.throttled(), options, 60, 4)).split("\n")
    assert shown[-1].split() == ["step", "1", "▲", "slow", "C", "saved", "E", "eval", "214"]
    assert "▲" not in text(steps_panel.chart(views.throttled(), options, 34, 4)).split("\n")[-1], "no room for them"


async def test_the_title_says_of_how_many_steps_a_bar_is_the_mean(app_on, screen_text) -> None:
    for size, words in (((160, 45), "bar = mean of 3 steps"), ((80, 24), "mean of")):
        async with app_on(views.running()).run_test(size=size) as pilot:
            await pilot.pause()
            title = next(line for line in screen_text(pilot.app).split("\n") if " 1 Step time" in line)
            assert words in title
        async with app_on(views.running(20)).run_test(size=size) as pilot:
            await pilot.pause()
            assert "mean of" not in screen_text(pilot.app), "a bar is a step"


def test_phases_are_drawn_over_the_run_each_on_a_scale_of_its_own(options: ViewOptions) -> None:
    view = views.running()
    rows = text(breakdown_screen.over_the_run(view.report.phases, view, options, 158)).split("\n")
    shown = next(line for line in rows if "■ generation" in line)
    assert "█" in shown and shown.endswith(" s"), "the stretch with the longest, and how long that is"
    assert "step 1" in rows[-1] and "214" in rows[-1]
    assert rows[1] == " Over the run   means of 2 steps; scale 0 to max (right), ▴ beyond it"
    short = text(breakdown_screen.over_the_run(view.report.phases, views.running(20), options, 158)).split("\n")
    assert short[1] == " Over the run   single steps; scale 0 to max (right)"
    assert breakdown_screen.over_the_run(view.report.phases, view, options, 40) == [], "no room for a line"
    fresh = replace(view, phase_seconds={}, step_seconds=Curve())
    assert breakdown_screen.over_the_run(view.report.phases, fresh, options, 158) == []


@pytest.mark.parametrize("height", range(4, 60))
def test_phases_over_the_run_are_higher_where_there_is_room(options: ViewOptions, height: int) -> None:
    view = views.running()
    rows = text(breakdown_screen.over_the_run(view.report.phases, view, options, 158, height)).split("\n")
    phases_ = sum("■" in row for row in rows[2:-1])
    tall = sum(any(sign in row for sign in "▁▂▃▄▅▆▇█") for row in rows) / phases_
    assert len(rows) <= max(height, phases_ + 3) and all(len(row) <= 158 for row in rows)
    assert tall == 4 if height >= 5 * phases_ + 2 else tall >= 1
    assert rows[-1].strip().startswith("step 1")


def test_a_phase_that_did_not_occur_leaves_a_gap_over_the_run(options: ViewOptions) -> None:
    view = views.running(6)
    seldom = {"generation": Curve(x=[3.0], mean=[2.0], low=[2.0], high=[2.0])}
    row = next(phase for phase in view.report.phases if phase.name == "generation")
    [_, _, line, _] = breakdown_screen.over_the_run([row], replace(view, phase_seconds=seldom), options, 60)
    drawn = "".join(part for part, _ in line)
    assert drawn.count("█") == len(drawn[drawn.index("█") : drawn.rindex("█") + 1]) and "2.00 s" in drawn


@pytest.mark.parametrize(
    ("steps", "window", "told"),
    [(67, 64, "64 of 67 steps (first 3 excluded)"), (40, 40, "40 steps"),
     (900, 128, "the latest 128 of 900 steps"),
     (2, 0, "2 steps, too few for a median")],
)  # fmt: skip
def test_the_medians_of_a_role_say_which_steps_they_leave_out(
    options: ViewOptions, steps: int, window: int, told: str
) -> None:
    rows = text(breakdown_screen._kinds((KindRow("trainer", "2", steps, window, 21.0, {}),), options, 118)).split("\n")
    assert rows[2].endswith(f"  {told}") and rows[1].endswith("medians, up to 128 latest steps")


@pytest.mark.parametrize("width", [58, 78, 118, 158])
def test_a_phase_of_some_steps_says_of_how_many_at_every_width(options: ViewOptions, width: int) -> None:
    view = views.running()
    heads = text(breakdown_screen._table(view.report.phases, lane(view, False), options, width)).split("\n")[0]
    assert "steps" in heads and len(heads) <= width
    alike = [replace(row, count=214) for row in view.report.phases]
    assert ("steps" in text(breakdown_screen._table(alike, lane(view, False), options, width)).split("\n")[0]) == (
        width >= 118
    )
    assert breakdown_screen.Breakdown().aside(views.many_ranks(), options) == [("214 steps of rank 0", "muted")]


@pytest.mark.parametrize("width", [58, 78, 118])
def test_the_usual_phases_of_a_role_keep_their_times(options: ViewOptions, width: int) -> None:
    phases_ = {f"phase number {index}": 1.0 + index for index in range(6)}
    rows = breakdown_screen._kinds((KindRow("trainer", "2", 40, 40, 21.0, phases_),), options, width)
    shown = text(rows)
    assert all(f"{name} {seconds:.2f} s" in shown for name, seconds in phases_.items()) and "…" not in shown
    assert all(row_width(row) <= width for row in rows)


def test_findings_among_the_alerts_are_told_apart_from_them(options: ViewOptions) -> None:
    view = views.running()
    quiet = replace(view, report=replace(view.report, alerts=[], slow_steps=[]))
    panel = alerts_panel.Alerts("alerts")
    assert "no alerts; other findings:\n▌ " in text(panel.everything(quiet, options, 158))
    calm = replace(quiet, report=replace(quiet.report, findings=[]))
    assert "no alerts" in (shown := text(panel.everything(calm, options, 158))) and "found" not in shown


def test_a_figure_of_the_host_comes_before_a_picture_of_another() -> None:
    host = views.running().report.host
    tight, roomy = text(machine_panel.host_rows(host, 62)), text(machine_panel.host_rows(host, 90))
    assert all(word in tight and word in roomy for word in ("load 6.2", "9 processes", "free 211 GiB"))
    assert "━" in roomy and "━" not in tight


def test_a_row_for_each_gpu_only_where_the_host_has_its_rows_too() -> None:
    view = views.running(gpus=8)
    for height in (5, 8, 11, 12, 20):
        rows = machine_panel.machine_rows(view, 60, height)
        assert ("GPU 7" in text(rows)) == (height >= 12)
        assert len(rows) <= max(6, height), "nothing has to be scrolled to"


def test_the_clock_of_a_gpu_gives_way_to_nothing_but_its_limit_does() -> None:
    [gpu] = views.running().report.gpus
    assert "1,785 MHz of 1,980" in text(machine_panel.gpu_block(gpu, [], 60))
    tight = text(machine_panel.gpu_block(gpu, [], 45))
    assert "1,785 MHz" in tight and "of 1,980" not in tight


def test_what_rounding_leaves_of_a_time_is_none(options: ViewOptions) -> None:
    report = views.running().report
    report = replace(report, wall=replace(report.wall, between_steps=1e-12))
    [*_, between] = phases_panel.lines(report, options)
    assert between.cells == ("0 s", "", "–")
    assert "between" not in text(phases_panel.wall_account(report.wall, options, 60))


def test_the_shares_of_a_step_are_those_of_its_phases(options: ViewOptions) -> None:
    *inside, between = phases_panel.lines(views.running().report, options)
    assert sum(float(line.cells[1].rstrip("%")) for line in inside) == pytest.approx(100, abs=1.5)
    assert between.cells[:2] == ("310 ms", ""), "it is no part of a step; the bar of the whole run has its share"


@pytest.mark.parametrize(
    ("width", "lines", "words"),
    [
        (98, 2, ["start-up", "steps", "eval", "checkpoint", "between steps"]),
        (50, 1, ["steps", "between steps", "3 more"]),
        (33, 2, ["start-up", "steps", "between steps", "2 more"]),
    ],
)
def test_the_parts_of_the_whole_run_stand_in_the_order_of_its_bar_and_none_is_dropped_without_a_word(
    options: ViewOptions, width: int, lines: int, words: list[str]
) -> None:
    title, bar, *below = phases_panel.wall_account(views.running().report.wall, options, width, lines)
    told = [name.strip() for row in below for name, tone in row if tone == "muted" and name.strip(" ■")]
    assert told == words and len(below) <= lines
    assert text([title]) == " wall time 1 h 6 min"
    tones = [tone for row in below for name, tone in row if name == "■ "]
    drawn = [tone.removesuffix(FILL) for _, tone in bar[1:]]
    assert width < 98 or drawn == [tone for tone in tones if tone in drawn], "and each part has its own color"


def test_who_is_slowest_is_told_once_on_the_overview(options: ViewOptions) -> None:
    view = views.eight_ranks()
    assert view.verdict.code == "straggler" and "slowest" not in text(phases_panel.breakdown(view, options, 80, 20))
    other = replace(view, verdict=replace(view.verdict, code="input-bound"))
    assert "slowest" in text(phases_panel.breakdown(other, options, 80, 20))


@pytest.mark.parametrize("height", [30, 33, 38, 44, 52])
def test_small_charts_are_alike(options: ViewOptions, height: int) -> None:
    curve = Curve([1.0, 2.0], [0.5, 0.6], [0.5, 0.6], [0.5, 0.6])
    names = [f"metric {number}" for number in range(12)]
    view = replace(views.running(), metrics=dict.fromkeys(names, curve))
    rows = text(charts_screen.Charts().body(view, options, 118, height)).split("\n")
    below = {rows[at + 1].strip()[:4] == "last" for at, row in enumerate(rows) if "metric " in row}
    assert len(below) == 1 and len(rows) == height


@pytest.mark.parametrize(("width", "whole"), [(98, 47), (78, 39), (40, 20)])
def test_the_name_of_a_setting_is_cut_only_where_its_value_needs_the_room(width: int, whole: int) -> None:
    assert setup_screen.names_width(["x" * whole], width) >= min(whole, width * 2 // 5)
    assert setup_screen.names_width(["x" * 200], width) <= max(width * 2 // 5, width - setup_screen.MIN_VALUE_WIDTH)
    assert setup_screen.names_width([], width) <= setup_screen.MIN_NAMES_WIDTH
    names = setup_screen.names_width(["x" * whole], width)
    rows = setup_screen.setting("x" * names, [("value " * 40, "text")], width, names, 8)
    assert all(row_width(row) <= width for row in rows) and len(rows) <= 8
    assert {text([row]).index("value") for row in rows} == {names + 4}, "values stand below each other"


@pytest.mark.parametrize(("number", "most", "rows"), [(5, 4, [3, 2]), (4, 4, [4]), (9, 4, [3, 3, 3]), (6, 4, [3, 3])])
def test_no_small_chart_stands_alone_below_others(number: int, most: int, rows: list[int]) -> None:
    lines, each = charts_screen.chart_grid(number, most)
    assert [min(each, number - each * line) for line in range(lines)] == rows


def test_the_bars_of_the_phases_keep_their_length_from_frame_to_frame(options: ViewOptions) -> None:
    def bars(**changes: float) -> list[str]:
        report = views.running().report
        table = phases_panel.lines(replace(report, wall=replace(report.wall, **changes)), options)
        return [
            line.rstrip() for line in text([row[:3] for row in phases_panel.phase_rows(table, 63)]).split("\n")[:-1]
        ]

    assert bars(between_steps=0.01) == bars(between_steps=9.0) == bars(between_steps=400.0)


def test_a_phase_of_few_steps_says_of_how_many(options: ViewOptions) -> None:
    report = views.running().report
    seldom = [replace(row, count=12) if row.name == "test_generation" else row for row in report.phases]
    table = phases_panel.lines(replace(report, phases=seldom), options)
    wordings = ((98, "in 12 of 214 steps"), (63, "in 12 of 214"), (50, "██▌ in 12"), (45, "test_gen… in 12 █"))
    for width, words in (*wordings, (38, "test_gen… in 12")):
        rows = phases_panel.phase_rows(table, width)
        shown = text(rows)
        assert words in shown and shown.count("12 of 214") <= 1, width
        assert len({row_width(row) for row in rows}) == 1


def test_ranks_take_their_place_where_there_are_several(options: ViewOptions) -> None:
    panel = ranks_panel.Ranks("ranks")
    assert panel.has_place(views.many_ranks(), options) and not panel.has_place(views.running(), options)
    rows = ranks_panel.by_interest(views.many_ranks().report.ranks, 37)
    assert [row.rank for row in rows[:3]] == [37, 0, 9], "those for whom the others wait come first"
    assert {"alerts", "console", "ranks"} <= set(place(160, 45))


def test_whose_figures_these_are_is_said_where_there_are_several_ranks(options: ViewOptions) -> None:
    panels = (phases_panel.Phases("phases"), steps_panel.Steps("steps"))
    assert all(panel.heading(views.many_ranks(), options).endswith(", rank 0") for panel in panels)
    assert not any("rank" in panel.heading(views.running(), options) for panel in panels)
    gpus = machine_panel.Machine("machine")
    assert text([gpus.aside(views.many_ranks(), options)]) == "8 GPUs visible, 64 ranks"
    assert gpus.aside(views.eight_ranks(), options) == []


def test_what_no_reading_of_the_host_tells_takes_no_row(options: ViewOptions) -> None:
    host = views.running().report.host
    silent = replace(host, disk_read=None, disk_write=None, disk_free=None, net_in=None, net_out=None)
    shown = text(machine_panel.host_rows(silent, 90))
    assert "disk" not in shown and "net" not in shown and "–" not in shown
    waiting = views.waiting()
    over = replace(waiting, report=replace(waiting.report, outcome=Outcome("finished", 0)))
    panel = machine_panel.Machine("machine")
    assert (
        panel.has_place(waiting, options)
        and not panel.has_place(over, options)
        and panel.has_place(views.starting(), options)
    )
    assert "host not recorded" in text(machine_panel.machine_rows(over, 60, 9))
    partly = text(machine_panel.host_rows(replace(silent, disk_free=2**40, net_in=7.0), 90))
    assert "free 1.0 TiB" in partly and "read" not in partly and "out –" in partly


def test_bars_are_as_long_as_there_is_room_for() -> None:
    host = views.running().report.host
    drawn = [
        text(machine_panel.host_rows(replace(host, cpu=100.0), width)[:1]).count("━") for width in (62, 90, 98, 110)
    ]
    assert drawn == sorted(drawn) and drawn[0] == 0 and drawn[-1] == 24
    gpus = [views.gpu(3), views.gpu(4)]  # of which one has its power capped
    meters = {text([machine_panel.gpu_line(gpu, 96, 7)]).rindex("─" if gpu.utilization != 100 else "━") for gpu in gpus}
    assert len(meters) == 1 and meters.pop() >= 7 + 15, "below each other"


def test_a_gpu_tells_the_limits_that_apply() -> None:
    view = views.running()
    [gpu] = view.report.gpus
    slows = machine_panel.slows_at(view, gpu)
    shown = text(machine_panel.gpu_block(replace(gpu, reasons=["power cap"]), [], 80, slows))
    assert "68 of 87 °C" in shown and "612 of 700 W" in shown and "power cap" in shown
    assert "68 °C" in text(machine_panel.gpu_block(gpu, [], 50, slows)), "a limit takes no figure's place"


def test_a_screen_with_a_brief_head_tells_the_step_below_a_long_badge(options: ViewOptions) -> None:
    view = replace(views.running(), open=OpenWork(), label="REPLAY · SIMULATED GPU · 1x 0:58/1:24")
    assert "step 214 of 600  ·  between steps" in text(header.header(view, options, 60, 2))
    assert "  ·  " not in text(header.header(replace(view, label=None), options, 60, 2, reasons=False)[:1])


def test_ranks_that_show_one_wait_stand_in_their_order() -> None:
    alike = [RankRow(rank, 1.0, usual_wait=0.1234 - rank * 1e-6) for rank in range(5)]
    assert [row.rank for row in ranks_panel.by_interest(alike, 3)] == [3, 0, 1, 2, 4]


def test_in_the_bar_of_the_whole_run_a_larger_part_never_gets_fewer_cells() -> None:
    shares = [0.2, 0.002, 0.003, 0.79, 0.005]
    cells = phases_panel._largest_remainder(shares, 60)
    assert sum(cells) == 60 and cells[1] <= cells[2] <= cells[4] < cells[0] < cells[3]


def test_the_longest_bar_leaves_room_for_the_number_of_its_steps(options: ViewOptions) -> None:
    table = [phases_panel.Line("test_generation", "accent", 1.0, ("1 s", "50%", "1 s"), (12, 200))]
    assert "█ in 12" in text(phases_panel.phase_rows(table, 60))


def test_bars_of_gpus_are_alike_whatever_holds_them_back() -> None:
    plain = views.gpu(3)
    for width in range(40, 120):
        rows = [machine_panel.gpu_line(each, width, 7) for each in (plain, replace(plain, reasons=["power cap"]))]
        assert len({len(re.findall("[━─]", text([row]))) for row in rows}) == 1, width
        assert all(row_width(row) <= width for row in rows)
    assert "─ 84% busy  64.2/139 GiB" in text([machine_panel.gpu_line(plain, 44, 7)])


def test_what_is_written_to_the_disk_comes_before_what_is_free() -> None:
    host = replace(views.running().report.host, disk_read=388 * 1024.0, disk_write=19.9 * 2**20)
    disk = text(machine_panel.host_rows(host, 37)).split("\n")[2]
    assert "r 388 KiB/s  w 19.9 MiB/s" in disk and "free" not in disk


def test_the_cause_of_what_cannot_be_read_is_left_out_where_it_would_be_cut() -> None:
    view = views.running(gpus=0)
    host = replace(view.report.host, note="no NVIDIA driver: libnvidia-ml.so.1 not found")
    view = replace(view, report=replace(view.report, host=host))
    assert text(machine_panel.machine_rows(view, 38, 5)).endswith("\n no NVIDIA driver")
    assert "not found" in text(machine_panel.machine_rows(view, 38, 8))


def test_an_episode_without_an_end_tells_how_long_it_was_seen(options: ViewOptions) -> None:
    view = views.running()
    held = ThrottleEvent("u", 1, "hardware thermal", "HW thermal", "thermal", 25.0, None, 24.0)
    details = replace(view.details, throttle_events=(held,), wall_offset=view.report.run.started)
    shown = text(alerts_panel.entries(replace(view, details=details), options))
    assert "■ at 25 s, observed 24 s  GPU 1 hardware thermal" in shown
    details = replace(details, throttle_events=(replace(held, last_seen=49.0),))
    shown = text(alerts_panel.entries(replace(view, details=details), options))
    assert "■ 25 s to 49 s  GPU 1 hardware thermal" in shown and "seen for" not in shown, "it may come back"


def test_the_hosts_of_ranks_have_a_column_where_they_differ_and_fit(options: ViewOptions) -> None:
    panel, view = ranks_screen.Ranks(), views.eight_ranks()
    apart = [replace(row, host=f"node-{row.rank // 4}") for row in view.report.ranks]
    several = replace(view, report=replace(view.report, ranks=apart))
    for width, shown, has_host in ((120, several, True), (40, several, False), (120, view, False)):
        rows = text([*panel.fixed(shown, options, width), *panel.entry(5, shown, options, width, chosen=False)])
        assert (" host " in rows) == ("node-1" in rows) == has_host, rows
    panel.selected, panel.opened = 5, True
    assert panel.heading(several, options).startswith("Rank 5 on node-1")
    assert " on " not in panel.heading(view, options)
