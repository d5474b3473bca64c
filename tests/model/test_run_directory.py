"""Journals and sockets together: whatever happens to a viewer, its list of events is the journal's."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from monitor.running.relay import Relay
from monitor.sources.decode import decode
from monitor.sources.run_directory import RunDirectory
from tests.journal_lines import single_lines
from trainhooks.protocol import rundir
from trainhooks.protocol.events import Bye, Event, Hello, Note

from .conftest import ROOT, Story, line_of, wait_for

# Tells a burst of steps at each file `go1`, `go2`... that appears, and ends after the last.
PRODUCER = """
import os, sys, time
import trainhooks as th
def go(name):
    while not os.path.exists(name): time.sleep(0.01)
for burst in range(1, int(sys.argv[1]) + 1):
    go(f'go{burst}')
    for i in th.steps(range(300)):
        th.log(i=i)
        if i % 50 == 0: time.sleep(0.02)
    th.note(f'burst {burst} is over')
go('end')
"""

VIEWER = """
import sys
from pathlib import Path
from monitor.sources.run_directory import RunDirectory
source, ended = RunDirectory(Path(sys.argv[1])), False
with open(sys.argv[2], 'w') as out:
    while not ended:
        batch = source.poll()
        if not batch: source.wait(0.2)
        for event in batch:
            out.write(f'{event.seq}\\n')
            ended = ended or event.kind == 'bye'
        out.flush()
    out.write(f'missing {source.missing}\\n')
"""


class Stage:
    """A producer with viewers, in directories of the test's own."""

    def __init__(self, path: Path) -> None:
        self.run = path / "run"
        self.run.mkdir(mode=0o700)
        self.work = path / "work"
        self.work.mkdir()
        self.processes: list[subprocess.Popen[bytes]] = []
        self.relays: list[Relay] = []

    def start(self, source: str, *words: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), rundir.RUN_VARIABLE: str(self.run)}
        process = subprocess.Popen([sys.executable, "-c", source, *words], cwd=self.work, env=environment)
        self.processes.append(process)
        return process

    def relay(self) -> None:
        """Relay frames as whoever records the run does."""
        self.relays.append(Relay(self.run, pytest.fail))
        wait_for(rundir.inbox_path(self.run).is_socket)

    def view(self, name: str) -> subprocess.Popen[bytes]:
        return self.start(VIEWER, str(self.run), name)

    def viewed(self, name: str) -> list[str]:
        path = self.work / name
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def go(self, name: str) -> None:
        (self.work / name).touch()

    @property
    def journal(self) -> list[Event]:
        events = []
        for path in rundir.journals(self.run):
            data = path.read_bytes()
            events += [decode(line) for line in single_lines(data[: data.rfind(b"\n") + 1])]
        assert all(isinstance(event, Event) for event in events)
        return events  # type: ignore[return-value]

    def burst(self, number: int) -> None:
        """Let the producer tell a burst, and wait until the journal holds it."""
        self.go(f"go{number}")
        wait_for(
            lambda: any(isinstance(each, Note) and each.text.startswith(f"burst {number}") for each in self.journal)
        )


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    for process in made.processes:
        process.kill()
        process.wait()
    for relay in made.relays:
        relay.close()


def all_of(source: RunDirectory, seconds: float = 30.0) -> list[Event]:
    """Everything up to the producer's bye."""
    out: list[Event] = []
    until = time.monotonic() + seconds
    while not any(isinstance(event, Bye) for event in out):
        assert time.monotonic() < until, "no bye came"
        batch = source.poll()
        out += batch
        if not batch:
            source.wait(0.05)
    return out


def test_early_late_stopped_and_killed_viewers(stage: Stage) -> None:
    stage.relay()
    stage.start(PRODUCER, "4")
    stage.burst(1)
    viewers = {"early": stage.view("early"), "stopped": stage.view("stopped"), "killed": stage.view("killed")}
    for name in viewers:
        wait_for(lambda name=name: len(stage.viewed(name)) >= 300)
    viewers["stopped"].send_signal(signal.SIGSTOP)
    stage.burst(2)
    viewers["killed"].kill()
    stage.burst(3)
    viewers["late"] = stage.view("late")
    viewers["stopped"].send_signal(signal.SIGCONT)
    stage.burst(4)
    stage.go("end")
    for name in ("early", "stopped", "late"):
        assert viewers[name].wait(30) == 0
        assert stage.viewed(name) == [*(str(event.seq) for event in stage.journal), "missing 0"], name
    assert sum(event.kind == "step" for event in stage.journal) == 1200


@pytest.mark.parametrize("place", [rundir.socket_path, rundir.inbox_path])
@pytest.mark.parametrize("moment", ["before", "while connected"])
def test_a_socket_file_that_is_removed(stage: Stage, moment: str, place: Callable[[Path], Path]) -> None:
    stage.relay()
    stage.start(PRODUCER, "2")
    stage.burst(1)
    source = RunDirectory(stage.run)
    socket = place(stage.run)
    seen = source.poll() if moment == "while connected" else []
    socket.unlink()
    stage.burst(2)
    stage.go("end")
    with contextlib.closing(source):
        assert seen + all_of(source) == stage.journal
        assert source.missing == 0


LACKS = """
import os, time
import trainhooks as th
from trainhooks.protocol import journal
append = journal.Journal.append
def lossy(self, batch, lines):  # as on a full disk, for good
    if b'"kind":"step' not in batch: append(self, batch, lines)
journal.Journal.append = lossy
def go(name):
    while not os.path.exists(name): time.sleep(0.01)
th.note('up')
go('go1')
for _ in th.steps(range(500)): time.sleep(0.0005)
time.sleep(0.2)
go('end')
"""


def test_lines_that_the_journal_lacks_come_with_the_frames(stage: Stage) -> None:
    stage.relay()
    stage.start(LACKS)
    wait_for(lambda: stage.journal)
    source, late = RunDirectory(stage.run), RunDirectory(stage.run)
    with contextlib.closing(source), contextlib.closing(late):
        seen = source.poll()
        assert source._subscriber.wait(10)  # the next pulse: from then on the subscription is known to stand
        stage.go("go1")
        stage.go("end")
        seen += all_of(source)
        assert [event.seq for event in seen] == list(range(len(seen)))
        assert sum(event.kind == "step" for event in seen) == 500 and source.missing == 0
        # One that comes too late for the frames counts what it lacks.
        alone = all_of(late)
        assert late.missing == len(seen) - len(alone) >= 500


class Slow:
    """A socket that was read late: while the viewer stood still, one frame was lost and one came."""

    def __init__(self, path: Path, written: list[Event], came: list[Event]) -> None:
        self._path, self._written, self._came = path, written, came

    def connect(self) -> None:
        pass

    def receive(self) -> list[bytes]:
        with open(self._path, "ab") as out:
            out.writelines(line_of(event) for event in self._written)
        self._written = []
        came, self._came = self._came, []
        return [b"".join(line_of(event) for event in came)] if came else []


def test_a_gap_in_the_frames_is_filled_from_the_journal(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Story()
    for _ in range(9):
        told.step(forward=1)
    path = stage.run / "rank-0-p.jsonl"
    path.write_bytes(b"".join(line_of(event) for event in told.events[:3]))
    source = RunDirectory(stage.run)
    monkeypatch.setattr(source, "_subscriber", Slow(path, told.events[3:], told.events[6:]))
    seen: list[Event] = []
    while batch := source.poll():
        seen += batch
    assert seen == told.events and source.missing == 0


def test_several_ranks_and_a_rank_that_comes_later(stage: Stage) -> None:
    told = [Story(f"p{rank}", rank) for rank in range(3)]
    for each in told:
        each.step(forward=1).step(forward=2).bye()
    told[1].write(stage.run, 1)
    told[0].write(stage.run, 0)
    source = RunDirectory(stage.run)
    with contextlib.closing(source):
        seen = all_of(source)
        while batch := source.poll():
            seen += batch
        assert seen == told[0].events + told[1].events
        told[2].write(stage.run, 2)
        assert all_of(source) == told[2].events


def test_a_last_line_is_read_once_it_is_whole(stage: Stage) -> None:
    path = stage.run / "rank-0-p.jsonl"
    events: list[Event] = [Hello("p", 0, 1.0), Note("p", 1, 2.0, text="é" * 50)]
    line = line_of(events[1])
    path.write_bytes(line_of(events[0]) + line[:40])
    source = RunDirectory(stage.run)
    assert source.poll() == events[:1]
    assert source.poll() == [] and source.missing == 0
    with open(path, "ab") as out:
        out.write(line[40:])
    assert source.poll() == events[1:]


def test_lines_that_cannot_be_read_cost_only_themselves(stage: Stage) -> None:
    path = stage.run / "rank-0-p.jsonl"
    good: list[Event] = [Hello("p", 0, 1.0), Note("p", 1, 2.0, text="a"), Note("p", 2, 2.0, text="b")]
    bad = [b"\n", b"\x00\xff\n", b"{}\n", b"x" * 3_000_000 + b"\n", b'{"kind":"future","x":1}\n' * 50_000]
    path.write_bytes(b"".join([line_of(good[0]), *bad, line_of(good[1]), line_of(good[0]), line_of(good[2])]))
    source = RunDirectory(stage.run)
    seen: list[Event] = []
    while batch := source.poll():
        seen += batch
    assert seen == good
    assert source.missing == 3, "a blank line is nothing lost, and a long one is one"
    assert source.share_read() is None


def test_a_line_longer_than_any_is_one_line_however_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "rank-0-p.jsonl"
    told = Story().step(forward=1)
    path.write_bytes(line_of(told.events[0]))
    source = RunDirectory(tmp_path)
    found = source.poll()
    for piece in (b"x" * 20_000_000, b"x", b"x" * 100, b"x\n\r\n \n" + line_of(told.events[1])):
        with path.open("ab") as journal:
            journal.write(piece)
        while batch := source.poll():
            found += batch
    assert (source.missing, found) == (1, told.events)
    source.close()


def lines_of_steps(count: int) -> list[bytes]:
    told = Story()
    for _ in range(count):
        told.step(forward=1)
    return [line_of(event) for event in told.events]


def newer_kind(line: bytes) -> bytes:
    return line.replace(b'"kind":"step"', b'"kind":"novelty"')


def all_there(source: RunDirectory) -> list[Event]:
    """What is due now, and what waited for lines that did not come."""
    return [event for _ in range(3) for event in source.poll()]


def test_what_is_lost_counts_once_and_a_newer_kind_is_no_loss(tmp_path: Path) -> None:
    lines = lines_of_steps(40)
    newer = newer_kind(lines[7])
    lines[7:12] = [newer, b"torn {\n", b"\xff\n", *lines[10:12]]  # two that cannot be read stand for 8 and 9
    lines[20:20] = [b"words of nobody\n"]  # in nobody's place
    del lines[30:34]
    run = tmp_path / "run"
    run.mkdir()
    (run / "rank-0-p.jsonl").write_bytes(b"".join(lines))
    source = RunDirectory(run)
    found = all_there(source)
    assert source.missing == 2 + 1 + 4
    assert len(found) == 41 - 1 - 2 - 4
    source.close()


def test_a_lost_line_before_lines_of_a_newer_kind_is_one_line(tmp_path: Path) -> None:
    lines = lines_of_steps(8)
    lines[5:7] = [newer_kind(line) for line in lines[5:7]]
    (tmp_path / "rank-0-p.jsonl").write_bytes(b"".join([*lines[:4], *lines[5:7]]))
    source = RunDirectory(tmp_path)
    found = all_there(source)
    with (tmp_path / "rank-0-p.jsonl").open("ab") as journal:
        journal.write(b"".join(lines[7:]))
    found += all_there(source)
    assert (source.missing, len(found)) == (1, 4 + 2)
    source.close()


def test_a_torn_line_is_lost_though_a_newer_kind_s_line_has_its_number(tmp_path: Path) -> None:
    lines = lines_of_steps(20)
    lines[10:11] = [newer_kind(lines[10]), lines[10][:40] + b"\n"]
    (tmp_path / "rank-0-p.jsonl").write_bytes(b"".join(lines))
    source = RunDirectory(tmp_path)
    found = all_there(source)
    assert (source.missing, len(found)) == (1, 20)
    source.close()


def test_going_on_from_a_position(stage: Stage) -> None:
    told = Story()
    for _ in range(20):
        told.step(forward=1)
    path = told.bye().write(stage.run)
    whole = path.read_bytes()
    half = whole.index(b'"seq":10')
    path.write_bytes(whole[: whole.index(b"\n", half) + 1])
    first = RunDirectory(stage.run)
    seen = first.poll()
    path.write_bytes(whole)
    second = RunDirectory(stage.run)
    second.move_to(first.position())
    assert seen + all_of(second) == told.events
