"""The background thread's looks at the training thread's stack: they name the user's own line."""

from __future__ import annotations

import ast
import gc
import linecache
import os
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from trainhooks.protocol.places import Place
from trainhooks.recording import sources
from trainhooks.recording.frames import Position, Sampler, called_name, other_threads

from .conftest import Trainings, wait_for

numbers = count()

BUSY = """
import time
def encode():
    until = time.monotonic() + 0.1
    while time.monotonic() < until:
        sum(range(100))
for _ in th.steps(range(25)):
    with th.phase("forward"):
        time.sleep(0.06)
    encode()
"""


def rows(told) -> dict[str, dict[str, int]]:  # type: ignore[no-untyped-def]
    out: dict[str, dict[str, int]] = {}
    for event in told.kind("frames"):
        for where, place, looks in event["rows"]:
            out.setdefault(where, {})[str(msgspec.convert(place, Place))] = looks
    return out


def test_time_in_no_phase_has_a_line(train: Trainings) -> None:
    found = rows(train(BUSY))
    most = max(found["other"], key=found["other"].__getitem__)
    assert most.endswith("in encode"), found
    assert any(place.endswith("in <module>") for place in found["forward"]), "the user's line, not the sleep inside"


WAITING = """
import os, time
lock, held = threading.Lock(), threading.Event()
def hold():
    while True:
        with lock:
            held.set(); time.sleep(0.1)
        time.sleep(0.01)
threading.Thread(target=hold, daemon=True).start()
held.wait()
def count():
    with lock:
        pass
for _ in th.steps(range(30)):
    with th.phase("forward"):
        time.sleep(0.01)
    count()
    time.sleep(0.02)
"""


def test_the_time_in_no_phase_is_divided_by_line_and_activity(train: Trainings) -> None:
    report = train(WAITING).report
    unnamed = report.unnamed
    assert unnamed is not None
    other = next(row for row in report.phases if row.name == "other")
    assert unnamed.seconds == pytest.approx(other.mean * other.count + report.wall.between_steps)
    assert sum(part.seconds for part in unnamed.parts) == pytest.approx(unnamed.seconds)
    first, second = [part for part in unnamed.parts if part.place is not None][:2]
    assert first.activity == "lock" and (first.place or "").endswith("in count")
    assert second.activity in ("sleep", None) and first.seconds > second.seconds


def test_it_can_be_turned_off(train: Trainings) -> None:
    assert rows(train(BUSY, TRAINMON_FRAMES="0")) == {}


def test_a_pulse_says_where_a_long_phase_stands(train: Trainings) -> None:
    told = train("import time\nwith th.step():\n  with th.phase('generation'):\n    time.sleep(7)")
    frames = [pulse["frame"] for pulse in told.kind("pulse") if pulse.get("frame")]
    assert frames and all("in <module>" in frame for frame in frames)


WRITING = """
import json, tempfile
file = tempfile.NamedTemporaryFile("w")
rows = [float(i) for i in range(200_000)]  # some 50 ms: a look waits for 5 ms until Python gives way
until = time.monotonic() + 3
for _ in th.steps(iter(lambda: time.monotonic() < until, False)):
    with th.phase("forward"):
        time.sleep(0.002)
    json.dump(
        rows, file
    ); file.flush()
    total = sum(min(i, 3) for i in range(20000))
"""


def test_what_is_called_there_is_named_too(train: Trainings) -> None:
    found = rows(train("import time\n" + WRITING))["other"]
    assert any(" (json.dump) in <module>" in place for place in found), found


LIBRARY = """
import sys, types
from pathlib import Path
package = Path.cwd() / "site-packages" / "trainer_library"
package.mkdir(parents=True)
(package / "__init__.py").write_text("")
(package / "trainer.py").write_text('''
import time
class Trainer:
    def train(self, seconds):
        return self._inner_training_loop(seconds)
    def _inner_training_loop(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(
                0.01)
''')
sys.path.insert(0, str(package.parent))
from trainer_library import trainer
"""


def test_a_library_that_goes_on_inside_is_named_before_the_users_line(train: Trainings) -> None:
    found = rows(
        train(
            LIBRARY
            + """
with th.step():
    trainer.Trainer().train(2.0)
"""
        )
    )["other"]
    most = max(found, key=found.__getitem__)
    inner, _, users = most.partition(", from ")
    assert inner.startswith("trainer_library/trainer.py:") and inner.endswith("in _inner_training_loop"), found
    if sys.version_info >= (3, 11):
        assert "(time.sleep)" in inner
    assert users.startswith("train0.py:") and users.endswith("in <module>"), "the user's part is whole"


def test_a_long_place_keeps_the_users_part_whole(train: Trainings) -> None:
    name = "a_function_whose_name_leaves_little_room_for_anything_else_" + "x" * 30
    found = rows(
        train(
            LIBRARY
            + f"""
def {name}():
    trainer.Trainer().train(1.5)
with th.step():
    {name}()
"""
        )
    )["other"]
    most = max(found, key=found.__getitem__)
    assert most.endswith(f"in {name}") and len(most) <= 128, found


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("here = look()", "look"),
        ("print(1, look())", "look"),
        ("box.look()", "box.look"),
        ("box.itself().look()", ".look"),
        ("box[0].look()", ".look"),
    ],
)
def test_the_call_that_goes_on_is_told_from_those_around_it(line: str, name: str, tmp_path: Path) -> None:
    """Before Python 3.11 a line with several calls names none."""
    assert called_at(line, tmp_path) in ((name,) if sys.version_info >= (3, 11) else (name, None))


def test_a_file_that_was_edited_meanwhile_names_nothing(tmp_path: Path) -> None:
    assert called_at("look()", tmp_path, after="eats(1)") is None
    assert called_at("look()", tmp_path, after="))((") is None
    assert called_at("look()", tmp_path, after="") is None


def called_at(line: str, directory: Path, after: str | None = None) -> str | None:
    """What the line is said to call, by one who looks while it calls; its file may have changed since."""
    path = directory / f"train{next(numbers)}.py"
    code = compile(line + "\n", str(path), "exec")
    path.write_text((line if after is None else after) + "\n")
    told: list[str | None] = []

    class Box(list[Any]):
        def look(self) -> None:
            told.append(called_name(Position.of(sys._getframe(1))))

        def itself(self) -> Box:
            return self

    box = Box()
    box.append(box)
    exec(code, {"box": box, "look": lambda: told.append(called_name(Position.of(sys._getframe(1))))})
    return told[0]


def test_while_the_source_is_read_the_locals_of_the_function_can_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow disk would keep tensors of a forward that has returned."""
    held: list[weakref.ref[Any]] = []
    inside, leave = threading.Event(), threading.Event()

    def forward() -> None:
        activations = {1.0, 2.0}
        held.append(weakref.ref(activations))
        inside.set()
        leave.wait()

    thread = threading.Thread(target=forward)
    alive = []

    def getline(*_: Any) -> str:
        leave.set()
        thread.join()
        alive.append(held[0]() is not None)
        return ""

    monkeypatch.setattr(sources, "line", getline)
    thread.start()
    assert inside.wait(10) and thread.ident is not None
    assert Sampler().sample(thread.ident, "forward") is not None
    assert alive and not any(alive)


def test_a_sample_after_the_end_of_its_phase_is_moved() -> None:
    def rows(ended: float, phase: str = "rollout") -> list[str]:
        sampler = Sampler()
        assert sampler.is_due(10.0)
        assert sampler.sample(threading.get_ident(), "rollout", 10.0) is not None
        sampler.phase_ended(phase, ended)
        sampler.phase_ended(phase, ended)  # once
        report = sampler.report(20.0, is_last=True)
        assert report is not None
        return [phase for phase, _, count in report.rows for _ in range(count)]

    assert rows(9.9) == ["other"]
    assert rows(10.1) == ["rollout"]
    assert rows(9.9, "forward") == ["rollout"]


def test_only_regular_files_are_read_and_only_by_those_who_may_wait(tmp_path: Path) -> None:
    fifo, file = str(tmp_path / "fifo.py"), tmp_path / "file.py"
    os.mkfifo(fifo)
    file.write_bytes(b"# -*- coding: latin-1 -*-\r\nx = '\xe4'")
    os.utime(file, (0, 0))
    assert sources.known(str(file)) is None and sources.known(fifo) is None  # asked for
    sources.read_wanted()
    assert sources.known(str(file)) == sources.Source(["# -*- coding: latin-1 -*-\n", "x = 'ä'"], False)
    assert sources.known(fifo) == sources.Source([], False)
    assert sources.line(str(file), 2) == "x = 'ä'" and sources.line(str(file), 3) == ""
    for path in ("/dev/zero", str(tmp_path), str(tmp_path / "none.py"), "\0"):
        assert sources.read(path).lines == []
    linecache.cache["<cell>"] = (5, None, ["x()\n"], "<cell>")
    assert sources.line("<cell>", 1) == "x()\n" and sources.known("<other>") == sources.Source([], False)


def test_no_source_is_parsed_while_another_thread_parses() -> None:
    """Python 3.11.0 to 3.11.7 count the depth of both as one, and fail the one that was interrupted."""
    here, told = Position.of(sys._getframe(0)), []

    def collected(phase: str, _: object) -> None:
        if phase == "start":
            looks = threading.Thread(target=lambda: told.append(called_name(here)))
            looks.start()
            looks.join()

    called_name(here)  # its source is read
    gc.callbacks.append(collected)
    try:
        ast.parse("f(1)\n" * 2000)
    finally:
        gc.callbacks.remove(collected)
    assert told


def test_the_other_threads_that_run_the_program_or_keep_it_alive_are_told() -> None:
    log, ends = threading.Lock(), threading.Event()  # by its name no lock

    def flush() -> None:
        with log:
            pass

    kept = threading.Thread(target=ends.wait, name="uploader")
    with log, ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()  # a worker that has nothing to do
        threading.Thread(target=flush, name="flush").start()
        kept.start()
        wait_for(lambda: {does for _, _, does in other_threads(Sampler(), threading.get_ident())} == {"lock", "thread"})
        found = {name: place for name, place, _ in other_threads(Sampler(), threading.get_ident())}
        ends.set()
    assert set(found) == {"flush", "uploader"}
    assert found["flush"].endswith("in flush")


STANDS = """
import threading
def judge(): threading.Event().wait()
for _ in th.steps(range(3)): pass
threading.Thread(target=judge, name="judge", daemon=True).start()
time.sleep(18)
"""


@pytest.mark.long
def test_a_pulse_tells_of_the_other_threads_once_where_nothing_goes_on(train: Trainings) -> None:
    pulses = train(STANDS).kind("pulse")
    told = [pulse["threads"] for pulse in pulses if pulse.get("threads")]
    assert len(told) == 1 and told[0][0][0] == "judge" and told[0][0][2] == "thread"
    standing = [pulse for pulse in pulses if pulse.get("frame")]
    assert len(standing) > 5 and all(pulse["busy"] < 0.5 for pulse in standing)


AWAITS = """
import asyncio
async def judge(number):
    await (asyncio.Event().wait() if number == 2 else asyncio.sleep(99))
async def score():
    await asyncio.wait_for(asyncio.gather(*(judge(number) for number in range(4))), 18)
for _ in th.steps(range(3)): pass
try: asyncio.run(score())
except TimeoutError: pass
"""


@pytest.mark.long
def test_a_pulse_tells_what_the_tasks_of_an_event_loop_wait_for(train: Trainings) -> None:
    (told,) = (pulse["threads"] for pulse in train(AWAITS).kind("pulse") if pulse.get("threads"))
    assert all(name.startswith("task ") and does == "event loop" for name, _, does in told)
    few, many = told[:2], told[2]
    assert {(place.rpartition(" ")[2], "wait, from" in place) for _, place, _ in few} == {
        ("score", False),
        ("judge", True),
    }
    assert many[0].endswith(" and 2 more") and "sleep, from" in many[1] and many[1].endswith("in judge")


RAISES = """
import threading
for _ in th.steps(range(3)): pass
threading.Thread(target=time.sleep, args=(9,)).start()
raise ValueError("a sample without a label")
"""


@pytest.mark.long
def test_a_pulse_tells_the_line_that_raised_while_a_thread_keeps_the_process_alive(train: Trainings) -> None:
    told = [pulse for pulse in train(RAISES, code=1, quiet=False).kind("pulse") if pulse.get("activity") == "raised"]
    assert told and all("in <module>" in pulse["frame"] for pulse in told)
