"""The recorder: read GPUs and host once a second, write the node's journal, and publish the run.

One recorder runs per node, elected by a lock. The launcher's supervisor records in a thread; for a training that was
not launched by trainmon, `ensure` starts a recorder process, which ends with the training.
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

from monitor import memory_tuning
from monitor.hooks_reach import NOT_LOADED
from monitor.running import command, disk_space, lifetime, output
from monitor.running.journal_writer import Writer
from monitor.running.relay import Relay
from monitor.runs import catalogue
from trainhooks.protocol import events, limits, process_identity, rundir

if TYPE_CHECKING:
    from monitor.console.printed_error import PrintedError
    from monitor.sources.host import HostSource


READING_SECONDS = 1.0  # seconds between readings
CONSOLE_DELAY = 0.05  # seconds; a program that ends sooner and prints nothing needs no console reader
STARTUP_READINGS = 5  # after so many readings all modules are loaded
MAX_READ_REST_SECONDS = 4.0  # at most for the rest of the output after the program has ended


class Recorder:
    """Read GPUs and host once per interval."""

    def __init__(self, run: Path, writer: Writer, roots: Callable[[], list[int]]) -> None:
        """
        Args:
            roots: returns the pids at the roots of the training's process trees.
        """
        from monitor.running.hooks_check import HooksCheck
        from monitor.sources.gpu_source import GpuPoller
        from monitor.sources.host import HostSource

        self._writer = writer
        self._roots = roots
        self._host: HostSource = HostSource(run)
        self._gpus = GpuPoller(READING_SECONDS, writer.write, lambda: self._host.members, self._complain)
        self._hooks_check = HooksCheck(run)
        self._trouble: set[str] = set()

    def poll(self) -> None:
        """Read the host once. The GPUs are read in another thread."""
        try:
            host = self._host.read(self._roots(), time.monotonic())
            host.note = self._gpus.trouble()
            self._writer.write(host)
            why = self._hooks_check.check(self._host.members)
            if why is not None:
                self._writer.write(events.Note(producer="", seq=0, t=host.t, text=why, code=NOT_LOADED))
        except Exception as error:
            # An unexpected error costs one reading, not all later ones.
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        """Report the error of a reading once, not every second."""
        text = limits.clean(f"a reading failed: {type(error).__name__}: {error}", 400)
        if text not in self._trouble and len(self._trouble) < 20:
            self._trouble.add(text)
            traceback.print_exception(error)
            note = events.Note(
                producer="", seq=0, t=time.monotonic(), text=text, level="warning", code="recorder-error"
            )
            self._writer.write(note)

    def record(self, ended: Callable[[float], bool]) -> None:
        """Poll until `ended`, which waits for the given seconds, returns true."""
        self._gpus.start()
        due = time.monotonic()
        polls = 0
        while True:
            self.poll()
            polls += 1
            if polls == STARTUP_READINGS:
                memory_tuning.settled()
            now = time.monotonic()
            due = max(due + READING_SECONDS, now)  # when late, continue from now, without a burst
            if ended(due - now):
                break
        self._gpus.stop()


class KernelKills:
    """Count the processes that the kernel kills, out of memory, in the control group of a process."""

    def __init__(self, pid: int) -> None:
        from monitor.sources.host import Cgroup
        from monitor.sources.polling import text_of

        self._cgroup = Cgroup()
        self._membership = text_of(f"/proc/{pid}/cgroup")  # it has none once it has ended
        self._before = self._read()

    def count(self) -> int | None:
        """Return how many were killed since this was made; None where the system does not say."""
        now = self._read()
        return None if now is None or self._before is None else max(0, now - self._before)

    def _read(self) -> int | None:
        return None if self._membership is None else self._cgroup.oom_kills(self._membership)


EXIT_RESERVE = ".exit"  # reserves the disk space of the exit file
EXIT_RESERVE_BYTES = 4096


def reserve_exit_file(run: Path) -> None:
    """Reserve disk space for the exit file, so that the exit can be recorded on a full disk."""
    with contextlib.suppress(OSError), open(run / EXIT_RESERVE, "wb", opener=rundir.privately) as out:
        out.write(b" " * EXIT_RESERVE_BYTES)


ERROR_SEARCH_BYTES = 1 << 16  # of the output, in which the error that ended the program is looked for
SENT_BY_OTHERS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # what was printed before is no cause


def _printed_error(run: Path, returncode: int) -> PrintedError | None:
    """Return the error that the program printed last, where it failed by itself."""
    if returncode == 0 or -returncode in SENT_BY_OTHERS:
        return None
    from monitor.console.printed_error import printed_error

    try:
        with open(run / rundir.CONSOLE, "rb", opener=rundir.at_once) as console:
            console.seek(max(0, os.fstat(console.fileno()).st_size - ERROR_SEARCH_BYTES))
            text = console.read(ERROR_SEARCH_BYTES).decode(errors="replace")
        return printed_error(text, str((rundir.read_json(run / rundir.IDENTITY) or {}).get("cwd") or "/"))
    except Exception:  # no output in a file, or one of a kind that nobody thought of; the exit is recorded without it
        return None


def write_exit(run: Path, writer: Writer | None, returncode: int, oom_kills: int | None = None) -> None:
    """Record how the training ended. Only for the process that waited for it.

    Args:
        writer: None where the journal could not be opened.
        returncode: as in subprocess: negative for a signal.
        oom_kills: processes that the kernel killed meanwhile, as in `events.Exit`.
    """
    code, by_signal = (returncode, None) if returncode >= 0 else (None, -returncode)
    ended, ended_monotonic = time.time(), time.monotonic()
    if writer is not None:
        exit_ = events.Exit(producer="", seq=0, t=ended_monotonic, exit_code=code, signal=by_signal)
        exit_.oom_kills = oom_kills
        words = _printed_error(run, returncode)
        if words is not None:
            exit_.error, exit_.place = words.error, words.place
        writer.write(exit_)
    known: dict[str, object] = {
        "exit_code": code,
        "signal": by_signal,
        "ended": ended,
        "ended_monotonic": ended_monotonic,
    }
    try:
        rundir.write_json(run / rundir.EXIT, known)
        (run / EXIT_RESERVE).unlink(missing_ok=True)
    except OSError:  # a full disk
        _write_into_reserve(run, known)


def _write_into_reserve(run: Path, known: dict[str, object]) -> None:
    """Overwrite the reserved blocks and rename the file: neither needs disk space."""
    with contextlib.suppress(OSError):  # the waiting process still returns the code to its caller
        with open(run / EXIT_RESERVE, "r+b") as out:
            out.write(json.dumps(known).encode().ljust(EXIT_RESERVE_BYTES))
        os.replace(run / EXIT_RESERVE, run / rundir.EXIT)


# The program's output


class OutputReader:
    """Read a run's output in a thread until `finish`, and record its steps and metrics."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, name="console", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            if self._over.wait(CONSOLE_DELAY) and not _has_output(self._run):
                return
            from monitor.running.console_recorder import ConsoleRecorder  # slow to import; here nothing waits for it

            recorder = ConsoleRecorder(self._run)
            recorder.record(self._over.wait)
            self._over.wait()
            recorder.finish()
        except Exception:  # an error here must not stop the rest of the recording
            traceback.print_exc()

    def finish(self) -> None:
        """Wait at most `MAX_READ_REST_SECONDS` until the rest of the output is read."""
        self._over.set()
        self._thread.join(MAX_READ_REST_SECONDS)


def _has_output(run: Path) -> bool:
    """Return whether there is any output."""
    for path in output.output_files(run):
        with contextlib.suppress(OSError):
            if path.stat().st_size:
                return True
    return False


# A separate recorder process


def acquire_recorder_lock(run: Path) -> tuple[bool, rundir.Lock | None]:
    """Return whether this process shall record `run`, and the lock that it then holds (None without working locks)."""
    try:
        lock = rundir.Lock.acquire(rundir.recorder_lock(run))
    except OSError:
        return True, None
    return lock is not None, lock


def ensure_recorder(run: Path) -> None:
    """Start a recorder for a running run that has none, unless the directory belongs to another user."""
    with contextlib.suppress(OSError):
        if run.stat().st_uid != os.getuid():
            return
    if process_identity.has_foreign_pids(catalogue.identity(run)):  # nothing of its processes is visible from here
        return
    if not rundir.run_alive(run) or rundir.lock_held(rundir.recorder_lock(run)):
        return
    subprocess.Popen(
        command.module_command("monitor.running.recorder", str(run.absolute())),
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
    records, lock = acquire_recorder_lock(run)
    if not records:
        return
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    writer = Writer(run)
    relay = Relay(run, writer.note_unpublished)
    merge = output.Merge.of(run)  # left by a supervisor that died
    room = disk_space.Preallocation(output.output_files(run))
    budget = disk_space.DiskBudget(run, writer.note_budget)

    def ended(seconds: float) -> bool:
        room.step()
        budget.step()
        if merge is not None:
            merge.step()
        time.sleep(seconds)
        if rundir.run_alive(run):
            return False
        time.sleep(READING_SECONDS)  # check twice: a process may be handing the run to another one
        return not rundir.run_alive(run)

    recorder = Recorder(run, writer, lambda: [process.pid for process in catalogue.processes(run)])
    reading = OutputReader(run)
    over = threading.Event()
    threading.Thread(target=lifetime.obey_requests, args=(run, over), daemon=True).start()
    recorder.record(ended)
    over.set()
    room.close()
    disk_space.release_preallocated(output.output_files(run))
    if merge is not None:
        merge.finish()
    reading.finish()
    writer.close()
    relay.close()
    if lock is not None:
        lock.release()
