"""The line to a host is cut, or the far side stands still: nothing is lost, and the view says what is stale."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from monitor.remote.copies import SILENT_SECONDS
from tests.launch.conftest import ROOT, TRAINMON, State, wait_for
from tests.remote.conftest import relays, trainings, via
from tests.signals import send_signal

pytestmark = pytest.mark.long


@contextmanager
def _watched(far: State, near: State) -> Iterator[Path]:
    """Attach from the near host, and give the copy's directory."""
    viewer = subprocess.Popen(
        [*TRAINMON, "attach", "--via", via(far), f"box:{far.only.name}", "--json"],
        env=near.environment,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        copy = near.path / "copies" / "box" / far.only.name
        wait_for(lambda: _size(copy) > 1000)
        yield copy
        assert viewer.wait(120) == 0
    finally:
        viewer.kill()
        viewer.wait()


def _size(run: Path) -> int:
    """Return the bytes of what the training wrote."""
    return sum(journal.stat().st_size for journal in run.glob("rank-0-*.jsonl"))


def _kill_relay(far: State, copy: Path) -> None:
    """End the far side, and wait until another one was started and has told something."""
    (relay,) = relays(far)
    send_signal(relay, signal.SIGKILL)
    wait_for(lambda: relays(far) not in ([], [relay]))
    before = _size(copy)
    wait_for(lambda: _size(copy) > before)


def _assert_same(far: State, copy: Path) -> None:
    """Nothing was lost or told twice: all journals are the same, byte by byte."""
    for journal in far.only.glob("*.jsonl"):
        assert (copy / journal.name).read_bytes() == journal.read_bytes(), journal.name
    assert (copy / "console.log").read_bytes() == (far.only / "console.log").read_bytes()


def _label(near: State, copy: Path) -> str:
    return near.call("attach", str(copy), "--once").stdout.decode().splitlines()[0]


def test_a_killed_relay_is_started_again(far: State, near: State) -> None:
    front = far.start(*trainings(150, 0.1))
    with _watched(far, near) as copy:
        _kill_relay(far, copy)
        _kill_relay(far, copy)
    assert front.wait() == 0
    _assert_same(far, copy)


def test_a_host_that_stands_still_is_told_and_comes_back(far: State, near: State) -> None:
    """The far side stops for longer than the near one is patient; the training does not notice."""
    front = far.start(*trainings(400, 0.1))
    with _watched(far, near) as copy:
        (relay,) = relays(far)
        send_signal(relay, signal.SIGSTOP)
        began = _size(far.only)
        wait_for(lambda: "box silent for" in _label(near, copy))
        assert json.loads(near.call("attach", str(copy), "--once", "--json").stdout)["outcome"]["state"] == "running"
        wait_for(lambda: relays(far) not in ([], [relay]))  # another line was opened
        assert _size(far.only) > began
        wait_for(lambda: "silent" not in _label(near, copy))
    assert front.wait() == 0
    _assert_same(far, copy)


def test_a_silent_host_is_no_stall(far: State, near: State) -> None:
    """A viewer that lost its host knows nothing: it must not say that the training stands still."""
    far.start(*trainings(3000, 0.05))
    done = near.call("attach", "--via", via(far), f"box:{far.only.name}", "--once")
    assert done.returncode == 0, done.stderr
    (copy,) = near.path.glob("copies/box/*")
    wait_for(lambda: "silent" in _label(near, copy))
    assert SILENT_SECONDS > 1
    known = json.loads(near.call("report", "--json", str(copy)).stdout)
    assert known["outcome"]["state"] == "running"
    assert not {"stalled", "lost"} & {finding["code"] for finding in known["findings"]}


def test_two_viewers_share_a_copy(far: State, near: State) -> None:
    """One writes it; when that one leaves, the other goes on."""
    front = far.start(*trainings(300, 0.1))
    with _watched(far, near) as copy:
        writer = relays(far)
        with _watched(far, near):
            wait_for(lambda: len(relays(far)) == 1)
            send_signal(int(json.loads((copy / "copy.lock").read_text())["pid"]), signal.SIGSTOP)
            send_signal(int(json.loads((copy / "copy.lock").read_text())["pid"]), signal.SIGCONT)
            assert relays(far) == writer
    assert front.wait() == 0
    _assert_same(far, copy)


def test_a_journal_that_was_cut_is_copied_anew(far: State, near: State) -> None:
    """A program may truncate its output, and a full disk a journal."""
    far.run(*trainings(30, 0.0))
    near.call("attach", "--via", via(far), "box:", "--once")
    (copy,) = near.path.glob("copies/box/*")
    (far.only / "console.log").write_bytes(b"another output\n")
    (journal,) = copy.glob("rank-0-*.jsonl")
    journal.write_bytes(b"x" * (journal.stat().st_size - 5))  # a copy that a crash has spoiled
    near.call("attach", "--via", via(far), "box:", "--once")
    _assert_same(far, copy)
