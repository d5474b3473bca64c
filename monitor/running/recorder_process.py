"""The recorder as a process of its own, for a run that has none."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from monitor.hooks_reach import RECORDING_ENDED
from monitor.running import command, disk_budget, disk_space, exit_record, followed, inherited, output, stopping
from monitor.running.journal_writer import Writer
from monitor.runs import run_files
from trainhooks.protocol import process_identity, rundir

if TYPE_CHECKING:
    pass
from monitor.running.output_marks import OutputMarks
from monitor.running.output_reader import OutputReader
from monitor.running.recorder import READING_SECONDS, Recorder


def acquire_recorder_lock(run: Path) -> tuple[bool, rundir.Lock | None]:
    """Return whether this process shall record `run`, and the lock that it then holds (None without working locks)."""
    try:
        lock = rundir.Lock.acquire(rundir.recorder_lock(run))
    except OSError:
        return True, None
    return lock is not None, lock


def ensure_recorder(run: Path) -> None:
    """Start a recorder for a running run that has none, unless it is another user's, or there is no room here."""
    from monitor.running import room

    with contextlib.suppress(OSError):
        if run.stat().st_uid != os.getuid():
            return
    if process_identity.has_foreign_pids(run_files.identity(run)):  # nothing of its processes is visible from here
        return
    if not rundir.run_alive(run) or rundir.lock_held(rundir.recorder_lock(run)) or room.shortage() is not None:
        return
    nothing = inherited.open_nothing()
    try:
        subprocess.Popen(
            command.module_command("monitor.running.recorder_process", str(run.absolute())),
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            cwd="/",
            env={key: value for key, value in os.environ.items() if key != rundir.RUN_VARIABLE},
            start_new_session=True,
        )
    finally:
        os.close(nothing)


def main(path: str) -> None:
    """Record a run until its training has ended."""
    # Late, as they are large: `trainmon run` loads this module before it forks.
    from monitor.running import room
    from monitor.running.relay import Relay
    from monitor.runs import catalogue

    run = Path(path)
    records, lock = acquire_recorder_lock(run)
    if not records:
        return
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    writer = Writer(run)
    relay = Relay(run, writer.note_unpublished)
    following = followed.Followed(run) if run_files.identity(run).get("attached") else None
    merge = output.Merge.of(run)  # left by a supervisor that died, or of an attached training
    marks = OutputMarks(run) if merge is None else None
    reserve = disk_space.Preallocation(output.output_files(run))
    budget = disk_budget.DiskBudget(run, writer.note_budget)

    def ended(seconds: float) -> bool:
        reserve.step()
        budget.step()
        if merge is not None:
            merge.step()
        if marks is not None:
            marks.step()
        time.sleep(seconds)
        if (near := room.near_limit(os.getpid())[0]) is not None:
            writer.note(near, RECORDING_ENDED)
            return True
        if rundir.run_alive(run):
            return False
        time.sleep(READING_SECONDS)  # check twice: a process may be handing the run to another one
        return not rundir.run_alive(run)

    recorder = Recorder(run, writer, lambda: [process.pid for process in catalogue.processes(run)])
    reading = OutputReader(run)
    over = threading.Event()
    threading.Thread(target=stopping.obey_requests, args=(run, over), daemon=True).start()
    recorder.record(ended)
    over.set()
    if following is not None:
        following.finish()
    reserve.close()
    disk_space.release_preallocated(output.output_files(run))
    if merge is not None:
        merge.finish()
    reading.finish()
    if following is not None and not rundir.run_alive(run):
        exit_record.write_unseen_exit(run, writer, following.ended)
    writer.close()
    relay.close()
    if lock is not None:
        lock.release()
