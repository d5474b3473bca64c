"""The run to measure by: which one it is among hundreds, and what is read for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from monitor.model.comparison.changes import GIVEN, parse_command, same_program
from monitor.model.comparison.compare import Comparison, Side
from monitor.runs import catalogue, figures_cache, follow
from monitor.runs.run_files import identity
from trainhooks.protocol import rundir
from trainhooks.protocol.events import Facts

from ..model.conftest import Story


@pytest.mark.parametrize(
    ("command", "program", "options", "others"),
    [
        ("python -u train.py --lr 1e-4 --bf16 data", "train.py", {"-u": GIVEN, "--lr": "1e-4", "--bf16": "data"}, ()),
        ("/usr/bin/python3.11 src/train.py data -v", "train.py", {"-v": GIVEN}, ("data",)),
        ("python -m pkg.train --lr=-0.5 --drop -1", "pkg.train", {"--lr": "-0.5", "--drop": "-1"}, ()),
        ("torchrun --nproc_per_node 2 train.py --x", "train.py", {"--nproc_per_node": "2", "--x": GIVEN}, ()),
        ("python -m torch.distributed.run t.py", "t.py", {"-m": "torch.distributed.run"}, ()),
        ("./trainer --width 4", "trainer", {"--width": "4"}, ()),
        ("bash run.sh big", "run.sh", {}, ("big",)),
        ("", "", {}, ()),
    ],
)
def test_commands_are_taken_apart(command: str, program: str, options: dict[str, str], others: tuple[str, ...]) -> None:
    found = parse_command(command.split())
    assert (found.program, found.options, found.others) == (program, options, others)


def known(command: str, **identity: Any) -> dict[str, Any]:
    return {"command": command.split(), "cwd": "/home/a", **identity}


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ("python train.py --model small --workers 0", True),
        ("python3.12 train.py --workers 4 --model small --seed 3 --output_dir b", True),
        ("python train.py --model small --max-steps 50 --bf16 --per_device_train_batch_size 64", True),
        ("python train.py --model large --workers 4", False),
        ("python train.py --model small --max_length 4096", False),
        ("python train.py wikitext --model small", False),
        ("python eval.py --model small --workers 4", False),
    ],
)
def test_what_may_differ_and_what_may_not(other: str, same: bool) -> None:
    assert same_program(known("python train.py --model small --workers 4"), known(other)) is same


def test_other_places_and_imported_logs_are_other_runs() -> None:
    one = known("python train.py")
    assert not same_program(one, known("python train.py", cwd="/home/b"))
    assert not same_program(one, known("python train.py", imported=True))
    assert not same_program(one, {"cwd": "/home/a"})


class Kept:
    """A state directory with runs in it."""

    def __init__(self, state: Path) -> None:
        self.state = state

    def add(
        self, name: str, started: float, steps: int = 60, exit_code: int | None = 0, seconds: float = 0.1, **fields: Any
    ) -> Path:
        told = Story(fields.pop("producer", name)).tell(Facts, facts={"cpus": fields.pop("cpus", 2)})
        for _ in range(steps):
            told.step(forward=seconds)
        run = self.state / "runs" / name
        told.bye().write(run)
        about = {"id": name, "name": name, "started": started, "host": "box", **known("python train.py"), **fields}
        (run / rundir.IDENTITY).write_text(json.dumps(about))
        if exit_code is not None:
            (run / rundir.EXIT).write_text(json.dumps({"exit_code": exit_code, "signal": None}))
        return run


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    monkeypatch.setenv(rundir.STATE_VARIABLE, str(tmp_path))
    return Kept(tmp_path)


def before(run: Path) -> str | None:
    found = figures_cache.baseline_run(run, follow.load(run, measured=False).report, follow._figures)
    return found.report.run.id if found is not None else None


def test_the_newest_comparable_one_is_taken(kept: Kept) -> None:
    kept.add("old", 1000.0)
    kept.add("right", 2000.0)
    kept.add("short", 3000.0, steps=5)
    kept.add("other-machine", 4000.0, cpus=64)
    kept.add("elsewhere", 5000.0, cwd="/home/b")
    own = kept.add("own", 6000.0)
    kept.add("later", 7000.0)
    assert before(own) == "right"


def test_one_that_ran_beside_it_is_no_measure(kept: Kept) -> None:
    kept.add("beside", 5999.0)
    assert before(kept.add("own", 6000.0)) is None


def test_without_another_there_is_none(kept: Kept) -> None:
    assert before(kept.add("own", 6000.0)) is None


def test_figures_left_behind_spare_the_reading(kept: Kept) -> None:
    earlier, own = kept.add("earlier", 1000.0), kept.add("own", 6000.0)
    report = follow.load(own, measured=False).report
    (earlier / figures_cache.FIGURES_CACHE).unlink(missing_ok=True)
    read: list[Path] = []

    def reading(path: Path) -> Side:
        read.append(path)
        return follow._figures(path)

    first = figures_cache.baseline_run(own, report, reading)
    assert first is not None and read == [earlier]
    second = figures_cache.baseline_run(own, report, reading)
    assert read == [earlier], "the figures were left"
    assert second is not None and second.loop == first.loop
    (earlier / figures_cache.FIGURES_CACHE).write_bytes(b"\x00 not what it was")
    assert figures_cache.baseline_run(own, report, reading) is not None and read == [earlier, earlier]
    assert (earlier / figures_cache.FIGURES_CACHE).stat().st_mode & 0o077 == 0


def test_figures_of_journals_that_grew_are_passed_over(kept: Kept) -> None:
    run = kept.add("grown", 1000.0)
    follow.load(run, measured=False)
    assert figures_cache.recall_figures(run) is not None
    with open(next(run.glob("rank-*.jsonl")), "ab") as journal:
        journal.write(b"{}\n")
    assert figures_cache.recall_figures(run) is None


def test_hundreds_of_runs_cost_their_identities_only(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(400):
        run = kept.state / "runs" / f"r{number}"
        run.mkdir(parents=True)
        about = {"id": run.name, "started": 1000.0 + number, **known("python other.py")}
        (run / rundir.IDENTITY).write_text(json.dumps(about))
    own = kept.add("own", 6000.0)
    looked: list[Path] = []
    monkeypatch.setattr(figures_cache, "identity", lambda path: looked.append(path) or identity(path))
    monkeypatch.setattr(catalogue, "state", lambda path: pytest.fail("no candidate: nothing more is read"))
    assert (
        figures_cache.baseline_run(own, follow.load(own, measured=False).report, lambda path: pytest.fail("read"))
        is None
    )
    assert len(looked) <= 405


def compared(one: Path, two: Path) -> Comparison:
    return follow.compared(follow.load(one, measured=False), follow.load(two, measured=False))


def test_the_interval_is_as_wide_as_repeats_differ(kept: Kept) -> None:
    one = kept.add("one", 1000.0)
    kept.add("alike", 2000.0, seconds=0.101)
    two = kept.add("two", 9000.0, seconds=0.112, **known("python train.py --foreach"))
    sure = compared(one, two)
    assert sure.more_than_noise and "repeats" not in sure.noise
    kept.add("repeat", 3000.0, seconds=0.115)
    told = compared(one, two)
    assert told.slower == sure.slower and told.more_than_noise is False and "repeats" in told.noise
    assert compared(two, one).more_than_noise is False
    far = kept.add("far", 9500.0, seconds=0.13, **known("python train.py --foreach"))
    assert compared(one, far).more_than_noise, "farther than repeats differ"


@pytest.mark.parametrize(
    "fields",
    [
        {"started": 8000.0},  # after the later one: whatever changed then may hold for it, too
        {"cwd": "/home/b"},
        {"cpus": 64},
        {"steps": 5},
        known("python train.py --batch-size 2"),
    ],
    ids=lambda fields: ",".join(fields),
)
def test_what_is_no_repeat_widens_nothing(kept: Kept, fields: dict[str, Any]) -> None:
    one = kept.add("one", 1000.0)
    kept.add("other", **{"started": 2000.0, "seconds": 0.115, **fields})
    two = kept.add("two", 7000.0, seconds=0.112)
    assert compared(one, two).more_than_noise and compared(two, one).more_than_noise


def test_a_slower_run_is_found_within_what_repeats_differ_by(kept: Kept) -> None:
    """Repeats that differ by 1.4x make a run that takes 1.3x as long no regression; alike ones leave it one."""
    for name, started in (("first", 1000.0), ("second", 2000.0)):
        kept.add(name, started)
    own = kept.add("own", 9000.0, seconds=0.13)
    codes = {found.code for found in follow.load(own).report.findings}
    assert "regressed" in codes
    follow.load(kept.add("odd", 1500.0, seconds=0.14), measured=False)  # leaves its figures
    assert "regressed" not in {found.code for found in follow.load(own).report.findings}
