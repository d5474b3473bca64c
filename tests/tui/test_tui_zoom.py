"""Zoom, the band, the first step and the line of events of the charts of steps, in the dashboard and below it."""

import random
from dataclasses import replace

import pytest
import sample_views as views
from by_hand import press
from conftest import text_of
from textual.events import MouseScrollDown, MouseScrollUp
from textual.pilot import Pilot

from monitor.model.steps.series import Column, Curve
from monitor.model.view import Occurrence
from monitor.tui.app import TrainmonApp
from monitor.tui.drawing.curve_columns import Zoom, grid, top_limit, zoomed
from monitor.tui.drawing.event_axis import event_rows
from monitor.tui.panels.curve_panels import folded, line_chart
from monitor.tui.panels.phases_panel import _largest_remainder


def column(values: list[float]) -> Column:
    filled = Column()
    for step, value in enumerate(values, 1):
        filled.add(step, value)
    return filled


def noisy(steps: int, outlier: float = 0.0) -> list[float]:
    noise = random.Random(7)
    return [outlier if outlier and step % 97 == 5 else noise.uniform(1.0, 2.0) for step in range(steps)]


def text(rows: list[list[tuple[str, str]]]) -> list[str]:
    return ["".join(part for part, _ in row) for row in rows]


@pytest.mark.parametrize("steps", [2000, 20_000])
def test_the_band_is_p10_to_p90_where_a_column_has_many_values_and_no_outlier_stretches_it(steps: int) -> None:
    curve = column(noisy(steps, 50.0)).curve()
    layout = grid(curve, 100)
    assert layout is not None
    buckets, name = folded(curve, layout)
    assert name == "p10-p90"
    known = [bucket for bucket in buckets if bucket is not None and bucket.low < bucket.high]
    assert len(known) > 75, "some have too few"
    assert all(1.0 <= bucket.low < 1.5 and 1.5 < bucket.high <= 2.0 for bucket in known)
    chart = text(line_chart(curve, 110, 20))
    assert "p10-p90 of" in chart[-1] and ("sample" in chart[-1]) == (steps > 4096)


def test_of_few_values_the_band_is_what_is_known_of_them() -> None:
    curve = column(noisy(400, 50.0)).curve()
    layout = grid(curve, 100)
    assert layout is not None
    buckets, name = folded(curve, layout)
    assert name == "min-max" and max(bucket.high for bucket in buckets if bucket is not None) == 50.0
    means = curve.mean
    assert folded(Curve(curve.x, means, means, means, 4, curve.end), layout)[1] == "", "of means no band is known"


def test_the_first_step_does_not_flatten_a_chart_and_its_value_is_told() -> None:
    chart = text(line_chart(column([61.3, 1.2, 1.0, 1.4, 1.1]).curve(), 80, 12))
    assert any("61.3" in row and "above scale" in row for row in chart)
    assert "1.2" in " ".join(row[:9] for row in chart), "the scale is that of the others"
    later = column([1.2, 1.0, 61.3, 1.4, 1.1]).curve()
    assert "above scale" not in " ".join(text(line_chart(later, 80, 12))), "of few others none is left out"
    assert top_limit([61.3, 1.2, 1.0, 1.4]) < 2.0


@pytest.mark.parametrize("steps", [30, 214, 6000, 60_000])
def test_a_wide_chart_has_four_or_five_ticks_on_either_axis(steps: int) -> None:
    chart = text(line_chart(column(noisy(steps)).curve(), 150, 30, explained=False))
    assert 4 <= sum(row[:7].strip() != "" for row in chart[:-1]) <= 5
    assert 4 <= len(chart[-1].replace("step ", "").split()) <= 5


def test_zoom_keeps_the_step_at_its_place_and_follows_the_newest() -> None:
    curve = column(noisy(300)).curve()
    near = zoomed(curve, None, 0.5, 100)
    assert near is not None and near.steps == 150 and near.last is not None
    first, last = near.span(300)
    assert abs((100 - first) / (last - first) - 100 / 300) < 0.02
    newest = zoomed(curve, None, 0.5)
    assert newest == Zoom(150, None) and newest.span(310) == (161, 310)
    assert zoomed(curve, newest, 2.0) is None, "all of them"
    layout = grid(curve, 100, zoom=near)
    assert layout is not None and layout.start <= first and layout.last == last
    for _ in range(20):
        near = zoomed(curve, near, 0.5, 100)
    assert near is not None and near.steps == 8
    elsewhere = grid(column(noisy(20)).curve(), 100, zoom=Zoom(10, 200))
    assert elsewhere is not None and elsewhere.count == 20, "a curve without these steps is shown as a whole"


def test_what_happened_is_marked_on_one_line_with_only_the_signs_that_occur() -> None:
    view = views.throttled()
    happened = (Occurrence("alert", 20, 20), Occurrence("trace", 60, 62))
    view = replace(view, details=replace(view.details, occurrences=happened))
    layout = grid(view.step_seconds, 140)
    assert layout is not None
    line, legend = text(event_rows(view, layout, 9, 140))
    assert all(sign in line for sign in "!▲*━─") and line.startswith(" events")
    assert "alert" in legend and "traced" in legend and "GPU throttled" in legend
    assert line[9 + layout.column(layout.bucket(20))] == "!"
    calm = views.running(5)
    calm = replace(calm, report=replace(calm.report, slow_steps=[]), details=replace(calm.details, spans=()))
    layout = grid(calm.step_seconds, 140)
    assert layout is not None and event_rows(calm, layout, 9, 140) == []


async def turn(pilot: Pilot[object], x: int, y: int, way: type[MouseScrollUp] | type[MouseScrollDown]) -> None:
    widget, _ = pilot.app.screen.get_widget_at(x, y)
    region = widget.region
    widget.post_message(way(widget, x - region.x, y - region.y, 0, 0, 0, False, False, False, screen_x=x, screen_y=y))
    for _ in range(3):
        await pilot.pause()


def plot(app: TrainmonApp, part: str) -> tuple[int, int]:
    region = app.screen.query_one(f"#{part}").region
    return region.x + region.width // 2, region.y + 4


@pytest.mark.parametrize("part", ["steps", "metric", "tokens"])
@pytest.mark.parametrize("size", [(160, 45), (120, 40)])
async def test_the_wheel_zooms_all_charts_around_the_pointer_and_esc_ends_it(app_on, part: str, size) -> None:
    app = app_on(views.running())
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        whole = text_of(app)
        x, y = plot(app, part)
        for _ in range(4):
            await turn(pilot, x, y, MouseScrollUp)
        zoom = app.view_options.zoom
        assert zoom is not None and zoom.steps < 60
        first, last = zoom.span(214)
        assert first > 30 and last < 190, "around the middle"
        assert "zoomed" in text_of(app) and f"step {first}" in text_of(app)
        for _ in range(5):
            await turn(pilot, x, y, MouseScrollDown)
        assert app.view_options.zoom is None
        await turn(pilot, x, y, MouseScrollUp)
        await press(pilot, "escape")
        assert app.view_options.zoom is None
        await press(pilot, "escape")
        assert text_of(app) == whole


async def test_the_wheel_scrolls_lists_and_what_lies_beside_a_chart(app_on) -> None:
    app = app_on(views.running())
    async with app.run_test(size=(120, 24)) as pilot:
        await press(pilot, "s")
        await turn(pilot, 40, 12, MouseScrollDown)
        assert "▶" not in text_of(app).split("\n")[4] and app.view_options.zoom is None
        await press(pilot, "escape", "c")
        top = app.screen.query_one("#body").region.y + 1
        chosen = app._page.body.selected
        await turn(pilot, 10, top, MouseScrollDown)
        assert app.view_options.zoom is None and app._page.body.selected != chosen, "a title selects"
        await turn(pilot, 20, top + 3, MouseScrollUp)
        assert app.view_options.zoom is not None


async def test_by_key_the_zoom_is_around_the_cursor_which_stays_in_sight(app_on) -> None:
    app = app_on(views.running())
    async with app.run_test(size=(160, 45)) as pilot:
        await press(pilot, "e", "e", "e")
        assert app.view_options.zoom == Zoom(63, None), "up to the newest"
        app.action_point(160)
        await press(pilot, *["shift+left"] * 4)
        first, last = app.view_options.zoom.span(214)
        assert first <= app.view_options.cursor <= last and last < 214
        await press(pilot, "escape")
        assert app.view_options.cursor is None and app.view_options.zoom is not None
        await press(pilot, "E", "E", "E", "E")
        assert app.view_options.zoom is None


def test_a_short_bar_has_a_cell_for_every_part_above_5_percent() -> None:
    choice = random.Random(3)
    for _ in range(500):
        weights = [choice.choice((0.055, 0.08, 0.2, 0.9)) for _ in range(choice.randint(2, 8))]
        shares = [weight / sum(weights) for weight in weights]
        cells = _largest_remainder(shares, 12)
        assert sum(cells) == 12 and all(cells[at] for at, share in enumerate(shares) if share >= 0.05)


def test_the_legend_of_events_is_shortened_rather_than_cut() -> None:
    view = views.throttled()
    layout = grid(view.step_seconds, 60)
    assert layout is not None
    band = [[("⡇", "faint"), (words, "muted")] for words in (" p10-p90 of a sample of 96 steps", " p10-p90")]
    for width in (200, 90, 60):
        _, legend = text(event_rows(view, layout, 9, width, band))
        assert "p10-p90" in legend and "throttled" in legend and "…" not in legend and len(legend) <= width + 9
