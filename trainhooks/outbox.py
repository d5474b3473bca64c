"""The background thread: entries -> events -> journal -> socket. Journal first, publish second.

It wakes every 50 ms, works in short slices, and lets the interpreter go between them, so that a training step never
waits long for it. Nothing here may raise into the training or outlive it by more than a second.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import socket
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from trainhooks import facts, rundir
from trainhooks.assembler import Assembler, Shared
from trainhooks.clocks import host_clock, monotonic_seconds
from trainhooks.events import MAX_LINE, MAX_NAME, Bye, Event, Hello, Note, clean, encoder, to_dict

if TYPE_CHECKING:
    from trainhooks.session import Lane, Session

WAKE = 0.05  # seconds between two looks at the lanes
SLICE = 64  # entries digested before the interpreter is let go: some 100 microseconds
PULSE = 1.0  # seconds between two pulses
EXIT_FLUSH = 1.0  # seconds that the end of the program may wait for the last lines
MAX_UNWRITTEN = 4 * 1024 * 1024  # bytes kept for a journal that cannot be written now
LINGER = 200  # milliseconds for the socket's last frame


class Outbox:
    """One per process. `start` returns at once; everything else happens in the thread."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._pid = os.getpid()
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="trainhooks", daemon=True)
        self.producer = uuid.uuid4().hex[:8]
        self._seq = 0
        self._shared = Shared()
        self._assemblers: Dict[int, Assembler] = {}
        self._encode = encoder()
        self._journal: Optional[Journal] = None
        self._publisher: Optional[Publisher] = None
        self._next_pulse = 0.0
        self._dropped = 0
        self._version_count = 0

    def start(self) -> None:
        self._thread.start()
        atexit.register(self._at_exit)

    def _at_exit(self) -> None:
        if os.getpid() != self._pid:
            return
        self._stopping = True
        self._wake.set()
        self._thread.join(EXIT_FLUSH)

    def _run(self) -> None:
        # Whatever goes wrong here is trainmon's own trouble: the training must not hear of it.
        with contextlib.suppress(Exception):
            self._open()
            while not self._stopping:
                self._wake.wait(WAKE)
                self._pass()
            self._pass()
            self._end()

    def _open(self) -> None:
        run, own = _join_or_make_run(self._session)
        ranks = facts.rank_facts()
        self._journal = Journal(run, ranks.get("rank", 0), self.producer, own) if run is not None else None
        self._publisher = Publisher.open(self.producer)
        hello = Hello("", 0, monotonic_seconds(), wall=time.time(), pid=self._pid, host=socket.gethostname(), **ranks)
        hello.process_started = rundir.started_monotonic(self._pid)
        hello.name = facts.program_name()
        hello.facts = facts.process_facts()
        self._version_count = len(hello.facts["versions"])
        self._send([to_dict(hello)])

    def _pass(self) -> None:
        """Digest what the lanes hold, then write and publish it."""
        lines: List[bytes] = []
        for lane in list(self._session.lanes):
            assembler = self._assembler(lane)
            ops = lane.ops
            if len(ops) == ops.maxlen:
                self._dropped += 1  # at least one entry fell out; how many cannot be told
            if not ops:
                assembler.release_held()  # the loop was left a while ago and the program goes on
                self._stamp(assembler.events, lines)
            for _ in range(0, len(ops), SLICE):
                _digest(ops, assembler)
                self._stamp(assembler.events, lines)
                time.sleep(0)
        now = monotonic_seconds()
        if now >= self._next_pulse:
            self._next_pulse = now + PULSE
            self._stamp([to_dict(self._pulse()), *self._news()], lines)
        self._flush(lines)

    def _assembler(self, lane: "Lane") -> Assembler:
        found = self._assemblers.get(id(lane))
        if found is None:
            is_main = lane.ident == threading.main_thread().ident
            found = self._assemblers[id(lane)] = Assembler(self._shared, lane.name, is_main)
        return found

    def _pulse(self) -> Event:
        leading = self._shared.primary
        if leading is None:
            mains = [each for each in self._assemblers.values() if each.is_main]
            leading = (mains or list(self._assemblers.values()) or [Assembler(self._shared, "", True)])[0]
        pulse = leading.pulse(host_clock())
        pulse.dropped = self._dropped + self._shared.lost + (self._journal.dropped if self._journal else 0)
        return pulse

    def _news(self) -> List[Dict[str, Any]]:
        """Facts that were not known at the last pulse: libraries loaded since."""
        versions = facts.library_versions()
        if len(versions) == self._version_count:
            return []
        self._version_count = len(versions)
        from trainhooks.events import Facts

        return [to_dict(Facts("", 0, monotonic_seconds(), facts={"versions": versions}))]

    def _end(self) -> None:
        error = getattr(sys, "last_value", None)
        for assembler in self._assemblers.values():
            if error is not None:
                assembler.drop_held()
            assembler.release_held()
            self._send(assembler.events)
        bye = Bye("", 0, monotonic_seconds())
        if error is not None:
            bye.error = clean(f"{type(error).__name__}: {error}", 512)
        bye.dropped = self._dropped + self._shared.lost + (self._journal.dropped if self._journal else 0)
        self._send([to_dict(bye)])
        if self._publisher is not None:
            self._publisher.close()
        if self._journal is not None:
            self._journal.close()

    def _send(self, events: List[Dict[str, Any]]) -> None:
        lines: List[bytes] = []
        self._stamp(events, lines)
        self._flush(lines)

    def _stamp(self, events: List[Dict[str, Any]], lines: List[bytes]) -> None:
        """Give each event its producer and number, and encode it. Empties `events`."""
        for event in events:
            event["producer"] = self.producer
            event["seq"] = self._seq
            line = self._encode(event)
            if len(line) >= MAX_LINE:
                event = _cut(event)
                line = self._encode(event)
            lines.append(line)
            self._seq += 1
            if event["kind"] == "facts" and "name" in event and self._journal is not None:
                self._journal.rename(event["name"])
        events.clear()

    def _flush(self, lines: List[bytes]) -> None:
        if not lines:
            return
        batch = b"\n".join(lines) + b"\n"
        if self._journal is not None:
            self._journal.append(batch, len(lines))
        if self._publisher is not None:
            self._publisher.publish(batch)


def _digest(ops: Any, assembler: Assembler) -> None:
    """Feed up to SLICE entries to the assembler."""
    take = assembler.take
    pop = ops.popleft
    for _ in range(min(SLICE, len(ops))):
        try:
            take(pop())
        except Exception:  # an odd value in one entry must not cost the entries after it
            assembler.shared.lost += 1


def _cut(event: Dict[str, Any]) -> Dict[str, Any]:
    """An event too large for a line: who and when, and that the rest did not fit."""
    kept = {k: v for k, v in event.items() if isinstance(v, (int, float)) or k in ("kind", "producer", "name", "status")}
    if "phases" in event:
        kept["phases"] = event["phases"][:64]
    if event["kind"] == "note":
        kept["text"] = event["text"][:MAX_NAME]
    return kept


def _join_or_make_run(session: "Session") -> "tuple[Optional[Path], bool]":
    """The run directory of this process, and whether it is this process's own making."""
    given = os.environ.get(rundir.RUN_VARIABLE)
    try:
        if given and os.path.isdir(given):
            return Path(given), False
        pid = os.getpid()
        name = _early_name(session) or facts.program_name()
        command = facts.masked_argv(getattr(sys, "orig_argv", None) or sys.argv)
        made = rundir.new_run(name, command=command, pid=pid, start_ticks=rundir.start_ticks(pid))
        return made, True
    except OSError:  # nowhere to write: the socket alone carries the run
        return None, False


def _early_name(session: "Session") -> Optional[str]:
    """The name given to `init`, where that call is already waiting in a lane."""
    from trainhooks.entries import FACTS

    for lane in list(session.lanes):
        for entry in list(lane.ops)[:16]:
            if entry[0] == FACTS and "name" in entry[1]:
                return clean(entry[1]["name"], MAX_NAME)
    return None


class Journal:
    """The file. A write that fails leaves no half line; what cannot be written waits, then is dropped and counted."""

    def __init__(self, run: Path, rank: int, producer: str, own: bool) -> None:
        self.dropped = 0
        self._run = run
        self._own = own
        self._waiting = b""
        self._waiting_lines = 0
        self._handle = -1
        self._good = 0  # bytes up to the end of the last whole line
        self._path = rundir.rank_journal(run, rank, producer)
        with contextlib.suppress(OSError):
            self._lock = rundir.Lock.acquire(self._path.with_suffix(".lock"))
        self._open()

    def _open(self) -> None:
        with contextlib.suppress(OSError):
            self._handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def append(self, batch: bytes, lines: int) -> None:
        self._waiting += batch
        self._waiting_lines += lines
        if self._handle < 0:
            self._open()
        if self._handle >= 0 and self._write(self._waiting):
            self._waiting, self._waiting_lines = b"", 0
        elif len(self._waiting) > MAX_UNWRITTEN:
            self.dropped += self._waiting_lines
            self._waiting, self._waiting_lines = b"", 0

    def _write(self, data: bytes) -> bool:
        try:
            done = os.write(self._handle, data)
            while 0 < done < len(data):
                more = os.write(self._handle, data[done:])
                if not more:
                    raise OSError(errno.ENOSPC, "short write")
                done += more
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._handle, self._good)
            return False
        self._good += len(data)
        return True

    def rename(self, name: str) -> None:
        """Show the name that the program gave itself, unless the person who started it gave one."""
        identity = rundir.read_json(self._run / rundir.IDENTITY)
        if identity is None or identity.get("named") or identity.get("name") == name:
            return
        identity["name"] = name
        with contextlib.suppress(OSError):
            rundir.write_json(self._run / rundir.IDENTITY, identity)

    def close(self) -> None:
        self.dropped += self._waiting_lines
        if self._handle >= 0:
            os.close(self._handle)


class Publisher:
    """The PUB socket, where pyzmq is installed. It never blocks: a viewer that lags loses frames and reads the journal."""

    def __init__(self, context: Any, sock: Any, path: Path, again: Any) -> None:
        self._context = context
        self._socket = sock
        self._path = path
        self._again = again

    @classmethod
    def open(cls, producer: str) -> Optional["Publisher"]:
        """A bound publisher, or None where that cannot be: viewers then follow the journal."""
        try:
            import zmq
        except ImportError:
            return None
        try:
            path = rundir.socket_path(producer)
            context = zmq.Context()
            sock = context.socket(zmq.PUB)
            sock.setsockopt(zmq.LINGER, LINGER)
            sock.bind(f"ipc://{path}")
        except (OSError, rundir.UnsafeDirectory, zmq.ZMQError):
            return None
        return cls(context, sock, path, zmq)

    def publish(self, batch: bytes) -> None:
        with contextlib.suppress(self._again.ZMQError):
            self._socket.send(batch, self._again.NOBLOCK)

    def close(self) -> None:
        with contextlib.suppress(Exception):  # at the interpreter's end zmq itself may be half gone
            self._socket.close()
            self._context.term()
        with contextlib.suppress(OSError):
            os.unlink(self._path)
