"""It draws what is visible and changed, and sends no more than that. Counted, never timed."""

from collections import Counter
from dataclasses import replace

import pyte
import pytest
import sample_views as views

from monitor.tui.drawing import line_drawing
from monitor.tui.panels import curve_panels
from monitor.tui.panels.base import Panel, Rows
from monitor.tui.screens.page import screen_classes

SIZE = (160, 45)


@pytest.fixture
def drawn(monkeypatch) -> Counter:
    """How many times each part was drawn."""
    counts: Counter = Counter()
    original = Rows._replace

    def counting(self, strips, width) -> None:
        counts[self.id] += 1
        original(self, strips, width)

    monkeypatch.setattr(Rows, "_replace", counting)
    return counts


async def push(app_on, pilot, view) -> None:
    app_on.feed.push(view)
    for _ in range(3):
        await pilot.pause()


async def test_an_equal_view_draws_and_sends_nothing(app_on, drawn, sent) -> None:
    app = app_on(views.running())
    async with app.run_test(size=SIZE) as pilot:
        await push(app_on, pilot, views.running())
        drawn.clear()
        sent.clear()
        await push(app_on, pilot, views.running())
        assert not drawn
        assert not "".join(sent)


async def test_a_tick_of_the_clock_draws_the_head_only(app_on, drawn, sent) -> None:
    app = app_on(views.running(extra_seconds=42.0))
    async with app.run_test(size=SIZE) as pilot:
        await push(app_on, pilot, views.running(extra_seconds=42.0))
        drawn.clear()
        sent.clear()
        view = views.running(extra_seconds=42.0)
        await push(app_on, pilot, replace(view, open=replace(view.open, phase_seconds=43.2)))
        assert drawn == {"header": 1}
        assert 0 < len("".join(sent)) < 200


async def test_charts_that_are_not_visible_are_not_drawn(app_on, drawn, monkeypatch) -> None:
    lines = curves_drawn(monkeypatch)
    monkeypatch.setattr(curve_panels, "CURVE_SECONDS", 0.0)
    app = app_on(views.running(100))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("6", "f")
        await push(app_on, pilot, views.running(101))
        drawn.clear()
        lines.clear()
        await push(app_on, pilot, views.running(102))
        assert not lines
        assert not {"steps", "metric", "tokens"} & set(drawn)
        await pilot.press("f")
        await push(app_on, pilot, views.running(102))
        assert lines  # and they are up to date again as soon as they are seen
        assert all(panel._view.report.progress.steps_done == 102 for panel in app.board.panels)


def curves_drawn(monkeypatch) -> list[int]:
    """A one for each curve that is drawn from now on."""
    lines = []
    original = line_drawing._braille
    monkeypatch.setattr(line_drawing, "_braille", lambda *arguments: lines.append(1) or original(*arguments))
    return lines


async def test_a_curve_rests_between_two_drawings_and_its_figures_do_not(app_on, monkeypatch) -> None:
    monkeypatch.setattr(curve_panels, "CURVE_SECONDS", 1000.0)
    app = app_on(views.running(100))
    async with app.run_test(size=SIZE) as pilot:
        await push(app_on, pilot, views.running(101))
        lines = curves_drawn(monkeypatch)
        before = [str(row) for row in app.query_one("#metric")._rows]
        await push(app_on, pilot, views.running(150))
        after = [str(row) for row in app.query_one("#metric")._rows]
        assert not lines and after[1] != before[1] and after[2:] == before[2:]
        await pilot.press("m")  # another metric has to be drawn at once
        await pilot.pause()
        assert lines


async def test_the_last_steps_of_a_run_are_drawn_though_nothing_comes_after_them(app_on, monkeypatch) -> None:
    monkeypatch.setattr(curve_panels, "CURVE_SECONDS", 0.3)
    app = app_on(views.running(100))
    async with app.run_test(size=SIZE) as pilot:
        await push(app_on, pilot, views.running(101))
        lines = curves_drawn(monkeypatch)
        await push(app_on, pilot, views.running(102))
        for _ in range(100):
            await pilot.pause(0.05)
            if len(lines) >= 2:
                break
        assert len(lines) >= 2  # the metric's and the tokens'
        await pilot.pause(0.5)
        assert len(lines) <= 4  # and then there is peace


async def test_a_new_step_sends_little(app_on, sent) -> None:
    app = app_on(views.running(200))
    async with app.run_test(size=SIZE) as pilot:
        await push(app_on, pilot, views.running(201))
        sizes = []
        for step in range(202, 212):
            sent.clear()
            await push(app_on, pilot, views.running(step))
            sizes.append(len("".join(sent).encode()))
        assert sorted(sizes)[len(sizes) // 2] < 6 * 1024


async def test_the_cells_sent_add_up_to_the_picture(app_on, sent, screen_text) -> None:
    """A terminal fed with the partial updates shows what a full drawing would."""
    screen = pyte.Screen(*SIZE)
    stream = pyte.Stream(screen)
    app = app_on(views.running(180, gpus=2))
    async with app.run_test(size=SIZE) as pilot:
        for step in range(181, 200):
            await push(app_on, pilot, views.running(step, gpus=2))
            if step % 5 == 0:
                await pilot.press("m")
            if step % 7 == 0:
                await pilot.press("5", "down", "t")
        await push(app_on, pilot, views.replayed())
        stream.feed("".join(sent).replace("\n", "\r\n"))
        wanted = [line.rstrip() for line in screen_text(app).split("\n")]
        assert [line.rstrip() for line in screen.display] == wanted


async def test_a_flood_of_views_is_coalesced(app_on, drawn) -> None:
    app = app_on(views.running(1))
    async with app.run_test(size=SIZE) as pilot:
        await push(app_on, pilot, views.running(1))
        drawn.clear()
        flood = [views.running(step) for step in range(2, 40)]
        for view in flood:
            app_on.feed.push(view)
        await push(app_on, pilot, flood[-1])
        assert drawn["steps"] < 10


def leaves(kind: type[Rows]) -> list[type[Rows]]:
    return [leaf for child in kind.__subclasses__() for leaf in leaves(child) or [child]]


def test_every_panel_says_what_it_reads() -> None:
    screen_classes()  # screens are loaded when they are needed
    assert len(leaves(Panel)) > 8
    for panel in leaves(Panel):
        assert panel.data is not Rows.data
