"""Let the processes of one launched job share a run, if it was not launched under trainmon.

The ranks of a job on one node agree without a server: a small file in the private directory, changed under a lock,
names the run directory and which ranks have joined it. A process that an elastic launcher restarted joins the run of
the one that it replaces; a later job of the same kind gets a run of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from trainhooks.protocol import process_identity, rundir

MAX_LOCK_WAIT = 2.0  # seconds; what is done under the lock takes milliseconds
LOCK_RETRY = 0.02  # seconds
MAX_FILE_AGE = 90 * 24 * 3600  # seconds after which the file of a job is removed
MAX_ANCESTORS = 32  # searched for the launcher

ELASTIC = "TORCHELASTIC_RUN_ID"

# Where the first variable is set, several processes are one job; the others distinguish jobs.
LAUNCHERS = (
    (ELASTIC, ("TORCHELASTIC_RUN_ID",)),
    ("SLURM_PROCID", ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")),
    ("RANK", ("MASTER_ADDR", "MASTER_PORT")),
)


class Job:
    """The job that this process belongs to.

    Attributes:
        key: the same for all of its processes.
        elastic: whether its launcher restarts processes.
        launcher: the launcher's pid, where one process started all ranks.
    """

    def __init__(self, key: str, elastic: bool, launcher: Optional[int]) -> None:
        self.key = key
        self.elastic = elastic
        self.launcher = launcher

    @classmethod
    def here(cls, program: str) -> Optional["Job"]:
        """Return this process's job, or None where it has none.

        Args:
            program: its name; another program that a rank starts is not part of the job.
        """
        environment = os.environ
        for mark, names in LAUNCHERS:
            alone = _peers() < 2 and mark != ELASTIC
            if alone or mark not in environment or not environment.get(names[0]):
                continue
            launcher = _ancestor_without(mark) if mark == ELASTIC else None
            known = [process_identity.boot_id() or "", str(rundir.runs_dir()), program, mark]
            known += [environment.get(name, "") for name in names]
            if launcher is not None:
                known += [str(launcher), str(process_identity.start_ticks(launcher))]
            key = hashlib.sha256("\0".join(known).encode("utf-8", "replace")).hexdigest()[:16]
            return cls(key, mark == ELASTIC, launcher)
        return None


def _peers() -> int:
    for name in ("WORLD_SIZE", "SLURM_NTASKS"):
        text = os.environ.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 8:
            return int(text)
    return 1


def _ancestor_without(variable: str) -> Optional[int]:
    """Return the nearest ancestor whose environment lacks `variable`: the launcher. None: unknown."""
    mark = b"\0" + variable.encode() + b"="
    pid = os.getppid()
    for _ in range(MAX_ANCESTORS):
        if pid <= 1:
            return None
        try:
            with open(f"/proc/{pid}/environ", "rb") as source:
                if mark not in b"\0" + source.read():
                    return pid
        except OSError:  # no /proc, or another user's: the parent will do
            return pid
        parent = process_identity.parent(pid)
        if parent is None:
            return None
        pid = parent
    return None


def join(job: Job, rank: int, restart: int, make: Callable[[], Path]) -> Path:
    """Return the run of the job: the one that another rank has made, or a new one for the others to find.

    Args:
        make: makes a run directory.

    Raises:
        OSError: none can be made.
    """
    try:
        directory = rundir.socket_dir()
        lock = _acquire(directory / f"job-{job.key}.lock")
    except OSError:
        lock = None
    if lock is None:
        return make()
    try:
        record = directory / f"job-{job.key}.json"
        known = rundir.read_json(record) or {}
        run = _joinable(known, job, rank, restart)
        if run is None:
            run = make()
            known = {"run": str(run), "claims": {}}
            _forget_old(directory)
        pid = os.getpid()
        known["claims"][str(rank)] = [restart, pid, process_identity.start_ticks(pid), process_identity.pid_namespace()]
        with contextlib.suppress(OSError):  # the disk is full: later ranks find nothing
            rundir.write_json(record, known)
        return run
    finally:
        lock.release()


def _forget_old(directory: Path) -> None:
    old = time.time() - MAX_FILE_AGE
    for path in directory.glob("job-*"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < old:
                path.unlink()


def _acquire(path: Path) -> Optional[rundir.Lock]:
    until = time.monotonic() + MAX_LOCK_WAIT
    while True:
        lock = rundir.Lock.acquire(path)
        if lock is not None or time.monotonic() >= until:
            return lock
        time.sleep(LOCK_RETRY)


def _joinable(known: Dict[str, Any], job: Job, rank: int, restart: int) -> Optional[Path]:
    """Return the recorded run if it still is this job's and this rank may join it."""
    run, claims = known.get("run"), known.get("claims")
    if not isinstance(run, str) or not isinstance(claims, dict) or not os.path.isdir(run):
        return None
    living = {claimed: _is_alive(claim) for claimed, claim in claims.items()}
    mine = claims.get(str(rank))
    if mine is not None and not (job.elastic and (restart > _restart(mine) or not living[str(rank)])):
        return None  # another process has this rank: a job of the same kind, or a child of the rank
    return Path(run) if job.launcher is not None or any(living.values()) else None


def _restart(claim: Any) -> int:
    return claim[0] if isinstance(claim, list) and claim and isinstance(claim[0], int) else 0


def _is_alive(claim: Any) -> bool:
    if not isinstance(claim, list) or len(claim) not in (3, 4):  # three: of an earlier version
        return False
    return claim[3:] in ([], [process_identity.pid_namespace()]) and process_identity.process_alive(
        claim[1], claim[2], None
    )
