"""The recorder: reads GPUs and host once a second, writes the node's journal, then publishes.

One records a run on each node, elected by a lock. The launcher's supervisor records in a thread; for a training that
nobody launched, `ensure` starts a process of its own, which ends with the training.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from monitor import lasting
from monitor.running import output, own_process, reserve
from monitor.running.writer import Writer
from monitor.runs import catalogue
from trainhooks import events, rundir

if TYPE_CHECKING:
    from monitor.sources.host import HostSource

INTERVAL = 1.0  # seconds between readings
BRIEF = 0.05  # seconds; a program that ends sooner, and prints nothing, has nothing to read
SETTLED = 5  # readings after which all is loaded that will be
READ_SECONDS = 4.0  # for the end of an output, when the program has ended


class Recorder:
    """Reads everything once an interval."""

    def __init__(self, run: Path, writer: Writer, roots: Callable[[], list[int]]) -> None:
        """
        Args:
            roots: gives the pids whose process trees are the training.
        """
        from monitor.sources.gpu.poller import GpuPoller
        from monitor.sources.host import HostSource

        self._writer = writer
        self._roots = roots
        self._host: HostSource = HostSource(run)
        self._gpus = GpuPoller(INTERVAL, writer.write, lambda: self._host.members, self._complain)
        self._trouble: set[str] = set()

    def poll(self) -> None:
        """One reading of the host. The GPUs have a thread of their own."""
        try:
            host = self._host.read(self._roots(), time.monotonic())
            host.note = self._gpus.trouble()
            self._writer.write(host)
        except Exception as error:
            # A surprise must cost a reading, not all the readings to come.
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        """Say what a reading raised: once, not every second."""
        text = events.clean(f"a reading failed: {type(error).__name__}: {error}", 400)
        if text not in self._trouble and len(self._trouble) < 20:
            self._trouble.add(text)
            traceback.print_exception(error)
            note = events.Note("", 0, time.monotonic(), text=text, level="warning", code="recorder-error")
            self._writer.write(note)

    def record(self, ended: Callable[[float], bool]) -> None:
        """Poll until `ended`, which waits for the given seconds, says so."""
        self._writer.listen()
        self._gpus.start()
        due = time.monotonic()
        polls = 0
        while True:
            self.poll()
            polls += 1
            if polls == SETTLED:
                lasting.settled()
            now = time.monotonic()
            due = max(due + INTERVAL, now)  # late: go on from here, without a burst that catches up
            if ended(due - now):
                break
        self._gpus.stop()


SPARE = ".exit"  # holds the room that the exit's file needs
SPARE_BYTES = 4096


def spare(run: Path) -> None:
    """Take the room for the exit's file while there is some, lest a full disk leaves the end unknown."""
    with contextlib.suppress(OSError), open(run / SPARE, "wb", opener=rundir.privately) as out:
        out.write(b" " * SPARE_BYTES)


def write_exit(run: Path, writer: Writer | None, returncode: int) -> None:
    """Write down how the training ended. Only for the process that waited for it.

    Args:
        writer: None where the journal could not be opened.
        returncode: as subprocess gives it: negative for a signal.
    """
    code, by_signal = (returncode, None) if returncode >= 0 else (None, -returncode)
    ended, ended_monotonic = time.time(), time.monotonic()
    if writer is not None:
        writer.write(events.Exit("", 0, ended_monotonic, code, by_signal))
    known: dict[str, object] = {
        "exit_code": code,
        "signal": by_signal,
        "ended": ended,
        "ended_monotonic": ended_monotonic,
    }
    try:
        rundir.write_json(run / rundir.EXIT, known)
        (run / SPARE).unlink(missing_ok=True)
    except OSError:  # a full disk
        _write_into_spare(run, known)


def _write_into_spare(run: Path, known: dict[str, object]) -> None:
    """Over the blocks that are ours already, then under the right name: neither takes room."""
    with contextlib.suppress(OSError):  # the process that waits still gives the code to its caller
        with open(run / SPARE, "r+b") as out:
            out.write(json.dumps(known).encode().ljust(SPARE_BYTES))
        os.replace(run / SPARE, run / rundir.EXIT)


# What the program prints


class Watch:
    """A thread that reads a run's output until `finish`, and writes down what it says of steps."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, name="console", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            if self._over.wait(BRIEF) and not _printed(self._run):
                return
            from monitor.running.console_recorder import ConsoleRecorder  # it takes a moment; nobody waits for it here

            recorder = ConsoleRecorder(self._run)
            recorder.record(self._over.wait)
            self._over.wait()
            recorder.finish()
        except Exception:  # whatever a program prints and is wrong here, the rest of the recording goes on without it
            traceback.print_exc()

    def finish(self) -> None:
        """Everything has been printed: wait, but not for long, until it is read."""
        self._over.set()
        self._thread.join(READ_SECONDS)


def _printed(run: Path) -> bool:
    """Whether there is any output."""
    for path in output.files(run):
        with contextlib.suppress(OSError):
            if path.stat().st_size:
                return True
    return False


# A recorder of its own


def elect(run: Path) -> tuple[bool, rundir.Lock | None]:
    """Whether this process is to record `run`, and the lock that it then holds (none where locks do not work)."""
    try:
        lock = rundir.Lock.acquire(rundir.recorder_lock(run))
    except OSError:
        return True, None
    return lock is not None, lock


def ensure(run: Path) -> None:
    """Start a recorder for a living run that has none. Not in another user's directory: we read there, no more."""
    with contextlib.suppress(OSError):
        if run.stat().st_uid != os.getuid():
            return
    if not rundir.run_alive(run) or rundir.lock_held(rundir.recorder_lock(run)):
        return
    subprocess.Popen(
        own_process.command("monitor.running.recorder", str(run.absolute())),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={key: value for key, value in os.environ.items() if key != rundir.RUN_VARIABLE},
        start_new_session=True,
    )


def main(path: str) -> None:
    """Record a run until its training has ended."""
    run = Path(path)
    elected, lock = elect(run)
    if not elected:
        return
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    writer = Writer(run)
    merge = output.Merge.of(run)  # left over from a supervisor that died
    room = reserve.Reserve(output.files(run))

    def ended(seconds: float) -> bool:
        room.step()
        if merge is not None:
            merge.step()
        time.sleep(seconds)
        if rundir.run_alive(run):
            return False
        time.sleep(INTERVAL)  # twice, lest a process that is just passing the run on is taken for its end
        return not rundir.run_alive(run)

    recorder = Recorder(run, writer, lambda: [process.pid for process in catalogue.processes(run)])
    reading = Watch(run)
    recorder.record(ended)
    room.close()
    reserve.release(output.files(run))
    if merge is not None:
        merge.finish()
    reading.finish()
    writer.close()
    if lock is not None:
        lock.release()
