"""The socket of a training: who is heard, what is understood, and what becomes of it. Real processes and sockets."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainhooks.protocol import control
from trainhooks.recording.control_socket import ControlSocket

from .conftest import LIMIT, Trainings, wait_for

# Steps until the file `go` is gone.
STEPS = """
open('go', 'w').close()
for i in th.steps(range(1_000_000)):
    sleep(0.005)
    if not os.path.exists('go'): break
"""
NO_TORCH = "torch is not loaded"  # what a training of the standard library alone answers

needs_root = pytest.mark.skipif(
    os.getuid() != 0 or not shutil.which("setpriv"),
    reason="LOUD: only root, with setpriv, can become another user to try it",
)


@pytest.fixture
def train(train: Trainings) -> Iterator[Trainings]:
    """As elsewhere, with a state directory whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="th-", dir="/tmp") as directory:
        train.state = Path(directory) / "s"
        yield train


def sockets(train: Trainings) -> list[Path]:
    return sorted(train.state.glob("runs/*/control-*"))


def listening(train: Trainings, count: int = 1) -> Path:
    wait_for(lambda: len(sockets(train)) == count)
    return sockets(train)[-1]


def started(train: Trainings, source: str = STEPS) -> tuple[subprocess.Popen[str], Path]:
    process = train.start(source)
    wait_for(lambda: sockets(train) or process.poll() is not None)
    return process, listening(train)


def ended_well(train: Trainings, process: subprocess.Popen[str]) -> None:
    (train.work / "go").unlink()
    _, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, err) == (0, "")


def sent(path: Path, data: bytes, more: bool = False) -> dict[str, Any]:
    """Send bytes, and return the answer; the connection is closed after it."""
    with socket.socket(socket.AF_UNIX) as caller, control.address(path) as address:
        caller.settimeout(LIMIT)
        caller.connect(str(address))
        caller.sendall(data)
        if not more:
            caller.shutdown(socket.SHUT_WR)
        with caller.makefile("rb") as answer:
            (line,) = answer.readlines()
    return dict(json.loads(line))


def asked(path: Path) -> dict[str, Any]:
    return sent(path, control.TraceRequest().line(), more=True)


def refuses_for_lack_of_torch(path: Path) -> bool:
    return asked(path) == {"status": "refused", "reasons": [NO_TORCH]}


def test_it_is_private_answers_and_ends_with_the_process(train: Trainings) -> None:
    blocking = "import socket; socket.setdefaulttimeout(3600)\n"
    process, path = started(train, blocking + STEPS)
    status, above = path.lstat(), path.parent.stat()
    assert stat.S_ISSOCK(status.st_mode) and stat.S_IMODE(status.st_mode) == 0o600
    assert stat.S_IMODE(above.st_mode) == 0o700
    wait_for(lambda: refuses_for_lack_of_torch(path))
    ended_well(train, process)
    assert not sockets(train)


def test_a_process_without_steps_says_so(train: Trainings) -> None:
    process, path = started(train, "th.note('here')\nopen('go', 'w').close()\nwhile os.path.exists('go'): sleep(0.01)")
    assert asked(path) == {"status": "idle", "reasons": ["no step has begun in this process"]}
    ended_well(train, process)


SECRET = """
def secretly(token):
    open('go', 'w').close()
    while os.path.exists('go'): sleep(0.01)
with th.step(): pass
secretly('hun' + 'ter2')
"""


def test_stacks_hold_places_and_no_values(train: Trainings) -> None:
    process, path = started(train, SECRET)
    wait_for((train.work / "go").exists)
    with socket.socket(socket.AF_UNIX) as caller, control.address(path) as address:
        caller.settimeout(LIMIT)
        caller.connect(str(address))
        caller.sendall(control.StackRequest().line())
        with caller.makefile("rb") as answer:
            (line,) = answer.readlines()
    threads, left_out = control.read_stacks(line) or ([], -1)
    assert left_out == 0 and [each.is_main for each in threads].count(True) == 1
    assert "secretly" in [frame.function for frame in threads[0].frames] and b"hun" not in line
    ended_well(train, process)


def test_each_request_is_a_line_of_the_journal(train: Trainings) -> None:
    process, path = started(train)
    assert refuses_for_lack_of_torch(path)
    sent(path, control.StackRequest().line())
    sent(path, control.MemoryRequest().line(), more=True)
    ended_well(train, process)
    (journal,) = train.state.glob("runs/*/rank-0-*.jsonl")
    notes = [row for row in map(json.loads, journal.read_text().splitlines()) if row["kind"] == "note"]
    assert {row["text"] for row in notes if row["code"] == "asked"} == {
        "asked for a trace of 3 steps",
        "asked for stacks",
        "asked for what holds its memory",
    }


HOSTILE = {
    b"\n": "the request is no line of JSON",
    b"\xff\xfe\x00\n": "the request is no line of JSON",
    b"[" * 4000 + b"\n": "the request is no line of JSON",
    b"[1]\n": "the request is no line of JSON",
    b'{"kind":"stop"}\n': "unknown request; this version of the hooks knows: trace, stack, memory",
    b'{"kind":["trace"]}\n': "unknown request; this version of the hooks knows: trace, stack, memory",
    b'{"kind":"trace","steps":0}\n': "steps must be 1 to 10",
    b'{"kind":"trace","steps":11}\n': "steps must be 1 to 10",
    b'{"kind":"trace","steps":true}\n': "steps must be 1 to 10",
    b'{"kind":"trace","steps":1e9}\n': "steps must be 1 to 10",
    b'{"kind":"trace","anyway":"yes"}\n': "events and anyway must be true or false",
    b'{"kind":"memory","growth":1}\n': "growth must be true or false",
    b'{"kind":"trace"': "the request has no end",
    b"": "the request has no end",
}


def test_what_is_no_request_is_refused_with_the_reason(train: Trainings) -> None:
    process, path = started(train)
    for data, why in HOSTILE.items():
        assert sent(path, data) == {"status": "refused", "reasons": [why]}, data[:40]
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(path))
        caller.sendall(b"x" * 10_000)
        assert b"the request is longer than 4096 bytes" in caller.recv(4096)
    assert refuses_for_lack_of_torch(path)
    ended_well(train, process)


def test_half_a_line_and_silence_hold_nobody_up_for_long(train: Trainings) -> None:
    process, path = started(train)
    with socket.socket(socket.AF_UNIX) as silent, socket.socket(socket.AF_UNIX) as half:
        for caller, data in ((silent, b""), (half, b'{"kind":')):
            caller.connect(str(path))
            caller.sendall(data)
        assert refuses_for_lack_of_torch(path)
        assert b"the request has no end" in half.recv(4096)
    ended_well(train, process)


def test_it_is_off_by_setting_and_says_so(train: Trainings) -> None:
    told = train("for _ in th.steps(range(3)): written()", TRAINMON_CONTROL="0")
    assert not list(told.run.glob("control-*"))
    assert any(event.get("facts", {}).get("control") == "off: by setting" for event in told.kind("facts"))
    assert told.report.run.facts.control == "off: by setting"


def test_a_forked_child_does_not_keep_it_open(train: Trainings) -> None:
    process, path = started(
        train,
        """
        for i in th.steps(range(2)): written()
        child = os.fork()
        if not child:
            open('forked', 'w').close(); sleep(600); os._exit(0)
        open('child', 'w').write(str(child))
        while True: sleep(1)
        """,
    )
    wait_for(lambda: (train.work / "child").exists() and (train.work / "child").read_text())
    wait_for(lambda: (train.work / "forked").exists())  # it has run what runs after a fork
    child = int((train.work / "child").read_text())
    try:
        process.kill()
        process.wait()
        os.kill(child, 0)  # it lives
        with pytest.raises(ConnectionRefusedError), socket.socket(socket.AF_UNIX) as caller:
            caller.connect(str(path))
    finally:
        os.kill(child, signal.SIGKILL)


def test_an_exec_takes_it_away_and_one_that_fails_does_not(train: Trainings) -> None:
    process, path = started(
        train,
        """
        open('broken', 'w').write('no program'); os.chmod('broken', 0o700)
        for i in th.steps(range(1_000_000)):
            sleep(0.005)
            if i == 20:
                try: os.execv('broken', ['broken'])
                except OSError: open('failed', 'w').close()
            if os.path.exists('now'): os.execv('/bin/sleep', ['sleep', '600'])
        """,
    )
    wait_for((train.work / "failed").exists)
    wait_for(lambda: path.exists() and refuses_for_lack_of_torch(path))
    (train.work / "now").touch()
    wait_for(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n")
    assert not sockets(train)


def test_a_program_that_closes_all_descriptors_can_be_asked_again(train: Trainings) -> None:
    process, path = started(train, "for _ in th.steps(range(9)): written()\nos.closerange(3, 2000)\n" + STEPS)
    wait_for((train.work / "go").exists)
    wait_for(lambda: path.exists() and _answers(path))
    ended_well(train, process)


def _answers(path: Path) -> bool:
    try:
        return refuses_for_lack_of_torch(path)
    except (ConnectionRefusedError, FileNotFoundError, ValueError):
        return False


def test_a_path_that_is_too_long_for_a_socket(train: Trainings) -> None:
    train.state = train.work / ("long" * 30) / ("er" * 60)
    process, path = started(train)
    assert len(str(path)) > control.MAX_ADDRESS
    wait_for(lambda: refuses_for_lack_of_torch(path))
    ended_well(train, process)


def test_a_run_that_is_removed_meanwhile(train: Trainings) -> None:
    process, path = started(train)
    shutil.rmtree(path.parent)
    ended_well(train, process)


@pytest.mark.parametrize("place", ["/proc/self/no-sockets-here", "/nowhere/at/all"])
def test_where_there_can_be_none_it_is_off_for_good(place: str) -> None:
    listener = ControlSocket(Path(place))
    assert listener.poll() is None
    assert listener.status is not None and listener.status.startswith("off: ")
    assert listener.poll() is None


def test_ranks_have_sockets_of_their_own(train: Trainings) -> None:
    run = train.state / "runs" / "job"
    run.mkdir(parents=True, mode=0o700)
    processes = [train.start(STEPS, TRAINMON_RUN=str(run), RANK=str(rank), WORLD_SIZE="2") for rank in range(2)]
    listening(train, count=2)
    assert [path.name.split("-")[2] for path in sockets(train)] == ["0", "1"]
    for path in sockets(train):
        wait_for(lambda path=path: refuses_for_lack_of_torch(path))  # type: ignore[misc]
    for process in processes:
        process.kill()


@needs_root
def test_another_user_is_not_heard_even_where_a_directory_is_open(train: Trainings) -> None:
    process, path = started(train)
    call = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendall(b'{}\\n'); "
    words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-c"]
    refused = subprocess.run([*words, call, str(path)], capture_output=True, text=True, cwd="/")
    assert "PermissionError" in refused.stderr
    for directory in (path.parent, *path.parent.parents):
        if stat.S_IMODE(directory.stat().st_mode) & 0o011 != 0o011:
            os.chmod(directory, 0o711)
    os.chmod(path, 0o666)
    heard = subprocess.run([*words, call + "print(s.recv(99))", str(path)], capture_output=True, text=True, cwd="/")
    assert heard.stdout in ("b''\n", "") and "PermissionError" not in heard.stderr
    assert refuses_for_lack_of_torch(path)
    ended_well(train, process)


def test_waiting_for_nobody_costs_no_wait(tmp_path: Path) -> None:
    """A look at the socket returns at once, with a caller that says nothing, and with none."""
    listener = ControlSocket(tmp_path / "control-rank-0-x.sock")
    assert listener.poll() is None
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(tmp_path / "control-rank-0-x.sock"))
        began = time.monotonic()
        looks = 0
        while time.monotonic() < began + 0.2:
            assert listener.poll() is None
            looks += 1
    assert looks > 20
    listener.close()
    assert not list(tmp_path.iterdir())
