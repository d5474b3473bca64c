"""`trainmon trace`: real trainings on the host that are asked for traces, by the real command."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Terminal
from tests.journal_lines import events_in
from tests.launch.conftest import State, python, wait_for
from tests.signals import send_signal

LOOP = """
import os, sys, time
import torch
import trainhooks as th
os.chdir(DIRECTORY)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
BEFORE
for i in th.steps(range(10**9)):
    with th.phase('data'):
        x = torch.randn(16, 64)
    with th.phase('forward'):
        loss = model(x).square().mean()
    loss.backward(); optimizer.step(); optimizer.zero_grad()
    time.sleep(0.01)
    AFTER
    if os.path.exists('stop'): break
"""


class Live:
    """A training that goes on until the test has ended."""

    def __init__(
        self, directory: Path, before: str = "", after: str = "pass", *, beside: bool = False, **environment: str
    ) -> None:
        self.directory = directory
        self.stop = directory / "stop"
        self.state = State(directory / "state")
        self.state.environment.update(environment)
        source = LOOP.replace("DIRECTORY", repr(str(directory))).replace("BEFORE", before).replace("AFTER", after)
        if beside:  # the main thread
            inside = textwrap.indent(source, "    ")
            source = (
                f"import threading\ndef main():\n{inside}\nit = threading.Thread(target=main); it.start(); it.join()\n"
            )
        self.front = self.state.start(*python(source))
        self.run = self.state.only
        wait_for(lambda: self.steps() > 20 or self.front.poll() is not None)
        assert self.front.poll() is None

    @property
    def journal(self) -> Path | None:
        return next(iter(self.run.glob("rank-0-*.jsonl")), None)

    def steps(self) -> int:
        events = events_in(self.journal) if self.journal is not None else []
        return max((event["index"] for event in events if event["kind"] == "step"), default=0)

    def trace(self, *options: str) -> subprocess.CompletedProcess[bytes]:
        return self.state.call("trace", self.run.name, *options, timeout=100)

    def end(self) -> tuple[bytes, bytes]:
        self.stop.touch()
        told: tuple[bytes, bytes] = self.front.communicate(timeout=60)
        return told


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A training that the tests of this module share."""
    made = Live(tmp_path_factory.mktemp("live"))
    yield made
    made.end()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Live]]:
    begun: list[Live] = []

    def begin(*arguments: str, beside: bool = False, **environment: str) -> Live:
        begun.append(Live(tmp_path, *arguments, beside=beside, **environment))
        return begun[-1]

    yield begin
    for each in begun:
        each.end()


def asked_traces(live: Live) -> list[dict[str, object]]:
    assert live.journal is not None
    return [event for event in events_in(live.journal) if event["kind"] == "trace" and "asked" in event]


@pytest.mark.parametrize("steps", [1, 5, 10])
def test_it_prints_what_ran_in_so_many_steps(live: Live, steps: int) -> None:
    told = live.trace("--steps", str(steps))
    assert (told.returncode, told.stderr) == (0, b"")
    (first, *_) = told.stdout.decode().splitlines()
    assert first == "Traced operators" and b"aten::addmm" in told.stdout
    trace = asked_traces(live)[-1]
    assert trace["steps"] == steps
    assert f"  {steps} step{'s' * (steps > 1)} from step {trace['first']:,} on," in told.stdout.decode()
    assert live.journal is not None
    measured = {event["index"] for event in events_in(live.journal) if event.get("measured")}
    assert {int(str(trace["first"])) + place for place in range(steps)} <= measured


def test_as_json(live: Live) -> None:
    told = live.trace("--json")
    found = json.loads(told.stdout)
    assert (found["run"], found["rank"], found["trace"]["steps"]) == (live.run.name, 0, 3)
    assert "aten::addmm" in {row["name"] for row in found["trace"]["kernels"]}
    assert found["trace"]["how"] == "traced"


def test_the_file_holds_every_event_and_replaces_none_unasked(live: Live, tmp_path: Path) -> None:
    output = tmp_path / "trace.json"
    told = live.trace("-o", str(output))
    assert told.returncode == 0 and b"trace.json was written: " in told.stderr
    rows = json.loads(output.read_text())["traceEvents"]
    slices = [row for row in rows if row["ph"] == "X"]
    assert {row["name"] for row in slices if row["pid"] == 0} == {"data", "forward"}
    calls = [row for row in slices if row["name"] == "aten::addmm"]
    forwards = [row for row in slices if row["name"] == "forward"]
    assert (len(calls), len(forwards)) == (6, 3)
    for row in calls:
        assert any(each["ts"] <= row["ts"] <= each["ts"] + each["dur"] for each in forwards)
    (kept,) = live.run.glob("trace-*.events")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600

    before, traces = output.read_bytes(), len(asked_traces(live))
    refused = live.trace("-o", str(output))
    assert refused.returncode == 2 and refused.stderr.endswith(b"add --yes to replace it\n")
    assert output.read_bytes() == before and len(asked_traces(live)) == traces
    replaced = live.trace("-o", str(output), "--yes")
    assert replaced.returncode == 0 and b"trace.json was replaced: " in replaced.stderr
    assert live.trace("-o", str(tmp_path / "no" / "where.json")).returncode == 2


def test_mistakes_are_one_line_and_exit_code_2(live: Live) -> None:
    for words in (("nobody",), (live.run.name, "--steps", "11"), (live.run.name, "--steps", "0"), ()):
        told = live.state.call("trace", *words)
        assert (told.returncode, told.stdout, told.stderr.count(b"\n")) == (2, b"", 1), told.stderr


@pytest.mark.long
def test_ctrl_c_ends_the_waiting_and_the_training_goes_on(start: Callable[..., Live]) -> None:
    live = start("", "while os.path.exists('hang'): open('hangs', 'w').close(); time.sleep(0.01)")
    (live.directory / "hang").touch()
    wait_for((live.directory / "hangs").exists)
    words = [sys.executable, "-m", "monitor", "trace", live.run.name]
    asking = subprocess.Popen(words, env=live.state.environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    wait_for(lambda: _is_connected(asking.pid))
    asking.send_signal(signal.SIGINT)
    _, err = asking.communicate(timeout=60)
    assert (asking.returncode, err.strip()) == (130, f"no longer waited for; {live.run.name} goes on".encode())
    assert live.front.poll() is None
    # A run that ends meanwhile.
    asking = subprocess.Popen(words, env=live.state.environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    wait_for(lambda: _is_connected(asking.pid))
    send_signal(live.state.pid(live.run), signal.SIGKILL)
    _, err = asking.communicate(timeout=60)
    assert asking.returncode == 1 and err.startswith(b"trainmon: ") and err.count(b"\n") == 1
    # One that is over; its socket was left behind.
    wait_for(lambda: live.front.poll() is not None)
    over = live.trace()
    assert over.returncode == 2 and b"is not running" in over.stderr and over.stderr.count(b"\n") == 1


def _is_connected(pid: int) -> bool:
    """Whether a process has a connected socket."""
    try:
        return any(
            os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:") for name in os.listdir(f"/proc/{pid}/fd")
        )
    except OSError:
        return False


@pytest.mark.long
def test_what_it_would_print_is_asked_about_first(start: Callable[..., Live]) -> None:
    live = start(KINETO_LOG_LEVEL="4")
    refused = live.trace()
    assert refused.returncode == 2 and refused.stderr.count(b"\n") == 1
    assert b"KINETO_LOG_LEVEL=6 is not set, and torch's profiler would print; add --yes" in refused.stderr
    assert not asked_traces(live)
    command = [sys.executable, "-m", "monitor", "trace", live.run.name]
    for answer, code in ((b"n\n", 1), (b"y\n", 0)):
        terminal = Terminal(command, live.state.environment, 120, 40)
        wait_for(lambda t=terminal: (t.read(), "Trace nevertheless? [y/N]" in t.text)[1])  # type: ignore[misc]
        assert "KINETO_LOG_LEVEL=6 is not set" in terminal.text
        os.write(terminal.master, answer)
        assert terminal.exit_code() == code
        assert len(asked_traces(live)) == (code == 0)
    assert live.trace("--yes").returncode == 0
    assert len(asked_traces(live)) == 2


@pytest.mark.long
@pytest.mark.parametrize(
    ("before", "environment", "why"),
    [
        ("", {"TRAINMON_TRACE": "0"}, b"refuses: by setting\n"),
        ("", {"KINETO_USE_DAEMON": "1"}, b"refuses: another profiler is there\n"),
        ("from torch.profiler import profile; p = profile()", {}, b"refuses: the program uses a profiler\n"),
    ],
)
def test_what_forbids_a_trace_forbids_this_one(
    start: Callable[..., Live], before: str, environment: dict[str, str], why: bytes
) -> None:
    live = start(before, **environment)
    told = live.trace("--yes")
    assert (told.returncode, told.stdout) == (1, b"") and told.stderr.endswith(why)
    assert not asked_traces(live)


@pytest.mark.long
def test_where_nobody_listens_the_reason_is_told(start: Callable[..., Live]) -> None:
    live = start(TRAINMON_CONTROL="0")
    told = live.trace("--yes")
    assert told.returncode == 2 and told.stderr.endswith(b"control is off: by setting\n")


@pytest.mark.long
def test_a_training_beside_the_main_thread_is_traced_once_its_doubt_is_known(start: Callable[..., Live]) -> None:
    live = start(beside=True)
    told = live.trace()
    assert told.returncode != 0 and b"beside the main thread" in told.stderr and b"--yes" in told.stderr
    told = live.trace("--yes")
    assert told.returncode == 0 and b"Traced operators" in told.stdout
