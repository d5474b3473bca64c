"""Walks through all screens of several runs, each at another size, held as text: nothing is clipped, moved or lost.

After a wanted change: pytest tests/tui/test_tui_walks.py --snapshot-update, and read what has changed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import sample_job
import sample_lanes
import sample_views as views
from conftest import HandFeed, text_of
from pictures import RECORDINGS, Still, every_screen, of_recording, the_runs
from sample_fleet import HandRuns, fleet
from syrupy.assertion import SnapshotAssertion
from textual.app import App

from monitor.palettes import PALETTES, PhaseTones
from monitor.tui.app import TrainmonApp
from monitor.tui.drawing.characters import TerminalCapabilities
from monitor.tui.drawing.rows import row_width
from monitor.tui.panels.base import ViewOptions
from monitor.tui.replay_app import ReplayApp
from monitor.tui.runs_app import RunsApp
from monitor.tui.screens.compare_screen import RunsCompared
from monitor.tui.screens.log_screen import MAX_LINE_ROWS, folded
from monitor.tui.screens.steps_screen import StepTable

# Each run at sizes of its own: together all sizes, without a picture of every run at every one.
WALKS = (
    ("rl-code-cpu", 0.7, (80, 24)),
    ("rl-code-cpu", 1.0, (200, 60)),
    ("sft-cpu", 0.7, (60, 15)),
    ("sft-cpu", 1.0, (160, 45)),
    ("throttle-SIMULATED-gpu", 0.7, (120, 40)),
    ("throttle-SIMULATED-gpu", 1.0, (80, 24)),
    ("8-gpus", 1.0, (120, 40)),
    ("8-gpus", 1.0, (60, 15)),
    ("64-ranks", 0.7, (200, 60)),
    ("64-ranks", 1.0, (80, 24)),
    ("two-lanes", 0.7, (60, 15)),
    ("two-lanes", 1.0, (160, 45)),
)
SIZES = ((200, 60), (160, 45), (120, 40), (80, 24), (60, 15))


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the journals of those lie that never ran."""
    folder = tmp_path_factory.mktemp("jobs")
    sample_job.write(folder / "64-ranks.jsonl")
    sample_lanes.write(folder / "two-lanes.jsonl")
    return folder


def made(name: str, part: float, jobs: Path) -> TrainmonApp:
    if name == "8-gpus":
        return TrainmonApp(HandFeed(views.running(gpus=8)), title=name, ink=TerminalCapabilities())
    file = jobs / f"{name}.jsonl"
    file = file if file.exists() else RECORDINGS / file.name
    return ReplayApp(Still(of_recording(str(file), part)), title=name, ink=TerminalCapabilities())


async def walked(app: App[object], size: tuple[int, int], walk: object) -> str:
    pages: list[str] = []

    def keep(screen: str) -> None:
        text = "\n".join(line.rstrip() for line in text_of(app).split("\n"))
        pages.append(f"{f' {screen} ':=^{size[0]}}\n{text}\n")

    async with app.run_test(size=size) as pilot:
        await walk(pilot, keep)  # type: ignore[operator]
    return "\n".join(pages)


@pytest.mark.long
@pytest.mark.parametrize(("name", "part", "size"), WALKS, ids=lambda value: str(value).strip("()").replace(", ", "x"))
async def test_all_screens_of_a_run(held: SnapshotAssertion, jobs: Path, name: str, part: float, size) -> None:
    text = await walked(made(name, part, jobs), size, every_screen)
    assert "……" not in text and all(len(line) <= size[0] for line in text.split("\n"))
    assert text == held


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_the_screen_of_all_runs(held: SnapshotAssertion, size) -> None:
    runs = RunsApp(HandRuns(fleet()), lambda paths: RunsCompared(""), lambda path, say: True)
    assert await walked(runs, size, the_runs) == held


@pytest.mark.parametrize("size", [(60, 15), (80, 24)])
async def test_columns_that_have_no_room_are_announced(size) -> None:
    app = TrainmonApp(HandFeed(views.running()), title="run", ink=TerminalCapabilities())
    async with app.run_test(size=size) as pilot:
        await pilot.press("s")
        await pilot.pause()
        title = next(line for line in text_of(app).split("\n") if "─ Steps" in line)
        assert "more columns  214 single steps" in title
        await pilot.resize_terminal(200, 60)
        await pilot.pause()
        assert "─ 214 single steps" in text_of(app), "all are there"


@pytest.mark.parametrize(("width", "words"), [(175, "▲ slow: generation grew most, hard"), (130, "  ▲ generation")])
def test_the_culprit_of_a_slow_step_is_told_whole(width: int, words: str) -> None:
    view, table = views.running(), StepTable()
    options = ViewOptions("title", PALETTES[0], PhaseTones())
    assert table.keys(view, options)
    [row] = table.entry((207, 1), view, options, width, False)
    assert "".join(part for part, _ in row).rstrip().endswith(words)


LONG = "loss " + " ".join(f"w{index}=0.123" for index in range(20)) + " THE-END"


@pytest.mark.parametrize("size", [(60, 15), (80, 24)])
async def test_long_lines_are_folded_and_what_is_looked_for_comes_to_the_lower_edge(size) -> None:
    lines = [f"line {index}" for index in range(30)] + [LONG] + [f"last {index}" for index in range(40)]
    view = replace(views.running(), console=lines, console_lines=len(lines))
    feed = HandFeed(view)
    app = TrainmonApp(feed, title="run", ink=TerminalCapabilities())
    async with app.run_test(size=size) as pilot:
        await pilot.press("l", "slash", *"w1=", "enter", "n")
        await pilot.pause()
        shown = text_of(app).split("\n")
        below = next(index for index, line in enumerate(shown) if "THE-END" in line)
        assert "find: w1=" in shown[below + 1], "all of the line is there, at the lower edge"
        assert all(f"w{index}=0.123" in text_of(app) for index in range(20))
        assert "40 lines below" in shown[2]
        more = [*lines, LONG, LONG]
        feed.push(replace(view, console=more, console_lines=len(more)))
        await pilot.pause()
        assert text_of(app).split("\n")[3:] == shown[3:], "it stays where it was put"
        assert "42 lines below" in text_of(app)


def test_lines_are_folded_behind_a_space_and_one_without_end_is_broken_off() -> None:
    assert folded("one two three four", "", 12) == [[("one two ", "muted")], [("  ", "muted"), ("three four", "muted")]]
    rows = folded("x" * 4000, "", 40)
    assert len(rows) == MAX_LINE_ROWS + 1 and "console.log" in rows[-1][0][0]
    wide = folded("損失" * 30, "失損", 21)
    assert all(row_width(row) <= 21 for row in wide) and wide[0][1] == ("失損", "background/accent bold")
