"""Pictures of every screen at every size, to look at: python -m tests.tui.pictures OUT_DIR [RUN|FILE]...

Without a run or file it draws the recordings of the demos, and two large jobs that never ran.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import sample_views as views
from conftest import HandFeed

from monitor.model.report import View
from monitor.runs.replay import open_player
from monitor.tui.actions import SCREENS
from monitor.tui.app import TrainmonApp
from monitor.tui.ink import Ink

RECORDINGS = Path(__file__).parents[2] / "demo" / "recordings"
SIZES = ((200, 60), (160, 45), (120, 40), (80, 24), (60, 15))
OPENED = {"findings": "page", "steps": "step", "gpus": "gpu"}  # what Enter opens on these screens
PART = 0.7  # of a recording: somewhere in the middle of things


def of_recording(named: str) -> View:
    player = open_player(named)
    while not player.play_to(player.now - player.elapsed + PART * player.length):
        pass
    return player.view()


def sources(named: list[str]) -> Iterator[tuple[str, View]]:
    for each in named or sorted(map(str, RECORDINGS.glob("*.jsonl"))):
        yield Path(each).stem, of_recording(each)
    if not named:
        yield "8-gpus", views.running(gpus=8)
        yield "64-ranks", views.many_ranks()


async def draw(view: View, name: str, size: tuple[int, int], out: Path, ink: Ink) -> None:
    """One file a screen: the overview, each of the others, and what is opened in some."""
    app = TrainmonApp(HandFeed(view), title=name, ink=ink)

    def keep(screen: str) -> None:
        file = out / f"{name}-{size[0]}x{size[1]}-{screen}.svg"
        file.write_text(app.export_screenshot(title=" "), encoding="utf-8")

    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        keep("overview")
        for row in SCREENS:
            await pilot.press(row.key)
            await pilot.pause()
            keep(row.name)
            if row.name in OPENED:
                await pilot.press("enter")
                await pilot.pause()
                keep(OPENED[row.name])
                await pilot.press("escape")
        await pilot.press("escape", "question_mark")
        await pilot.pause()
        keep("help")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("runs", nargs="*", metavar="RUN|FILE")
    parser.add_argument("--size", action="append", metavar="WxH")
    parser.add_argument("--patterns", action="store_true", help="as with few colours")
    parser.add_argument("--ascii", action="store_true", help="as on a terminal without Unicode")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    sizes = [(int(wide), int(tall)) for wide, tall in (text.split("x") for text in chosen.size or ())] or SIZES
    for name, view in sources(chosen.runs):
        for size in sizes:
            asyncio.run(draw(view, name, size, chosen.out, Ink(chosen.patterns, chosen.ascii)))


if __name__ == "__main__":
    main()
