"""The header-only journal writer for C++: what it writes is what the Python side reads, and it hurts nobody."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from monitor.sources.decode import decode
from tests.native.conftest import HEADER
from trainhooks.protocol import rundir
from trainhooks.protocol.events import KINDS, Bye, Event, Facts, Hello, Metrics, Span, Step
from trainhooks.protocol.limits import MAX_LINE

Call = Callable[..., subprocess.CompletedProcess[str]]
Kind = TypeVar("Kind", bound=Event)

ITERATIONS, BATCH = 60, 32
TRAINING = ["--iters", str(ITERATIONS), "--batch", str(BATCH), "--log-every", "10", "--eval-every", "30"]


def journal(run: Path) -> list[bytes]:
    """The lines of the one journal; each ends with its line end."""
    (path,) = run.glob("rank-*.jsonl")
    assert path.stat().st_mode & 0o777 == 0o600
    written = path.read_bytes()
    assert written.endswith(b"\n")
    return written.split(b"\n")[:-1]


def events(run: Path) -> list[Event]:
    """The journal's events, with nothing unreadable and no gap among them."""
    out = []
    for line in journal(run):
        assert len(line) < MAX_LINE
        event = decode(line)
        assert isinstance(event, Event), line[:300]
        out.append(event)
    assert [event.seq for event in out] == list(range(len(out)))
    assert len({event.producer for event in out}) == 1
    assert isinstance(out[0], Hello) and (out[0].source, out[0].protocol) == ("native", 1)
    return out


def of(kind: type[Kind], found: list[Event]) -> list[Kind]:
    return [event for event in found if isinstance(event, kind)]


def seconds(step: Step) -> dict[str, float]:
    return {name: spent for name, spent, _, _ in step.phases}


def test_the_header_is_short() -> None:
    assert len(HEADER.read_text(encoding="utf-8").splitlines()) < 200


@pytest.mark.long
def test_every_line_is_of_the_schema(built: Path, call: Call, run: Path) -> None:
    assert call(built / "trainer-native", *TRAINING).returncode == 0
    for line in journal(run):
        fields: dict[str, Any] = json.loads(line)
        kind = KINDS[fields.pop("kind")]
        assert set(fields) <= {field.name for field in dataclasses.fields(kind)}
    assert {type(event) for event in events(run)} == {Hello, Facts, Span, Step, Metrics, Bye}


def test_steps_phases_and_tokens_are_exact(built: Path, call: Call, run: Path) -> None:
    assert call(built / "trainer-native", *TRAINING).returncode == 0
    found = events(run)
    assert isinstance(found[-1], Bye)
    (facts,) = of(Facts, found)
    assert (facts.name, facts.total_steps) == ("char-mlp", ITERATIONS)
    steps = of(Step, found)
    assert [step.index for step in steps] == list(range(1, ITERATIONS + 1))
    for before, step in itertools.pairwise(steps):
        assert step.start >= before.start + before.duration - 1e-9
    for step in steps:
        assert [row[0] for row in step.phases] == ["data", "forward", "backward", "optimizer"]
        assert {row[3] for row in step.phases} == {1}
        assert sum(seconds(step).values()) <= step.duration + 1e-9
        assert (step.tokens, step.samples, step.status) == (BATCH, BATCH, "ok")
        assert set(step.metrics) == {"loss", "lr"}
    assert sum(sum(seconds(step).values()) for step in steps) > 0.5 * sum(step.duration for step in steps)
    assert [span.name for span in of(Span, found)] == ["load data", "eval", "eval"]
    assert [set(event.values) for event in of(Metrics, found)] == [{"val_loss"}, {"val_loss"}]


def test_it_changes_nothing_but_the_journal(built: Path, call: Call) -> None:
    """Both builds print the same, the rates apart, and learn the same."""
    plain, native = (call(built / name, *TRAINING) for name in ("trainer", "trainer-native"))
    assert plain.returncode == native.returncode == 0 and plain.stderr == native.stderr == ""
    without_rates = [re.sub(r"Tok/s: \d+", "", each.stdout) for each in (plain, native)]
    assert without_rates[0] == without_rates[1]
    assert len(plain.stdout.splitlines()) == 1 + ITERATIONS // 10 + 2


@pytest.mark.parametrize("where", ["", "/nowhere/at/all"])  # the first would make it write into the root
def test_without_a_run_nothing_is_written(built: Path, call: Call, run: Path, tmp_path: Path, where: str) -> None:
    before = set(Path("/").iterdir())
    done = call(built / "trainer-native", *TRAINING, TRAINMON_RUN=where, TRAINMON_DIR=str(tmp_path / "state"))
    assert done.returncode == 0 and "Iter 60/60" in done.stdout
    assert list(run.iterdir()) == []
    assert {path.name for path in tmp_path.iterdir()} == {"run", "elsewhere"}
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert not [path for path in set(Path("/").iterdir()) - before if path.name.startswith("rank-")]


def test_hostile_names_and_numbers_that_are_none(probe: Path, call: Call, run: Path) -> None:
    assert call(probe, "hostile", LC_ALL="de_DE.UTF-8").returncode == 0
    found = events(run)
    steps = of(Step, found)
    assert len(steps) == 3 and len(of(Bye, found)) == 1
    for step in steps:
        metrics = step.metrics
        assert metrics['a"b\\c'] == 1.5
        assert (metrics["loss[/foo]"], metrics["minus nan"]) == ("nan", "nan")
        assert (metrics["up"], metrics["down"]) == ("inf", "-inf")
        assert (metrics["tiny"], metrics["huge"], metrics["metric number 9"]) == (1e-300, 1.7e308, 9 / 8)
        names = [row[0] for row in step.phases]
        assert "grün 日本 🚀" in names and 'phase "]} {"kind":"bye"}' in names and "x" * 128 in names
        assert len(names) == 64
    assert [step.status for step in steps] == ["ok", "skipped", "ok"]
    assert steps[1].reason == 'nothing "to" do'


def test_time_belongs_to_the_innermost(probe: Path, call: Call, run: Path) -> None:
    assert call(probe, "nested").returncode == 0
    found = events(run)
    steps, spans = of(Step, found), of(Span, found)
    assert [step.index for step in steps] == [1, 2, 3]  # the one that an exception left is none
    for step in steps:
        phases = seconds(step)
        assert set(phases) == {"outer", "inner", "step"}
        assert phases["inner"] >= 0.02 and phases["outer"] >= 0.002
        assert sum(phases.values()) <= step.duration + 1e-9
        assert {row[0]: row[3] for row in step.phases} == {"outer": 1, "inner": 2, "step": 1}
        assert (step.tokens, step.samples) == (10, 1)
    assert [span.name for span in spans] == ["load", "eval", "around"]
    around = spans[-1]
    assert around.start == steps[0].start  # what came before the first step is start-up
    assert around.own is not None
    claimed = sum(step.duration for step in steps) + spans[1].duration + around.own
    assert claimed == pytest.approx(around.duration, abs=1e-6)
    assert of(Metrics, found)[0].values == {"between": 2.0}


def test_threads_and_forked_children_are_not_heard(probe: Path, call: Call, run: Path) -> None:
    done = call(probe, "company")
    assert (done.returncode, done.stdout) == (0, "done\n")
    found = events(run)
    assert [step.index for step in of(Step, found)] == [1, 2]
    assert len(of(Bye, found)) == 1


@pytest.mark.parametrize("variables", [{"RANK": "3", "WORLD_SIZE": "4"}, {"SLURM_PROCID": "3", "SLURM_NTASKS": "4"}])
def test_its_rank(probe: Path, call: Call, run: Path, variables: dict[str, str]) -> None:
    assert call(probe, "many", **variables).returncode == 0
    assert [path.name.split("-")[:2] for path in run.glob("*.jsonl")] == [["rank", "3"]]
    hello = events(run)[0]
    assert isinstance(hello, Hello) and (hello.rank, hello.world_size) == (3, 4)


def test_it_is_alive_until_it_is_killed_and_leaves_whole_lines(probe: Path, run: Path) -> None:
    environment = {**os.environ, rundir.RUN_VARIABLE: str(run)}
    with subprocess.Popen([probe, "endless"], env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(40):
            process.stdout.readline()
        assert rundir.run_alive(run)
        process.send_signal(signal.SIGKILL)
        said = 40 + len(process.stdout.read().splitlines())
    assert not rundir.run_alive(run)
    steps = of(Step, events(run))
    assert 0 < len(steps) <= said + 1


def test_the_journal_grows_while_the_training_runs(probe: Path, run: Path) -> None:
    environment = {**os.environ, rundir.RUN_VARIABLE: str(run)}
    with subprocess.Popen([probe, "endless"], env=environment, stdout=subprocess.DEVNULL) as process:
        until = time.monotonic() + 30
        # Lines are counted, not read: the newest may be half written.
        while sum(path.read_bytes().count(b"\n") for path in run.glob("*.jsonl")) < 20:
            assert time.monotonic() < until
            time.sleep(0.02)
        process.kill()


def test_a_full_disk_costs_lines_and_nothing_else(probe: Path, run: Path) -> None:
    """SIGXFSZ stays ignored, as Python has it, so a write past the limit fails as one on a full disk does."""
    environment = {**os.environ, rundir.RUN_VARIABLE: str(run)}
    done = subprocess.run(
        [probe, "many"],
        env=environment,
        capture_output=True,
        timeout=60,
        restore_signals=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"done\n", b"")
    for line in journal(run) if next(run.glob("*.jsonl")).stat().st_size else []:
        assert isinstance(decode(line), Event)
