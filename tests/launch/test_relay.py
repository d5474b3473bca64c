"""What a run's producers send is published at one place: whole, in order, and only where libzmq cannot abort."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from monitor.running.journal_writer import Writer
from monitor.running.relay import Relay
from monitor.sources import sockets
from trainhooks.protocol import rundir
from trainhooks.protocol.events import Note
from trainhooks.protocol.journal import MAX_DATAGRAM, Notifier, datagrams

from .conftest import ROOT, State, python, wait_for


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def relay(tmp_path: Path, said: list[str]) -> Iterator[Relay]:
    made = Relay(tmp_path, said.append)
    wait_for(rundir.inbox_path(tmp_path).is_socket)
    yield made
    made.close()


@contextlib.contextmanager
def listener(run: Path) -> Iterator[zmq.Socket[bytes]]:
    """A subscriber as any program may be one."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    made = context.socket(zmq.SUB)
    made.setsockopt(zmq.SUBSCRIBE, b"")
    made.connect(f"ipc://{rundir.socket_path(run)}")
    yield made
    context.destroy(linger=0)


def test_listeners_get_the_journals_lines(tmp_path: Path, relay: Relay) -> None:
    writer = Writer(tmp_path)
    with listener(tmp_path) as heard:
        for _ in range(200):  # a subscription takes a moment to arrive
            writer.write(Note("", 0, 1.0, text="news"))
            if heard.poll(50):
                break
        assert heard.recv() in rundir.node_journal(tmp_path).read_bytes()
    writer.close()
    relay.close()
    assert not rundir.socket_path(tmp_path).exists() and not rundir.inbox_path(tmp_path).exists()


def test_a_large_batch_comes_in_pieces_of_whole_lines(tmp_path: Path, relay: Relay) -> None:
    batch = b"".join(b"%06d %s\n" % (number, b"x" * 60_000) for number in range(20))
    notifier = Notifier(tmp_path)
    with listener(tmp_path) as heard:
        while not heard.poll(50):
            notifier.send(b"up\n")
        for piece in datagrams(batch):
            while heard.poll(50):
                heard.recv()
            notifier.send(piece)
            assert heard.poll(10_000) and heard.recv() == piece
    assert b"".join(datagrams(batch)) == batch
    assert all(len(piece) <= MAX_DATAGRAM and piece.endswith(b"\n") for piece in datagrams(batch))
    notifier.close()


def test_a_successor_takes_the_place_of_one_that_was_killed(tmp_path: Path, relay: Relay, said: list[str]) -> None:
    inboxes = os.lstat(rundir.inbox_path(tmp_path)).st_ino
    successor = Relay(tmp_path, said.append)
    wait_for(lambda: os.lstat(rundir.inbox_path(tmp_path)).st_ino != inboxes)
    relay.close()
    assert rundir.inbox_path(tmp_path).is_socket(), "the successor's"
    notifier = Notifier(tmp_path)
    with listener(tmp_path) as heard:
        wait_for(lambda: notifier.send(b"news\n") or heard.poll(50))
    successor.close()
    notifier.close()
    assert said == []


def test_nobody_needs_to_receive(tmp_path: Path) -> None:
    notifier = Notifier(tmp_path)
    notifier.send(b"news\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as inbox:  # one who does not read
        inbox.bind(str(rundir.inbox_path(tmp_path)))
        notifier = Notifier(tmp_path)
        for _ in range(1000):
            notifier.send(b"x" * 1000 + b"\n")
        assert inbox.recv(4096) == b"x" * 1000 + b"\n"
    notifier.send(b"news\n")
    notifier.close()
    rundir.inbox_path(tmp_path).unlink()


# Refusals


def limited(source: str) -> str:
    """What a Python with limits of its own prints."""
    program = "import resource\nfrom monitor.sources import sockets\n" + textwrap.dedent(source)
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        ("NOFILE, (40, 40)", "fewer than 64 file descriptors are free (ulimit -n)"),
        ("AS, (1 << 30, 1 << 30)", "less than 1 GiB of memory may be reserved (ulimit -v)"),
        ("DATA, (1 << 29, 1 << 29)", "less than 1 GiB of memory may be reserved (ulimit -d)"),
    ],
)
def test_what_is_short_is_said(limit: str, why: str) -> None:
    assert limited("print(sockets.shortage())") == "None\n"
    assert limited(f"resource.setrlimit(resource.RLIMIT_{limit}); print(sockets.shortage())") == f"{why}\n"


def test_threads_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    start, left = threading.Thread.start, [0, 0, 0]

    def few(thread: threading.Thread) -> None:
        if not left:
            raise RuntimeError("can't start new thread")
        left.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", few)
    assert "4 threads" in (sockets.shortage() or "")


def test_a_subscriber_that_is_refused_reads_on_without_a_socket(
    tmp_path: Path, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "shortage", lambda: "too little")
    subscriber = sockets.Subscriber(tmp_path)
    subscriber.connect()
    assert subscriber.receive() == [] and not subscriber.wait(0.0)
    subscriber.close()


@pytest.mark.long
def test_a_recorder_with_few_descriptors_says_once_that_it_does_not_publish(state: State) -> None:
    limit = (40, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import trainhooks as th\nfor _ in th.steps(range(9)): pass"
    done = state.run(*python(code), preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limit))
    assert done.returncode == 0
    (journal,) = state.only.glob("node-*.jsonl")
    assert journal.read_bytes().count(b"no live socket: fewer than 64 file descriptors are free") == 1
    assert b"9 steps" in state.call("report").stdout
    shown = state.call("attach", "last", "--once", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limit))
    assert shown.returncode == 0 and shown.stdout
    assert shown.stderr.decode() == (
        "no live socket: fewer than 64 file descriptors are free (ulimit -n); the journals are read instead\n"
    )
    assert not rundir.socket_path(state.only).exists()
