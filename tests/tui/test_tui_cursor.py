"""The time cursor that all charts share, and keys of a person's own on the dashboard."""

from dataclasses import replace
from pathlib import Path

import pytest
import sample_views as views

from monitor.model.steps.series import Curve
from monitor.model.view import View
from monitor.tui.drawing.curve_columns import Grid
from monitor.tui.drawing.rows import row_width
from monitor.tui.drawing.time_cursor import column_of, crossed, footed, moved, value_at

STEP_44 = sum(views.phases_of(44).values())


def test_the_value_is_that_of_the_step_or_of_the_newest_before_it() -> None:
    curve = Curve([10.0, 20.0, 30.0], [1.0, 2.0, 3.0], [], [], 1)
    assert value_at(curve, 9) is None
    assert value_at(curve, 20).value == 2.0
    assert (value_at(curve, 29).first, value_at(curve, 29).name) == (20, "step 20")


def test_a_bucket_names_both_ends_and_no_step_that_has_not_been() -> None:
    curve = Curve([0.0, 4.0, 8.0], [1.0, 2.0, 3.0], [], [], 4, 9)
    assert [value_at(curve, step).name for step in (1, 5, 9, 50)] == [
        "steps 1–3",
        "steps 4–7",
        "steps 8–9",
        "steps 8–9",
    ]


def test_it_appears_at_the_newest_step_and_stays_within_the_run() -> None:
    curve = views.running().step_seconds
    assert moved(curve, None, 80, -1) == 214
    assert moved(curve, 214, 80, 1) == 214
    assert moved(curve, 214, 80, -1) == 211  # a column of 80 holds three of 214 steps
    assert moved(curve, 2, 80, -10) == 1
    assert moved(Curve(), None, 80, 1) is None


def test_the_line_covers_nothing_that_is_drawn() -> None:
    picture = [[("ab", "x"), ("  ", "text")], [("⠀⠁⠀⠀", "y")], [("漢字", "z")]]
    for column in range(4):
        for before, after in zip(picture, crossed(picture, column), strict=True):
            old, new = "".join(text for text, _ in before), "".join(text for text, _ in after)
            assert row_width(after) == 4
            assert new == old or (old[column] in " ⠀" and new == f"{old[:column]}│{old[column + 1 :]}")
    assert crossed(picture, None) == picture


def test_a_number_of_the_axis_gives_way_whole() -> None:
    row = [("   step 1", "muted"), ("    214", "muted")]
    assert ["".join(text for text, _ in footed(row, column)) for column in (5, 10, 12, 15)] == [
        "     ▲       214",
        "   step 1 ▲  214",
        "   step 1   ▲   ",
        "   step 1      ▲",
    ]


def test_a_cursor_beside_the_chart_has_no_column() -> None:
    layout = Grid(2, 10, 5)
    assert [column_of(layout, step, 8) for step in (None, 9, 10, 59, 60)] == [None, None, 0, None, None]


async def test_every_chart_tells_its_value_at_the_cursor(app_on, screen_text) -> None:
    app = app_on(views.running(60))
    async with app.run_test(size=(160, 45)) as pilot:
        await pilot.press("left")
        assert "CURSOR step 60" in screen_text(app)
        await pilot.press(*["left"] * 16)
        await pilot.pause()
        shown = screen_text(app)
        assert "CURSOR step 44, Esc to leave" in shown
        assert f"step 44 {STEP_44:.1f} s" in shown
        assert f"step 44 {views.reward(44):.4f}" in shown
        assert f"step 44 {7444 / STEP_44:,.0f} tok/s" in shown
        assert f"generation {views.phases_of(44)['generation']:.1f} s" in shown
        await pilot.press("right", "c")
        await pilot.pause()
        shown = screen_text(app)
        assert f"step 45 {views.reward(45):.4f}" in shown
        assert f"step 45 {views.loss(45):.4f}"[:13] in shown
        await pilot.press("escape")
        await pilot.pause()
        assert "CURSOR" not in screen_text(app)
        assert "Metrics" in screen_text(app)  # the first Esc ended the cursor only


async def test_in_a_large_chart_the_arrows_move_the_cursor_and_else_the_choice(app_on, screen_text) -> None:
    app = app_on(views.running(60))
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("c", "right")
        await pilot.pause()
        assert "▶ loss" in screen_text(app)
        assert "CURSOR" not in screen_text(app)
        await pilot.press("enter", "left", "left")
        await pilot.pause()
        await pilot.pause()
        assert "CURSOR step 59" in screen_text(app)
        assert "▶ loss" in screen_text(app)


async def test_where_nothing_is_known_the_cursor_tells_nothing(app_on, screen_text) -> None:
    late: View = views.running(60)
    curve = views.curve([1.0, 2.0], 50)
    late = replace(late, metrics={"reward": curve}, tokens_per_second=curve)
    app = app_on(late)
    async with app.run_test(size=(160, 45)) as pilot:
        await pilot.press(*["left"] * 40)
        await pilot.pause()
        assert "step 21 –" in screen_text(app)
    app = app_on(views.waiting())
    async with app.run_test(size=(160, 45)) as pilot:
        await pilot.press("left")
        await pilot.pause()
        assert "CURSOR" not in screen_text(app)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINMON_DIR", str(tmp_path))
    return tmp_path / "config.toml"


async def test_keys_of_ones_own_work_and_are_told(app_on, screen_text, config: Path) -> None:
    config.write_text('[keys]\npause = "f5"\ntheme = "p"\nwhy = ["W", "f2"]\n')
    app = app_on(views.running())
    async with app.run_test(size=(160, 45)) as pilot:
        assert "F5 pause" in screen_text(app)
        assert "W why" in screen_text(app)
        await pilot.press("p", "w", "space")
        await pilot.pause()
        assert app.theme == "paper"
        assert "PAUSED" not in screen_text(app)
        assert "Findings" not in screen_text(app)
        await pilot.press("f5", "f2")
        await pilot.pause()
        assert "PAUSED" in screen_text(app)
        assert "Findings" in screen_text(app)
        await pilot.press("question_mark")
        await pilot.pause()
        assert "F5  Pause the screen" in screen_text(app)
