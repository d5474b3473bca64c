"""Pictures of every screen at every size, to look at: python -m tests.tui.pictures OUT_DIR [RUN|FILE]...

Without a run or file it draws the recordings of the demos, three jobs that never ran, and the list of runs.
A recording is drawn as a replay shows it: in the middle of things, and at its end. Beside each picture lies its text.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import sample_job
import sample_lanes
import sample_views as views
from conftest import HandFeed, text_of
from sample_fleet import HandRuns, fleet
from textual.app import App
from textual.pilot import Pilot

from monitor.keymap import SCREENS
from monitor.model.view import View
from monitor.runs.replay import Playback, open_player
from monitor.tui.app import TrainmonApp
from monitor.tui.drawing.characters import TerminalCapabilities
from monitor.tui.drawing.clock_lanes import two_lanes
from monitor.tui.replay_app import ReplayApp
from monitor.tui.runs_app import RunsApp
from monitor.tui.screens.compare_screen import RunsCompared

RECORDINGS = Path(__file__).parents[2] / "demo" / "recordings"
SIZES = ((200, 60), (160, 45), (120, 40), (80, 24), (60, 15))
OPENED = {"findings": "page", "steps": "step", "gpus": "gpu", "ranks": "rank"}  # what Enter opens on these screens
BY_HOST = (("h", "overview-host"), ("s", "steps-host"), ("enter", "step-host"), ("b", "breakdown-host"))
PARTS = {"": 0.7, "-end": 1.0}  # of a recording: somewhere in the middle of things, and when all is over

Keep = Callable[[str], None]


class Still(HandFeed):
    """A recording that stands still."""

    def pause(self) -> None: ...
    def faster(self, factor: float) -> None: ...
    def step(self, steps: int) -> None: ...
    def seek(self, share: float) -> None: ...


def of_recording(named: str, part: float) -> View:
    player = open_player(named)
    while not player.play_to(player.now - player.elapsed + part * player.length):
        pass
    return Playback(player).view()


def apps(named: list[str], ink: TerminalCapabilities) -> Iterator[tuple[str, Callable[[], TrainmonApp]]]:
    """Each source by its name, with what makes a dashboard on it."""
    with tempfile.TemporaryDirectory() as folder:
        job = sample_job.write(Path(folder) / "64-ranks.jsonl")
        lanes = sample_lanes.write(Path(folder) / "two-lanes.jsonl")
        for each in named or [*sorted(map(str, RECORDINGS.glob("*.jsonl"))), str(job), str(lanes)]:
            for end, part in PARTS.items():
                name, view = Path(each).stem, of_recording(each, part)
                yield name + end, lambda view=view, name=name: ReplayApp(Still(view), title=name, ink=ink)
    if not named:
        view = views.running(gpus=8)
        yield (
            "8-gpus",
            lambda: TrainmonApp(HandFeed(view), title="8-gpus", ink=ink, stop_training=lambda say: None),
        )  # as every dashboard of a run has it


async def every_screen(pilot: Pilot[str], keep: Keep) -> None:
    """The overview, each of the others, what is opened in some, and those that h shows by another clock."""
    await pilot.pause()
    keep("overview")
    shown = pilot.app._shown if isinstance(pilot.app, TrainmonApp) else None
    if shown is not None and two_lanes(shown.report):
        for key, name in BY_HOST:
            await pilot.press(key)
            await pilot.pause()
            keep(name)
        await pilot.press("h", "escape")
    for name, action in SCREENS.items():
        await pilot.press(action.keys[0])
        await pilot.pause()
        keep(name)
        if name in OPENED:
            await pilot.press("enter")
            await pilot.pause()
            keep(OPENED[name])
            await pilot.press("escape")
    await pilot.press("escape")
    for key, name in (("question_mark", "help"), ("colon", "palette"), ("ctrl+c", "quit")):
        await pilot.press(key)
        await pilot.pause()
        if not pilot.app.is_running:  # a replay is quit without a question
            return
        keep(name)
        await pilot.press("escape")


async def the_runs(pilot: Pilot[object], keep: Keep) -> None:
    """The list, with a sweep marked, and the question before one is stopped."""
    await pilot.pause(0.1)
    keep("runs")
    await pilot.press("down", "space")
    await pilot.pause()
    keep("marked")
    await pilot.press("home", "k")
    await pilot.pause()
    keep("stop")


async def draw(
    app: App[object], name: str, size: tuple[int, int], out: Path, show: Callable[[Pilot[object], Keep], object]
) -> None:
    def keep(screen: str) -> None:
        file = out / f"{name}-{size[0]}x{size[1]}-{screen}"
        file.with_suffix(".svg").write_text(app.export_screenshot(title=" "), encoding="utf-8")
        file.with_suffix(".txt").write_text(text_of(app) + "\n", encoding="utf-8")

    async with app.run_test(size=size) as pilot:
        await show(pilot, keep)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("runs", nargs="*", metavar="RUN|FILE")
    parser.add_argument("--size", action="append", metavar="WxH")
    parser.add_argument("--patterns", action="store_true", help="as with few colors")
    parser.add_argument("--ascii", action="store_true", help="as on a terminal without Unicode")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    sizes = [(int(wide), int(tall)) for wide, tall in (text.split("x") for text in chosen.size or ())] or SIZES
    for name, make in apps(chosen.runs, TerminalCapabilities(chosen.patterns, chosen.ascii)):
        for size in sizes:
            asyncio.run(draw(make(), name, size, chosen.out, every_screen))
    for size in () if chosen.runs else sizes:
        runs = RunsApp(HandRuns(fleet()), lambda paths: RunsCompared(""), lambda path, say: True)
        asyncio.run(draw(runs, "all", size, chosen.out, the_runs))


if __name__ == "__main__":
    main()
