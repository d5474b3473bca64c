"""Walks through all screens of several runs, each at another size, held as text: nothing is clipped, moved or lost.

After a wanted change: pytest tests/tui/test_tui_walks.py --snapshot-update, and read what has changed.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import sample_job
import sample_views as views
from conftest import HandFeed, text_of
from pictures import RECORDINGS, Still, every_screen, of_recording, the_runs
from sample_fleet import HandRuns, fleet
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from textual.app import App

from monitor.tui.app import TrainmonApp
from monitor.tui.ink import Ink
from monitor.tui.replay import ReplayApp
from monitor.tui.runs_app import RunsApp

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
)
SIZES = ((200, 60), (160, 45), (120, 40), (80, 24), (60, 15))


class Texts(SingleFileSnapshotExtension):
    _write_mode = WriteMode.TEXT
    _file_extension = "txt"

    def serialize(self, data: str, **_: object) -> str:
        return data


@pytest.fixture
def held(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(Texts)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sample_job.write(tmp_path_factory.mktemp("job") / "64-ranks.jsonl")


def made(name: str, part: float, job: Path) -> TrainmonApp:
    if name == "8-gpus":
        return TrainmonApp(HandFeed(views.running(gpus=8)), title=name, ink=Ink())
    file = job if name == job.stem else RECORDINGS / f"{name}.jsonl"
    return ReplayApp(Still(of_recording(str(file), part)), title=name, ink=Ink())


async def walked(app: App[object], size: tuple[int, int], walk: object) -> str:
    pages: list[str] = []

    def keep(screen: str) -> None:
        text = "\n".join(line.rstrip() for line in text_of(app).split("\n"))
        pages.append(f"{f' {screen} ':=^{size[0]}}\n{text}\n")

    async with app.run_test(size=size) as pilot:
        await walk(pilot, keep)  # type: ignore[operator]
    return "\n".join(pages)


@pytest.mark.parametrize(("name", "part", "size"), WALKS, ids=lambda value: str(value).strip("()").replace(", ", "x"))
async def test_all_screens_of_a_run(held: SnapshotAssertion, job: Path, name: str, part: float, size) -> None:
    text = await walked(made(name, part, job), size, every_screen)
    assert "……" not in text and all(len(line) <= size[0] for line in text.split("\n"))
    assert text == held


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_the_screen_of_all_runs(held: SnapshotAssertion, size) -> None:
    runs = RunsApp(HandRuns(fleet()), lambda paths: "", lambda path, say: True)
    assert await walked(runs, size, the_runs) == held
