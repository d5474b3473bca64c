"""`trainmon import` of files that the real libraries wrote: recorded ones, and TensorBoard's as it is installed."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path
from random import Random

import pytest

from monitor.errors import UserError
from monitor.sources import tracker_files
from tests.console.conftest import FIXTURES
from tests.launch.conftest import State
from tests.launch.conftest import state as state
from trainhooks.protocol import rundir

RECORDED = FIXTURES / "trackers"
EVENTS, WANDB, TITAN = RECORDED / "events.out.tfevents", RECORDED / "run.wandb", RECORDED / "torchtitan.jsonl"
STATE = RECORDED / "trainer_state.json"


def imported(state: State, source: Path) -> dict[str, dict[str, float]]:
    done = state.call("import", str(source), "--name", "it")
    assert done.returncode == 0, done.stderr
    answer = state.call("report", "it", "--json")
    return json.loads(answer.stdout)  # type: ignore[no-any-return]


@pytest.mark.parametrize("source", [EVENTS, WANDB])
def test_tensorboard_and_wandb(state: State, source: Path) -> None:
    """Both were given 30 rows, one each 10 steps and 30 ms, by one loop."""
    told = imported(state, source)
    assert told["progress"]["steps_done"] == 300  # W&B's own count has 30
    assert told["throughput"]["tokens_per_second"] == pytest.approx(5016, rel=0.01)
    assert 200 < told["throughput"]["steps_per_second"] < 340
    assert told["metrics"]["train/loss"]["last"] == pytest.approx(0.1)
    assert told["metrics"]["train/learning_rate"]["max"] == pytest.approx(1e-3)
    assert (told["metrics"]["eval/acc"]["count"], told["metrics"]["eval/acc"]["last"]) == (3, 1.0)
    assert told["metrics"]["bad"]["last"] == "nan"
    assert rundir.read_json(state.only / "run.json")["started"] == pytest.approx(1.79587505e9, abs=60)


def test_trainer_state(state: State) -> None:
    told = imported(state, STATE)
    assert (told["progress"]["steps_done"], told["progress"]["steps_total"]) == (20, 20)
    assert told["metrics"]["loss"]["last"] == pytest.approx(4.166, abs=1e-3)
    assert told["metrics"]["learning_rate"]["max"] == pytest.approx(4e-5)
    assert told["metrics"]["eval_loss"]["count"] == 2
    assert told["throughput"]["steps_per_second"] == pytest.approx(15 / 7.9, rel=0.1)  # from step 5 on
    assert told["throughput"]["tokens_per_second"] == pytest.approx(64 * 15 / 7.9, rel=0.1)
    assert told["throughput"]["samples_per_second"] is None  # known of the whole run only


def test_torchtitan(state: State, tmp_path: Path) -> None:
    for rank in (0, 1):
        name = f"training.global_rank_{rank}.20261128-141006-ABCDEF.jsonl"
        (tmp_path / name).write_bytes(TITAN.read_bytes().replace(b'"rank": 0', b'"rank": %d' % rank))
    told = imported(state, tmp_path)
    assert told["progress"]["steps_done"] == 6
    shares = {row["name"]: row["share"] for row in told["phases"]}
    assert shares["data"] > shares["training"] > shares["optimizer"] > 0
    assert told["metrics"]["loss"]["last"] == pytest.approx(0.6)


def test_tensorboard_as_installed(state: State, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from torch.utils.tensorboard import SummaryWriter

    for start in (1, 11):  # started again: a second file in the folder
        with SummaryWriter(str(tmp_path)) as writer:
            for step in range(start, start + 10):
                writer.add_scalar("loss", 1 / step, step)
                time.sleep(0.002)
    told = imported(state, tmp_path)
    assert (told["progress"]["steps_done"], told["metrics"]["loss"]["count"]) == (20, 20)


@pytest.mark.parametrize("source", [EVENTS, WANDB, TITAN])
def test_a_file_that_was_cut_is_read_up_to_there(source: Path, tmp_path: Path) -> None:
    cut = tmp_path / source.name
    cut.write_bytes(source.read_bytes()[:-7])
    lines = tracker_files.as_lines(cut)
    assert lines is not None and len(lines.readlines()) > 5


def test_a_length_that_stands_in_a_file_is_not_believed(state: State, tmp_path: Path) -> None:
    head = struct.pack("<Q", 1 << 60)
    checked = head + struct.pack("<I", tracker_files._masked_checksum(head))
    (tmp_path / "a.tfevents").write_bytes(checked + b"x" * 100)
    (tmp_path / "b.wandb").write_bytes(WANDB.read_bytes()[:400] + b"\xff" * 5000)
    (tmp_path / "c.json").write_text('{"log_history": [' + "[" * 200_000)
    for name in ("a.tfevents", "b.wandb", "c.json"):
        done = state.call("import", str(tmp_path / name))
        assert done.returncode == 2 and done.stderr.count(b"\n") == 1, done.stderr
        assert not list(state.runs())


@pytest.mark.parametrize("source", [EVENTS, WANDB, STATE, TITAN])
def test_changed_bytes_end_in_a_mistake_or_in_lines(source: Path, tmp_path: Path) -> None:
    dice, whole = Random(7), source.read_bytes()[:20_000]
    for _ in range(100):
        data = bytearray(whole)
        for _ in range(dice.randrange(1, 6)):
            data[dice.randrange(12, len(data))] = dice.choice((0, 1, 127, 128, 255, dice.randrange(256)))
        changed = tmp_path / source.name
        changed.write_bytes(data[: dice.randrange(len(data) // 2, len(data))])
        try:
            lines = tracker_files.as_lines(changed)
        except UserError as error:
            assert "\n" not in str(error)
            continue
        for line in lines or ():
            assert isinstance(json.loads(line)["step"], int)
