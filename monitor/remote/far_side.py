"""The far side of `trainmon attach HOST:RUN`: tells over stdout what is appended to the files of a run.

It answers what it is asked on stdin, a line of JSON each, and ends when stdin does. It only reads: runs of its own
user, files by the names below, never through a link. This file and two of `trainhooks.protocol` are also sent to a
Python 3.9 without trainmon, so it uses the standard library only, and no newer syntax.

After `MAGIC`, stdout is frames: four bytes of length, then so much of one stream of zlib, flushed at each frame, and a
line feed, without which `srun` would keep it. A frame is a header, a line of JSON with its `kind`, and the bytes that
follow it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import select
import socket
import stat
import struct
import sys
import time
import zlib
from pathlib import Path
from typing import Any

from trainhooks.protocol import process_identity, rundir
from trainhooks.protocol.job_key import is_named

MAGIC = b"\0trainmon relay 1\n"
LENGTH = struct.Struct(">I")
END = b"\n"  # of a frame
MAX_FRAME = 1 << 20  # bytes, compressed or not
MAX_REQUEST = 8 << 20  # bytes of a line: the sizes of a thousand ranks' journals
CHUNK = 64 * 1024  # bytes of a file in a frame: on a slow line, an answer about the time waits for no more
CHECKED = 4096  # bytes before the end of what the near side has, which must be the same here
POLL_SECONDS = 0.1  # between two looks at the files
STATE_SECONDS = 1.0  # between two words on whether the training lives
FRESH_SECONDS = 90.0  # a journal of another machine on a shared disk is written to: attribute caches hold 60 s
FIRST_OUTPUT = 1 << 20  # bytes of a training's output that a new copy begins with
PEEKED_RUNS = 40
MAX_JOB_RUNS = 200  # the newest, which are searched for a job
MAX_STARTS = 8  # other runs of a job that are named with the one that was found
MAX_HELLO = 64 * 1024  # bytes of a journal's first line
PEEKED_JOURNALS = 8  # of a run
HEAD_BYTES, TAIL_BYTES = 8 * 1024, 16 * 1024  # of a journal, for a list of runs

# What is copied, by name. Small files are written anew as a whole, the others grow.
SMALL_FILES = (rundir.IDENTITY, rundir.EXIT, rundir.STOPPED)
LOOK = re.compile(r"starting-[A-Za-z0-9_.+-]{1,200}\.json")  # of a process before its first step
GROWING = re.compile(r"(?:rank|node|console|actor)-[A-Za-z0-9_.+-]{1,200}\.jsonl|console\.log")


def main() -> None:
    """Serve one line until its other end closes it."""
    out = os.dup(1)
    os.dup2(2, 1)  # whatever prints must not get between the frames
    with contextlib.suppress(ConnectionError, KeyboardInterrupt):  # a broken pipe among them
        FarSide(0, out).serve()


class FarSide:
    """One line: what was asked on it, and what was told."""

    def __init__(self, requests: int, answers: int) -> None:
        """
        Args:
            requests: the descriptor that requests are read from.
            answers: the descriptor that frames are written to.
        """
        self._in = requests
        self._out = answers
        self._compressor = zlib.compressobj(6)
        self._unread = b""
        self._run: Path | None = None  # that is followed
        self._sent: dict[str, int] = {}  # growing file -> bytes that the near side has
        self._small: dict[str, Any] = {}  # small file -> what tells its version
        self._told_state = 0.0
        self._is_even = False  # whether the near side was told that it has everything

    def serve(self) -> None:
        _write(self._out, MAGIC)
        self.send({"kind": "hello", "host": socket.gethostname(), "python": sys.version.split()[0]})
        busy = False
        while True:
            if select.select([self._in], [], [], 0.0 if busy else POLL_SECONDS)[0]:
                data = os.read(self._in, 1 << 16)
                if not data:
                    return
                self._take(data)
            busy = self._run is not None and self._follow()

    def _take(self, data: bytes) -> None:
        *lines, self._unread = (self._unread + data).split(b"\n")
        if len(self._unread) > MAX_REQUEST:
            raise ConnectionError("a request without an end")
        for line in lines:
            now = time.monotonic(), time.time()
            request = json.loads(line)
            what = request.get("do")
            if what == "time":
                self.send({"kind": "time", "n": request.get("n"), "monotonic": now[0], "wall": now[1]})
            elif what == "find":
                self._find(str(request.get("run") or ""), request.get("job"))
            elif what == "peek":
                self._peek()
            elif what == "follow":
                self._begin(str(request.get("run")), request.get("have") or {})

    def send(self, header: dict[str, Any], data: bytes = b"") -> None:
        frame = json.dumps(header).encode() + b"\n" + data
        packed = self._compressor.compress(frame) + self._compressor.flush(zlib.Z_SYNC_FLUSH)
        _write(self._out, LENGTH.pack(len(packed)) + packed + END)

    # Which runs there are

    def _find(self, text: str, job: Any) -> None:
        """Answer which run a text names: an id, a name, the start of an id; empty: the one that runs, or the last.

        Args:
            job: what names a job; only runs of that one count.
        """
        runs = own_runs()
        if job:
            runs = [run for run in runs[:MAX_JOB_RUNS] if _is_of_job(run, str(job))]
            if not runs:
                self._refuse(f"no run of a job {job}")
                return
        names = [(run, (rundir.read_json(run / rundir.IDENTITY) or {}).get("name")) for run in runs]
        if text in ("", "last"):
            living = [] if text else [run for run in runs if is_alive(run)]
            if job and len(living) > 1:  # what starts the steps of a job, and waits for them, is no training of it
                living = [run for run in living if _has_reported(run)] or living
            if len(living) > 1:
                self._refuse("several trainings are running: " + ", ".join(run.name for run in living[:5]))
                return
            found = living or runs[:1]
        else:
            found = [run for run in runs if run.name == text] or [run for run, name in names if name == text][:1]
            found = found or [run for run in runs if run.name.startswith(text)]
        if len(found) == 1:
            others = [run.name for run in runs if run != found[0]][:MAX_STARTS] if job else []
            self.send({"kind": "found", "run": found[0].name, "others": others})
        elif not runs:
            self._refuse(f"no runs in {rundir.runs_dir()}")
        elif found:
            self._refuse(f"'{text}' matches {len(found)} runs; give more of the id")
        else:
            self._refuse(f"no run named '{text}'")

    def _refuse(self, text: str) -> None:
        self.send({"kind": "refused", "text": text})

    def _peek(self) -> None:
        """Send of each of the newest runs what a list of runs is made from."""
        for run in own_runs()[:PEEKED_RUNS]:
            self.send({"kind": "run", "run": run.name, **state_of(run)})
            for name in SMALL_FILES:
                self._send_small(run, name)
            names = sorted(name for name in os.listdir(run) if GROWING.fullmatch(name) and name != rundir.CONSOLE)
            ranks = [name for name in names if name.startswith("rank-")]
            for name in [*ranks, *(name for name in names if name.startswith("console-"))][:PEEKED_JOURNALS]:
                self._peek_journal(run, name)
        self.send({"kind": "even"})

    def _peek_journal(self, run: Path, name: str) -> None:
        opened = _open(run, name)
        if opened is None:
            return
        handle, status = opened
        try:
            size = status.st_size
            begin = max(HEAD_BYTES, size - TAIL_BYTES)
            for offset, most in ((0, HEAD_BYTES), (begin, TAIL_BYTES)):
                if offset < size:
                    header = {"kind": "bytes", "run": run.name, "file": name, "offset": offset}
                    self.send(header, os.pread(handle, most, offset))
        finally:
            os.close(handle)

    # One run, followed

    def _begin(self, name: str, have: dict[str, Any]) -> None:
        """Follow a run from where the near side is.

        Args:
            have: growing file -> bytes that the near side has, and the checksum of the last of them.
        """
        run = next((run for run in own_runs() if run.name == name), None)
        if run is None:
            self._refuse(f"no run named '{name}'")
            return
        self._run, self._small, self._told_state, self._is_even = run, {}, 0.0, False
        self._sent = {}
        for file, known in have.items():
            if GROWING.fullmatch(file) and isinstance(known, list) and len(known) == 2:
                self._sent[file] = known[0] if self._is_same(run, file, known[0], known[1]) else -1

    def _is_same(self, run: Path, name: str, size: int, checksum: int) -> bool:
        opened = _open(run, name)
        if opened is None:
            return True  # removed here; the copy keeps it
        handle, status = opened
        try:
            begin = max(0, size - CHECKED)
            return status.st_size >= size and zlib.crc32(os.pread(handle, size - begin, begin)) == checksum
        finally:
            os.close(handle)

    def _follow(self) -> bool:
        """Send what is new, a chunk of each file at most. Return whether there is more."""
        assert self._run is not None
        now = time.monotonic()
        if not self._told_state or now - self._told_state >= STATE_SECONDS:
            if self._told_state and not self._run.is_dir():
                self._refuse(f"{self._run.name} was removed")
                self._run = None
                return False
            self._told_state = now
            self.send({"kind": "state", **state_of(self._run)})  # before what it wrote last, which so is never missing
            for name in SMALL_FILES:
                self._send_small(self._run, name)
        more = False
        try:
            names = sorted(os.listdir(self._run))
        except OSError:
            return False
        for name in names:
            if LOOK.fullmatch(name):
                self._send_small(self._run, name)
            elif GROWING.fullmatch(name):
                more = self._send_growth(self._run, name) or more
        if not more and not self._is_even:
            self._is_even = True
            self.send({"kind": "even"})
        return more

    def _send_small(self, run: Path, name: str) -> None:
        opened = _open(run, name)
        if opened is None:
            return
        handle, status = opened
        try:
            version = (status.st_ino, status.st_mtime_ns, status.st_size)
            key = f"{run.name}/{name}"
            if self._small.get(key) != version and status.st_size < MAX_FRAME // 2:
                self._small[key] = version
                data = os.pread(handle, status.st_size, 0)
                self.send({"kind": "whole", "run": run.name, "file": name}, data)
        finally:
            os.close(handle)

    def _send_growth(self, run: Path, name: str) -> bool:
        """Send the next chunk of a file. Return whether there is more."""
        opened = _open(run, name)
        if opened is None:
            return False
        handle, status = opened
        try:
            size, offset = status.st_size, self._sent.get(name)
            if offset is None:  # a new copy needs the end of an output only
                offset = max(0, size - FIRST_OUTPUT) if name == rundir.CONSOLE else 0
            elif not 0 <= offset <= size:  # another file, or cut off: on a full disk, or as a program truncates it
                offset = 0
                self.send({"kind": "cut", "run": run.name, "file": name, "size": 0})
            offset = min(size, _next_data(handle, offset))
            data = os.pread(handle, CHUNK, offset) if offset < size else b""
            self._sent[name] = offset + len(data)
            if data:
                self.send({"kind": "bytes", "run": run.name, "file": name, "offset": offset}, data)
            return offset + len(data) < size
        finally:
            os.close(handle)


def own_runs() -> list[Path]:
    """Return this user's runs on this host, newest first."""
    found = []
    try:
        names = os.listdir(rundir.runs_dir())
    except OSError:
        return []
    for name in names:
        run = rundir.runs_dir() / name
        try:
            status = os.lstat(run)
            known = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not name.startswith(".")
            if known and (os.path.isfile(run / rundir.IDENTITY) or rundir.journals(run)):
                found.append((_started(run, status.st_mtime), name, run))
        except OSError:
            continue
    return [run for _, _, run in sorted(found, reverse=True)]


def _has_reported(run: Path) -> bool:
    return any(journal.name.startswith("rank-") for journal in rundir.journals(run)[:1])  # those of ranks come first


def _is_of_job(run: Path, job: str) -> bool:
    """Return whether a run is of a job, by the variables of its launcher or of its first rank."""
    try:
        if is_named((rundir.read_json(run / rundir.IDENTITY) or {})["environment"], job):
            return True
    except (KeyError, TypeError, AttributeError):
        pass
    for journal in rundir.journals(run)[:1]:  # those of ranks come first
        opened = _open(run, journal.name)
        if opened is None:
            continue
        try:
            hello = json.loads(os.pread(opened[0], MAX_HELLO, 0).partition(b"\n")[0])
            return is_named(hello["facts"]["environment"], job)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
        finally:
            os.close(opened[0])
    return False


def _started(run: Path, otherwise: float) -> float:
    started = (rundir.read_json(run / rundir.IDENTITY) or {}).get("started")
    return float(started) if isinstance(started, (int, float)) else otherwise


def is_alive(run: Path) -> bool:
    """Return whether a training lives, here or, by its journals on a shared disk, on another machine."""
    return bool(state_of(run)["alive"])


def state_of(run: Path) -> dict[str, Any]:
    """Return whether the run's training lives, and its processes that report; this host's clocks."""
    ranks = rundir.ranks_alive(run)
    has_ended = os.path.exists(run / rundir.EXIT)
    alive = ranks or (not has_ended and (rundir.run_alive(run) or _is_alive_elsewhere(run)))
    return {"alive": alive, "ranks": ranks, "monotonic": time.monotonic(), "wall": time.time()}


def _is_alive_elsewhere(run: Path) -> bool:
    known = rundir.read_json(run / rundir.IDENTITY) or {}
    if known.get("host") in (None, socket.gethostname()) and not process_identity.has_foreign_pids(known):
        return False
    times = [os.stat(journal).st_mtime for journal in rundir.journals(run)]
    return time.time() - max(times, default=0.0) < FRESH_SECONDS


def _open(run: Path, name: str) -> tuple[int, os.stat_result] | None:
    """Return a descriptor of a regular file of this user, and its status; None where it is anything else."""
    try:
        handle = os.open(str(run / name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    status = os.fstat(handle)
    if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
        return handle, status
    os.close(handle)
    return None


def _next_data(handle: int, offset: int) -> int:
    """Return where a file goes on after what was freed of it; at its end where nothing follows."""
    try:
        return os.lseek(handle, offset, os.SEEK_DATA)
    except (AttributeError, OSError) as error:  # a system, or a file system, that does not tell; or nothing follows
        return os.fstat(handle).st_size if getattr(error, "errno", None) == errno.ENXIO else offset


def _write(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
