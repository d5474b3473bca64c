"""Input without end: memory stays bounded, time goes by the length, and what is left out is counted or named."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from monitor.model.fold import MAX_DEVICES, fold
from monitor.model.state import RunState
from monitor.model.steps.step_folding import MAX_PHASES, MAX_REASONS
from monitor.model.summary import make_report
from monitor.run_facts import MAX_FACTS
from monitor.running.console_recorder import ConsoleRecorder
from monitor.runs import catalogue
from monitor.runs.follow import load
from monitor.sources.console_lines import Console
from monitor.sources.decode import decode
from monitor.sources.journal_reader import MAX_HELD, JournalTail, Sequencer
from monitor.sources.run_directory import RunDirectory
from monitor.sources.tail_file import READ_BYTES
from tests.model.conftest import around
from trainhooks.protocol import process_identity, rundir
from trainhooks.protocol.events import Event, Facts, Gpu, Hello, Metrics, Note, Span, Step
from trainhooks.protocol.limits import MAX_LINE, MAX_METRICS, OVERFLOW

MIB = 1 << 20


def grown(feed: Callable[[], object]) -> int:
    """Bytes that are kept after `feed`."""
    tracemalloc.start()
    feed()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return kept


# Names


def names(kind: str, start: int) -> Iterator[Event]:
    """Four thousand events with names that never came before."""
    for number in range(start, start + 4_000):
        name, head = f"n{number}", ("p", number + 1, 100.0 + number)
        phases = [(name, 0.1, "host", 1)]
        if kind == "metrics":
            yield Metrics(*head, values={f"{name}.{each}": 1.0 for each in range(10)})
        elif kind == "steps":
            yield Step(*head, number + 1, head[2], 0.5, phases, metrics={name: 1.0}, role=name, stage=name)
        elif kind == "skips":
            yield Step(*head, number + 1, head[2], 0.5, status="skipped", reason=name)
        elif kind == "spans":
            yield Span(*head, name=name, start=head[2], duration=0.1)
        elif kind == "facts":
            yield Facts(*head, facts={name: 1, "config": {name: 1}})
        elif kind == "gpus":
            yield Gpu(*head, uuid=name)
        else:
            yield Note(*head, text=name * 20, level="warning")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["metrics", "steps", "skips", "spans", "facts", "gpus", "notes"])
def test_names_without_end_share_a_bucket(kind: str) -> None:
    """After the limit is reached, four thousand more names (of metrics ten times as many) cost nothing."""
    state = RunState()
    fold(state, Hello("p", 0, 100.0, wall=1e9))

    def feed(start: int) -> None:
        for event in names(kind, start):
            fold(state, event)

    feed(0)
    assert grown(lambda: feed(4_000)) < 2 * MIB
    found = make_report(state, around(state))
    figures = state.main
    assert len(found.metrics) <= MAX_METRICS + 1 and (kind != "metrics" or OVERFLOW in found.metrics)
    assert len(figures.phases) <= MAX_PHASES + 1 and len(figures.baselines) <= MAX_PHASES + 1
    assert len(found.progress.skipped) <= MAX_REASONS + 1
    assert sum(found.progress.skipped.values()) == (8_000 if kind == "skips" else 0), "none is forgotten"
    assert len(state.facts.table) <= MAX_FACTS + 1 and len(state.facts.table.get("config", ())) <= MAX_FACTS + 1
    assert len(state.gpus) <= MAX_DEVICES


@pytest.mark.long
def test_the_overflow_bucket_holds_the_rest_of_a_million_names() -> None:
    state = RunState()
    fold(state, Hello("p", 0, 100.0, wall=1e9))
    for number in range(1000):
        values = {f"m{number}.{each}": 1.0 for each in range(1000)}
        fold(state, Metrics("p", number + 1, 100.0, values=values))
    found = make_report(state, around(state)).metrics
    assert len(found) == MAX_METRICS + 1 and found[OVERFLOW].count == 1_000_000 - MAX_METRICS


def test_producers_and_gaps_without_end() -> None:
    """Events that wait for others, and producers, are limited all together; the rest counts as missing."""
    sequencer = Sequencer()
    out = sum(len(sequencer.push(Note(f"p{number}", 5, 1.0, text="x"))) for number in range(60_000))
    out += len(sequencer.release_waiting())
    assert out <= MAX_HELD and sequencer.missing >= 60_000 - out


# Lines


def test_a_line_without_end_is_passed_over_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "rank-0-p.jsonl"
    good = b'{"kind":"note","producer":"p","seq":%d,"t":1.0,"text":"x"}\n'
    path.write_bytes(good % 0 + b"[" * (40 * MIB) + b"\n" + good % 1)
    tail = JournalTail(path)
    found: list[bytes] = []

    def read() -> None:
        while lines := tail.read():
            found.extend(line for line in lines if len(line) < MAX_LINE)

    assert grown(read) < MIB and [decode(line) is not None for line in found].count(True) == 2


def test_torn_and_interleaved_lines_cost_only_themselves(tmp_path: Path) -> None:
    """Two writers in one file, a half line in the middle, another at the end, NULs of a crashed disk between."""
    lines = [
        json.dumps({"kind": "note", "producer": who, "seq": n, "t": 1.0, "text": "x"})
        for n in range(50)
        for who in "ab"
    ]
    text = "\n".join(lines[:40]) + '\n{"kind":"no' + "\0" * 500 + "\n" + "\n".join(lines[40:]) + '\n{"kind":'
    (tmp_path / "rank-0-a.jsonl").write_text(text)
    source = RunDirectory(tmp_path)
    found = []
    while batch := source.poll():
        found += batch
    assert sorted((event.producer, event.seq) for event in found) == [(who, n) for who in "ab" for n in range(50)]
    assert source.missing == 1
    source.close()


# Floods


def test_a_flood_on_the_console_costs_a_look_at_its_end(tmp_path: Path) -> None:
    """A hundred megabytes between two looks: the screen skips to what is new; what is kept is bounded."""
    path = tmp_path / "console.log"
    console = Console(path)
    chunk = b"\x1b[31mstep 5/10 loss: 0.5\x1b[0m filler filler filler\n" * 20_000
    with open(path, "wb") as out:
        for _ in range(100 * MIB // len(chunk)):
            out.write(chunk)
    assert grown(console.poll) < 2 * MIB
    shown, _ = console.poll()
    assert 0 < len(shown) <= 400 and shown[-1].startswith("step 5/10")
    assert console._place.offset == path.stat().st_size, "it is at the end, not a hundred megabytes behind"


def test_a_flood_is_read_in_pieces_with_rests_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorder reads a bounded piece at a look, and rests three times as long as that took."""
    monkeypatch.setenv(rundir.STATE_VARIABLE, str(tmp_path))
    run = rundir.new_run("flood")
    (run / "console.log").write_bytes(b"x" * 10 + b"step 5/10 loss: 0.5\n" * 100_000)
    recorder = ConsoleRecorder(run)
    pauses: list[float] = []

    def over(pause: float) -> bool:
        pauses.append(pause)
        return len(pauses) > 3

    recorder.record(over)
    assert all(pause > 0 for pause in pauses[1:]), "after each piece it rests"
    read = recorder._streams[0].source.offset
    assert 0 < read <= 3 * READ_BYTES


# Clocks and pids


def timed(run: Path, times: list[float], wall: float = 1.7e9) -> Path:
    """A run whose steps end at these times, one second each."""
    run.mkdir()
    rows = [{"kind": "hello", "producer": "p", "seq": 0, "t": times[0], "wall": wall, "rank": 0}]
    for index, t in enumerate(times, 1):
        rows.append(
            {"kind": "step", "producer": "p", "seq": index, "t": t, "index": index, "start": t - 1.0, "duration": 1.0}
        )
    (run / "rank-0-p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return run


@pytest.mark.parametrize(
    "times",
    [
        [float(t) for t in range(-20, 20)], [100.0 + t - 3600 * (t > 20) for t in range(40)],
        [100.0 + t + 3600 * (t > 20) for t in range(40)], [100.0] * 40, [1e11 * (-1) ** t for t in range(40)],
    ],
    ids=["negative", "back an hour", "on an hour", "standing", "to and fro"],
)  # fmt: skip
def test_a_clock_that_jumps_gives_no_negative_time(tmp_path: Path, times: list[float]) -> None:
    known = load(timed(tmp_path / "run", times)).report
    assert known.progress.steps_done == len(times)
    wall = known.wall
    parts = [wall.startup or 0.0, wall.steps, *wall.spans.values(), wall.between_steps, wall.teardown]
    assert all(part >= 0 for part in parts) and (wall.total is None or sum(parts) == pytest.approx(wall.total))
    assert all(rate is None or rate > 0 for rate in (known.throughput.steps_per_second,))


def test_a_wall_clock_moved_by_an_hour_changes_no_duration(tmp_path: Path) -> None:
    times = [100.0 + t for t in range(40)]
    one = load(timed(tmp_path / "one", times)).report
    other = load(timed(tmp_path / "other", times, wall=1.7e9 + 3600)).report
    assert (one.wall, one.throughput, one.phases) == (other.wall, other.throughput, other.phases)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(rundir.STATE_VARIABLE, str(tmp_path))
    return tmp_path


def test_a_start_in_the_future_or_beyond_the_calendar_is_no_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(rundir.STATE_VARIABLE, str(tmp_path))
    for started in (4e9, 1e300, -5, 10**400, "nan", float("inf"), True, None, []):
        run = rundir.new_run("odd", started=started)
        assert catalogue.entry(run).state == "lost"
        load(run)
    assert len(catalogue.list_runs()) == 9


def test_a_pid_that_another_process_has_now_is_not_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(rundir.STATE_VARIABLE, str(tmp_path))
    me, ticks = os.getpid(), process_identity.start_ticks(os.getpid())
    assert catalogue.state(rundir.new_run("mine", pid=me, start_ticks=ticks))[0] == "running"
    for other in ({"start_ticks": (ticks or 0) - 1}, {"start_ticks": ticks, "boot_id": "another"}):
        run = rundir.new_run("reused", pid=me, **other)
        assert catalogue.state(run)[0] == "lost" and catalogue.processes(run) == []
    for odd in (-1, 0, 2**70, "7", [], 1.5, True):
        run = rundir.new_run("odd", pid=odd, start_ticks=ticks)
        assert catalogue.processes(run) == []
