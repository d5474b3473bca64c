"""On a GPU its clock leads on every screen of steps and phases; h shows the host's, and the screen says which."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sample_lanes
import sample_views as views
from by_hand import text
from pictures import of_recording

from monitor.model.device.device_report import Device
from monitor.model.report import RankRow, SlowStep
from monitor.model.view import View
from monitor.tui.drawing import clock_lanes
from monitor.tui.panels import alerts_panel, header, ranks_panel
from monitor.tui.panels.base import ViewOptions
from monitor.tui.screens.step_table import MEAN_STATUS, step_lines
from monitor.tui.screens.steps_screen import step_detail

WIDE, NARROW = (160, 45), (60, 15)
SCREENS = {"s": "Steps", "b": "Phases"}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> View:
    return of_recording(str(sample_lanes.write(tmp_path_factory.mktemp("lanes") / "two-lanes.jsonl")), 1.0)


def host_only(view: View) -> View:
    """As a journal without device times tells it."""
    report = replace(view.report, device=Device(), phases=view.report.host_phases, slow_steps=[])
    return replace(view, report=report, phase_seconds=view.host_phase_seconds)


@pytest.mark.parametrize("size", [WIDE, NARROW])
async def test_one_key_shows_the_other_clock_on_every_screen(app_on, screen_text, two, size) -> None:
    app = app_on(two)
    async with app.run_test(size=size) as pilot:
        for clock, other in (
            (clock_lanes.GPU_CLOCK, clock_lanes.HOST_CLOCK),
            (clock_lanes.HOST_CLOCK, clock_lanes.GPU_CLOCK),
        ):
            await pilot.pause()
            shown = screen_text(app)
            assert shown.count(f", {clock} ") == 2 and f"h {other}" in shown and f", {other} " not in shown
            for key, title in SCREENS.items():  # the choice holds from screen to screen
                await pilot.press(key)
                await pilot.pause()
                shown = screen_text(app)
                assert f" {title}, {clock} " in shown and f"h {other}" in shown, (
                    "the choice holds from screen to screen"
                )
            await pilot.press("s", "enter")
            await pilot.pause()
            assert f"Phases, {clock} " in screen_text(app)
            await pilot.press("escape", "escape", "h")


async def test_without_a_device_lane_the_key_does_nothing(app_on, screen_text, two) -> None:
    for view, told in ((views.running(), ""), (host_only(two), clock_lanes.HOST_CLOCK)):
        app = app_on(view)
        async with app.run_test(size=WIDE) as pilot:
            for key in ("", "s", "b"):
                await pilot.press(*[key] if key else [])
                await pilot.pause()
                before = screen_text(app)
                await pilot.press("h")
                await pilot.pause()
                assert screen_text(app) == before and " h " not in before.split("\n")[-1]
                assert (clock_lanes.HOST_CLOCK in before) == bool(told) and clock_lanes.GPU_CLOCK not in before


async def test_screens_without_steps_do_not_offer_the_key(app_on, screen_text, two) -> None:
    app = app_on(two)
    async with app.run_test(size=WIDE) as pilot:
        for key in ("w", "c", "u", "l", "i"):
            await pilot.press(key)
            await pilot.pause()
            assert clock_lanes.HOST_CLOCK not in screen_text(app).split("\n")[-1]


def test_the_lanes_hold_what_each_clock_told(two: View) -> None:
    device, host = clock_lanes.lane(two, False), clock_lanes.lane(two, True)
    largest = [max(each.rows, key=lambda row: row.share).name for each in (device, host)]
    assert largest == ["backward", "other"] and device.is_device and not host.is_device
    assert {row.clock for row in device.rows} == {"cuda"} and {row.clock for row in host.rows} == {"host"}
    few = replace(two, report=replace(two.report, phases=two.report.host_phases))  # too few steps timed so far
    assert clock_lanes.lane(few, False) == host, "parts and whole by one clock"


def test_a_row_by_the_gpu_s_clock_is_a_step_that_was_timed(two: View, options: ViewOptions) -> None:
    told = {each.step: each.seconds for each in two.details.timed}
    lines = step_lines(two)
    single = [line for line in lines if line.count == 1 and line.slow is None and line.status != MEAN_STATUS]
    assert {line.step: line.seconds for line in single}.items() <= told.items() and len(single) > 200
    assert all(line.by_device for line in lines) and len(step_lines(two, host=True)) > 500
    assert any(line.slow is not None and line.count > 1 for line in lines), "what the GPU's clock tells only together"
    page = text(step_detail(single[-1], two, options, 118))
    by_host = next(line for line in step_lines(two, host=True) if line.step == single[-1].step)
    other = text(step_detail(by_host, two, options, 118))
    assert ", GPU clock  ok" in page and ", host clock  ok" in other and "host clock" not in page
    assert "23 ms" in next(row for row in page.split("\n") if "backward" in row)
    assert "3.1 ms" in next(row for row in other.split("\n") if "backward" in row)


async def test_a_step_that_was_not_timed_leads_to_the_nearest(app_on, screen_text, two) -> None:
    timed = {told.step for told in two.details.timed}
    assert 900 not in timed
    app = app_on(two)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("h", "s", "enter")
        await pilot.pause()
        assert "step 900 " in screen_text(app)
        await pilot.press("h")
        await pilot.pause()
        shown = screen_text(app)
        assert "step 900 not timed on the GPU" in shown and f"step {max(timed)} " in shown


def test_a_slow_step_beside_the_host_s_times_keeps_its_own_clock(two: View, options: ViewOptions) -> None:
    step = next(each for each in two.details.steps if each.index == 800)
    slow = SlowStep(800, 0, 0.31, 0.04, "forward", {"forward": 0.28}, {"forward": 0.012})
    view = replace(two, report=replace(two.report, slow_steps=[slow]))
    line = next(line for line in step_lines(view, host=True) if line.step == step.index)
    page = text(step_detail(line, view, options, 140))
    assert "slow: GPU clock 310 ms, typical 40 ms" in page
    assert "typical then" not in page, "what is usual for the GPU is no measure of the host's times"


def test_stretches_in_a_row_are_told_by_the_step(two: View, options: ViewOptions) -> None:
    slow = [SlowStep(601, 0, 0.4, 0.16, "", steps=4), SlowStep(605, 0, 0.2, 0.08, "", steps=2)]
    [row] = [alerts_panel.slow_stretch(each, options) for each in alerts_panel.in_a_row(slow)]
    assert text([row]).strip() == "▲ Slow steps 601 to 606: up to 100 ms a step; typical 40 ms"
    assert alerts_panel.alerts_of_steps(1, slow) == ", of 6 slow steps"


def test_ranks_say_whose_clock_they_are_by(two: View) -> None:
    rows = [RankRow(rank, 0.3, clock="cuda") for rank in range(2)]
    report = replace(two.report, ranks=rows)
    assert ranks_panel.clock_of(report) == clock_lanes.GPU_CLOCK and ranks_panel.clock_of(two.report) == ""
    assert ranks_panel.clock_of(replace(report, ranks=[rows[0], RankRow(1, 0.3)])) == clock_lanes.HOST_CLOCK
    assert ranks_panel.clock_of(replace(report, device=None)) == ""


def test_the_open_phase_of_a_gpu_run_is_the_host_s(two: View) -> None:
    view = views.running()
    device = replace(view, report=replace(view.report, device=Device()))
    assert "host in" in text([header.now(device)]) and "host in" not in text([header.now(view)])
