"""The mouse: what is drawn at a cell is what a click there opens, selects, sorts by or points at."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import sample_views as views
from by_hand import press
from conftest import HandFeed, text_of
from pictures import RECORDINGS, Still, of_recording
from sample_fleet import HandRuns, fleet
from textual.app import App
from textual.events import MouseScrollDown
from textual.pilot import Pilot

from monitor.model.steps.series import Curve
from monitor.model.view import View
from monitor.tui.app import TrainmonApp
from monitor.tui.drawing.characters import TerminalCapabilities
from monitor.tui.drawing.curve_columns import grid
from monitor.tui.drawing.runs_rows import ordered
from monitor.tui.replay_app import ReplayApp
from monitor.tui.runs_app import RunsApp
from monitor.tui.screens.compare_screen import RunsCompared

SIZES = [(160, 45), (80, 24)]


@pytest.fixture(scope="module")
def recorded() -> View:
    return of_recording(str(RECORDINGS / "rl-code-cpu.jsonl"), 0.7)


@pytest.fixture(params=["sample", "recording"])
def view(request: pytest.FixtureRequest, recorded: View) -> View:
    return views.running() if request.param == "sample" else recorded


def shown(view: View) -> TrainmonApp:
    return ReplayApp(Still(view), title="run", ink=TerminalCapabilities())


def lines(app: App[object]) -> list[str]:
    return text_of(app).split("\n")


async def click(pilot: Pilot[object], x: int, y: int) -> None:
    await pilot.click(offset=(x, y))
    for _ in range(3):
        await pilot.pause()


def region(app: App[object], part: str) -> tuple[range, range]:
    """The columns and rows of a part on the screen."""
    found = app.screen.query_one(f"#{part}").region
    return range(found.x, found.right), range(found.y, found.bottom)


@pytest.mark.parametrize("columns", [1, 2, 7, 60, 150])
@pytest.mark.parametrize("steps", [1, 3, 59, 214, 5000])
def test_each_column_of_a_chart_stands_for_the_steps_that_are_drawn_in_it(steps: int, columns: int) -> None:
    layout = grid(Curve([float(step) for step in range(1, steps + 1)], [1.0] * steps, [], [], 1), columns)
    assert layout is not None
    for bucket in range(layout.count):
        for column in range(layout.edge(bucket), layout.edge(bucket + 1)):
            assert {layout.bucket(step) for step in layout.steps_at(column)} == {bucket}
    told = [step for bucket in range(layout.count) for step in layout.steps_at(layout.edge(bucket))]
    assert told == list(range(1, steps + 1))
    assert not layout.steps_at(layout.columns) and not layout.steps_at(-1)


@pytest.mark.parametrize("size", SIZES)
async def test_a_click_on_a_slow_bar_opens_its_slow_step(size) -> None:
    view = views.running()
    slow = sorted(step.step for step in view.report.slow_steps)
    app = shown(view)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        columns, rows = region(app, "steps")
        marks = [(x, y) for y in rows for x in columns if lines(app)[y][x] == "▲"]
        marks = [mark for mark in marks if mark[1] == marks[0][1]]  # not that of the legend
        assert len(marks) == len(slow)
        for (x, y), step in zip(marks, slow, strict=True):
            await click(pilot, x, y + 2)
            assert f" step {step}  " in text_of(app) and "slow: typical" in text_of(app)
            await press(pilot, "escape", "escape")
            assert "Step time" in text_of(app)


@pytest.mark.parametrize("size", SIZES)
async def test_a_bar_of_a_recording_opens_the_slowest_of_its_steps(recorded: View, size) -> None:
    app = shown(recorded)
    longest = {step.index: step.duration for step in recorded.details.steps}
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        columns, rows = region(app, "steps")
        layout = grid(recorded.step_seconds, len(columns) - 8)
        assert layout is not None
        for column in (0, layout.columns // 2, layout.columns - 1):
            steps = layout.steps_at(column)
            await click(pilot, columns[8 + column], rows[3])
            slowest = max(steps, key=lambda step: longest[step])
            assert f" step {slowest}  " in text_of(app)
            await press(pilot, "escape", "escape")
        for x, y in ((columns[3], rows[3]), (columns[20], rows[-1]), (columns[20], rows[0])):  # scale, legend, title
            await click(pilot, x, y)
            assert "Step time" in text_of(app) and app.focused is not None and app.focused.id == "steps"


async def test_by_key_the_steps_begin_at_the_cursor(app_on) -> None:
    app = app_on(views.running())
    async with app.run_test(size=(160, 45)) as pilot:
        app.action_point(131)
        await press(pilot, "s", "enter")
        assert " step 131  38.2 s" in text_of(app)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("panel", ["metric", "tokens"])
async def test_a_click_on_a_chart_places_the_cursor_where_it_was(view: View, panel: str, size) -> None:
    app = shown(view)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        if not app.screen.query_one(f"#{panel}").region.size:
            await press(pilot, "4")  # there is no room for it otherwise
        columns, rows = region(app, panel)
        scale = re.compile("[│┤]").search(lines(app)[rows[3]], columns[0])
        assert scale is not None
        left = scale.end()
        last = lines(app)[rows[-1]].rindex("4", 0, columns[-1] + 1)  # of step 114 or 214
        for x in (left, (left + last) // 2, last):
            await click(pilot, x, rows[3])
            assert lines(app)[rows[-1]].find("▲", left) == x
            assert "CURSOR step" in text_of(app)
        await click(pilot, left - 3, rows[3])
        assert lines(app)[rows[-1]].find("▲", left) == last


def beginning(line: str) -> str:
    """The first words of a line without its signs and its time."""
    words = re.sub(r"^[▌▲●■!· ]+(at .*? s  |at .*? min  )?", "", line)
    return words.split(":")[0].split("(")[0].split("→")[0][:40].strip()


@pytest.mark.parametrize("size", SIZES)
async def test_each_line_of_the_alerts_opens_what_it_tells_of(view: View, size) -> None:
    app = shown(view)
    async with app.run_test(size=size) as pilot:
        await press(pilot, "5", "f")
        columns, rows = region(app, "alerts")
        text = [line[columns[0] : columns[-1] + 1] for line in lines(app)]
        clicked = 0
        for y in rows[1:]:
            if text[y][:1] not in "▌▲●":
                continue
            await click(pilot, columns[10], y)
            clicked += 1
            assert app._page is not None and app._page.body.opened
            words = beginning(text[y])
            expected = words.replace("Slow step", "step") if "Slow step" in words else words
            assert expected in text_of(app)
            await press(pilot, "escape", "escape")
        assert clicked >= 1 + (len(view.report.slow_steps) > 0)


@pytest.mark.parametrize("size", SIZES)
async def test_the_verdict_in_the_header_opens_its_page(view: View, size) -> None:
    app = shown(view)
    async with app.run_test(size=size) as pilot:
        await press(pilot, "s")
        for _ in range(2):  # from the steps, then from the overview
            rows = [y for y in region(app, "header")[1] if lines(app)[y].startswith("▌")]
            if rows:
                await click(pilot, 5, rows[-1])
                assert app._page is not None and app._page.body.screen_name == "findings" and app._page.body.opened
                assert view.verdict.title.split(":")[0][:40] in text_of(app)
                await press(pilot, "escape")
            await press(pilot, "escape")


@pytest.mark.parametrize("size", SIZES)
async def test_titles_of_the_step_table_sort_it_and_rows_open_their_step(view: View, size) -> None:
    app = shown(view)
    async with app.run_test(size=size) as pilot:
        await press(pilot, "s")
        top = region(app, "body")[1][0]
        sortable = lines(app)[top + 1].partition("status")[0]
        titles = [(match[0], match.end()) for match in re.finditer(r"\S+", sortable)]
        assert titles[0][0] == "step↓" and titles[1][0] == "time"
        for title, end in titles[1:]:
            for arrow in "↓↑":
                await click(pilot, end - 1, top + 1)
                assert re.search(rf"{title[:4]}\S*{arrow}", lines(app)[top + 1])
        for y in (top + 5, top + 3):
            line = lines(app)[y]
            await click(pilot, 30, y)
            assert [at for at, text in enumerate(lines(app)) if "▶" in text] == [y]
            assert lines(app)[y][3:40] == line[3:40]
        await click(pilot, 30, y)
        assert f" step {line.split()[0].lstrip('▲-')}  " in text_of(app).replace(" step ▲", " step ")


@pytest.mark.parametrize("size", SIZES)
async def test_all_rows_of_a_finding_select_it_and_a_second_click_opens_it(view: View, size) -> None:
    app = shown(view)
    async with app.run_test(size=size) as pilot:
        await press(pilot, "w")
        before = lines(app)
        y = next(at for at, text in enumerate(before) if text.lstrip().startswith("─ Alerts"))
        await click(pilot, 20, y)
        marked = next(at for at, text in enumerate(lines(app)) if "▶" in text)
        assert lines(app)[marked - 1].strip().startswith("─ Alerts")
        await click(pilot, 20, marked)
        assert app._page is not None and app._page.body.opened
        await click(pilot, 20, marked)
        assert app._page.body.opened, "clicks within a page do nothing"


@pytest.mark.parametrize("size", SIZES)
async def test_small_charts_are_chosen_by_their_title_and_pointed_at_below_it(view: View, size) -> None:
    app = shown(view)
    async with app.run_test(size=size) as pilot:
        await press(pilot, "c")
        top = region(app, "body")[1][0] + 1
        names = [(match[1], match.start(1)) for match in re.finditer(r"[▶ ] (\S+)", lines(app)[top])]
        name, x = next(pair for pair in reversed(names) if pair[0] in view.metrics)
        await click(pilot, x, top)
        assert f"▶ {name}" in text_of(app)
        plot = next(y for y in range(top + 1, top + 8) if "│" in lines(app)[y][x:])
        across = lines(app)[plot].index("│", x) + 3
        await click(pilot, across, plot)
        assert "CURSOR step" in text_of(app) and f"▶ {name}" in text_of(app)
        foot = next(text for text in lines(app)[plot:] if "▲" in text[x:])
        assert abs(foot.index("▲", x) - across) <= 2
        await click(pilot, x, top)
        assert app._page is not None and app._page.body.opened
        text = lines(app)
        plot = next(y for y in range(top + 2, top + 12) if "│" in text[y])
        await click(pilot, size[0] // 2, plot)
        feet = [at for line in lines(app)[plot:] for at, sign in enumerate(line) if sign == "▲"]  # and slow steps
        assert any(abs(foot - size[0] // 2) <= 2 for foot in feet)


async def test_the_rows_of_a_gpu_select_it_and_what_lies_below_the_list_does_nothing(app_on) -> None:
    app = app_on(views.running(gpus=8))
    async with app.run_test(size=(160, 45)) as pilot:
        await press(pilot, "u")
        y = next(at for at, text in enumerate(lines(app)) if "GPU 5 " in text)
        await click(pilot, 20, y + 1)
        assert next(text for text in lines(app) if "▶" in text).split()[1:3] == ["GPU", "5"]
        before = text_of(app)
        await click(pilot, 20, region(app, "body")[1][-1])
        assert text_of(app) == before
        await click(pilot, 20, next(at for at, text in enumerate(lines(app)) if "▶" in text))
        assert "Throttle events" in text_of(app)


def scroll(app: App[object], part: str) -> MouseScrollDown:
    x, y = (values[2] for values in region(app, part))
    return MouseScrollDown(None, x, y, 0, 1, 0, False, False, False, x, y)


async def test_the_wheel_scrolls_what_is_under_the_pointer(app_on) -> None:
    app = app_on(views.running())
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "1")
        assert "Slow step 207" in text_of(app)
        for _ in range(2):
            app.screen.post_message(scroll(app, "alerts"))
            await pilot.pause()
        assert "Slow step 207" not in text_of(app)
        assert app.focused is not None and app.focused.id == "steps"
        await press(pilot, "s")
        app.screen.post_message(scroll(app, "body"))
        await pilot.pause()
        assert "▶    212" in text_of(app)


class Chosen:
    """The list of all runs."""

    def __init__(self) -> None:
        beside = ["not watched:", "a", "b", "c"]
        self.app = RunsApp(
            HandRuns(fleet()), lambda paths: RunsCompared(""), lambda path, say: True, unwatched=lambda: beside
        )


@pytest.mark.parametrize("size", [*SIZES, (40, 12)])
async def test_the_list_of_runs_sorts_selects_and_opens(size) -> None:
    app = Chosen().app
    async with app.run_test(size=size) as pilot:
        await pilot.pause(0.05)
        await pilot.pause()
        titles = re.findall(r"speed against|\S+", lines(app)[2])
        for title in titles:
            for _ in range(2):
                await click(pilot, lines(app)[2].index(title), 2)
                assert re.search(rf"{title[:-1]}\S?[↓↑]", lines(app)[2])
        before = text_of(app)
        await click(pilot, 5, next(y for y, text in enumerate(lines(app)) if "not watched" in text))
        assert text_of(app) == before
        rows = [y for y, text in enumerate(lines(app)) if "lr-" in text[:12]]
        for y in rows[:2]:
            name = re.search(r"lr-\d", lines(app)[y])
            await click(pilot, 5, y)
            assert app.list.cursor == Path("/runs") / name[0]
            y = next(at for at, text in enumerate(lines(app)) if text.startswith("▸"))
            assert name[0] in lines(app)[y]
        await click(pilot, 5, y)
    assert app.return_value == ("open", Path("/runs") / name[0])


def test_runs_are_sorted_within_their_sweep_and_unknown_comes_last() -> None:
    def names(by: str, falling: bool) -> list[list[str]]:
        return [[run.entry.name for run in group.rows] for group in ordered(fleet(), by, falling)]

    assert names("", True) == [[run.entry.name for run in group.rows] for group in fleet()]
    fast, slow = names("speed", True), names("speed", False)
    assert next(group for group in fast if len(group) == 3) == ["lr-2", "lr-0", "lr-1"]
    assert next(group for group in slow if len(group) == 3) == ["lr-1", "lr-0", "lr-2"]
    assert names("left", True)[0] == ["pulsar"] == names("left", False)[0]


async def test_a_key_of_the_foot_of_the_runs_can_be_clicked() -> None:
    app = Chosen().app
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause(0.05)
        await pilot.pause()
        await click(pilot, lines(app)[-1].index("mark"), 23)
        assert len(app.list.marked) == 1
        await click(pilot, lines(app)[-1].index("quit"), 23)
    assert app.return_value is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: TrainmonApp(HandFeed(views.running()), title="run", ink=TerminalCapabilities()),
        lambda: Chosen().app,
    ],
)
async def test_a_key_gives_the_mouse_to_the_terminal_and_takes_it_back(make: Callable[[], App[object]], sent) -> None:
    app = make()
    async with app.run_test(size=(160, 45), notifications=True) as pilot:
        await press(pilot, "V")
        told = "MOUSE SELECTS TEXT, V to leave" if isinstance(app, TrainmonApp) else "selects text; V takes it back"
        assert "\x1b[?1003l" in "".join(sent) and told in text_of(app)
        sent.clear()
        await press(pilot, "V")
        assert "\x1b[?1003h" in "".join(sent) and "MOUSE SELECTS" not in text_of(app)
