"""`trainmon report FILE` and `trainmon compare FILE FILE`: a recording is told as a run is, and called a recording."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from monitor.runs.replay import open_player, recorded
from tests.launch.conftest import State
from tests.model.conftest import Story
from tests.model.device_stories import hf_trainer, matmul
from trainhooks.protocol.encoding import encoder, to_dict
from trainhooks.protocol.events import Exit

encode = encoder()


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path / "state")


def write(path: Path, story: Story, *, torn: bool = False) -> str:
    lines = [encode(to_dict(event)) + b"\n" for event in sorted(story.events, key=lambda event: event.t)]
    path.write_bytes(b"".join(lines)[: -30 if torn else None])
    return str(path)


def ended(story: Story) -> Story:
    return story.bye().tell(Exit, exit_code=0)


def out(state: State, *words: str) -> str:
    done = state.call(*words)
    assert (done.returncode, done.stderr) == (0, b""), done.stderr
    return done.stdout.decode()


def test_a_recording_is_reported_as_it_stands_at_its_end(state: State, tmp_path: Path) -> None:
    told = out(state, "report", write(tmp_path / "gpt2.jsonl", ended(hf_trainer())))
    assert told.startswith("gpt2") and "a recording, at its end" in told
    assert "finished (exit code 0)" in told and "GPU-bound" in told
    assert "no bottleneck found" in told and "warning:" not in told, "it is healthy"


def test_the_same_as_json(state: State, tmp_path: Path) -> None:
    file = write(tmp_path / "gpt2.jsonl", ended(hf_trainer()))
    told = json.loads(out(state, "report", file, "--json"))
    assert told["run"]["recording"] is True and told["run"]["id"] == "gpt2"
    assert told["outcome"]["state"] == "finished" and told["device"]["bound"] == "device"
    assert {row["clock"] for row in told["phases"]} == {"cuda"}
    assert {row["clock"] for row in told["host_phases"]} == {"host"}
    assert told["gpus"][0]["utilization"] == 94.0


def test_two_recordings_are_compared(state: State, tmp_path: Path) -> None:
    files = [
        write(tmp_path / name, ended(story)) for name, story in (("a.jsonl", matmul(10)), ("b.jsonl", hf_trainer()))
    ]
    assert "b against a: " in out(state, "compare", *files)
    (told,) = json.loads(out(state, "compare", *files, "--json"))["comparisons"]
    assert (told["before"], told["after"]) == ("a", "b")
    assert told["step_seconds"] == [pytest.approx(0.037, rel=0.05), pytest.approx(0.154, rel=0.05)]


def test_a_run_is_not_compared_with_itself(state: State, tmp_path: Path) -> None:
    file = write(tmp_path / "gpt2.jsonl", ended(hf_trainer()))
    result = state.call("compare", str(file), str(file))
    assert result.returncode == 2 and b"is both runs" in result.stderr


def test_a_recording_that_breaks_off_is_told_as_far_as_it_goes(state: State, tmp_path: Path) -> None:
    told = json.loads(out(state, "report", write(tmp_path / "torn.jsonl", hf_trainer(), torn=True), "--json"))
    assert told["outcome"]["state"] == "lost" and told["progress"]["steps_done"] > 50
    assert told["device"]["clock"] == "cuda"


def test_it_is_what_a_replay_shows_at_its_end(tmp_path: Path) -> None:
    file = write(tmp_path / "gpt2.jsonl", ended(hf_trainer()))
    player = open_player(file)
    while not player.play_to(1e12, 60):
        pass
    assert recorded(Path(file)).report == player.view().report


@pytest.mark.parametrize("text", ["", "no journal\n", '{"a": 1}\n', "\x00\xff\n" * 20])
@pytest.mark.parametrize("words", [("report",), ("report", "--json"), ("compare", "--json")])
def test_a_file_that_is_no_recording_is_one_line(
    state: State, tmp_path: Path, words: tuple[str, ...], text: str
) -> None:
    path = tmp_path / "log.txt"
    path.write_text(text)
    done = state.call(*words, *[str(path)] * (2 if words[0] == "compare" else 1))
    (line,) = done.stderr.decode().splitlines()
    assert (done.returncode, done.stdout) == (2, b"") and "holds no events" in line


def test_a_file_that_is_not_there_is_taken_for_a_run(state: State, tmp_path: Path) -> None:
    done = state.call("report", str(tmp_path / "none.jsonl"))
    (line,) = done.stderr.decode().splitlines()
    assert done.returncode == 2 and line.startswith("trainmon: ")
