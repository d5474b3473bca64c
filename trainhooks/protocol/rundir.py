"""Paths, locks and liveness: the place of runs and sockets, and which runs live. The monitor uses it too.

``<state>/runs/<id>/`` (mode 0700) holds ``run.json`` (identity), ``rank-<n>-<producer>.jsonl`` and ``.lock`` for
each training process, ``node-<host>.jsonl`` from the recorder, ``console.log`` and ``exit.json``.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import socket
import stat
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any, Dict, List, Optional, Union

from trainhooks.protocol import process_identity
from trainhooks.protocol.descriptors import Kept

STATE_VARIABLE = "TRAINMON_DIR"  # where runs live
RUN_VARIABLE = "TRAINMON_RUN"  # the run directory that a launched training joins
MIRROR_VARIABLE = "TRAINMON_MIRROR"  # trackers whose open run gets trainmon's figures: names with commas
LINES_VARIABLE = "TRAINMON_LINES"  # set where the output is read as it comes: Python then prints line by line

BOOTSTRAP = str(Path(__file__).resolve().parents[1] / "auto" / "bootstrap")  # on PYTHONPATH, it arms `trainhooks.auto`

SOCKETS = Path("/tmp")  # whatever TMPDIR says: a socket's path is limited

IDENTITY = "run.json"
EXIT = "exit.json"
STOP_REQUEST = "stop.json"  # asks whoever records the run to stop it; removed as that begins
STOPPED = "stopped.json"  # present where somebody has asked trainmon to stop the run
MAX_JSON_BYTES = 1 << 24  # of a file that holds one mapping
CONSOLE = "console.log"
MIRROR = "mirror.json"  # these figures, numbers by name
STARTING = "starting"  # imports of processes that have not announced themselves; `auto.imports` writes it
MAX_STARTING = 64 * 1024  # bytes, of all processes
LOOK = "starting-"  # begin of the names of files that tell what a process waits for before its first step


class UnsafeDirectory(OSError):
    """A directory that must be private is a link, foreign, or open to others. The message says what to do."""


def state_dir() -> Path:
    """Return ``$TRAINMON_DIR``, or the platform's user state directory (the same as platformdirs gives).

    Raises:
        UnsafeDirectory: there is neither.
    """
    chosen = os.environ.get(STATE_VARIABLE)
    try:
        if chosen:
            return Path(chosen).expanduser().absolute()
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Application Support" / "trainmon"
        base = os.environ.get("XDG_STATE_HOME", "").strip()
        return (Path(base) if base else Path.home() / ".local" / "state") / "trainmon"
    except RuntimeError:  # `~` of nobody, or a user without a home
        raise UnsafeDirectory(f"no home directory is known; set {STATE_VARIABLE} to a directory of yours") from None


def runs_dir() -> Path:
    return state_dir() / "runs"


def socket_dir() -> Path:
    """Return the private directory of this user's sockets. Short: a socket's path is limited to 107 bytes.

    Raises:
        UnsafeDirectory: something that is not ours stands in its place.
        OSError: it cannot be made.
    """
    return private_directory(SOCKETS / f"trainmon-{os.getuid()}")


def private_directory(path: Path) -> Path:
    """Return `path` as a directory that only this user can enter: made if it is missing, checked if it exists."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafeDirectory(f"{path} is not a directory; remove it, it stands where trainmon keeps private files")
    if found.st_uid != os.getuid():
        raise UnsafeDirectory(f"{path} belongs to another user; have it removed, or trainmon cannot use it")
    if found.st_mode & 0o077:
        raise UnsafeDirectory(f"{path} is open to other users; run: chmod 700 {path}")
    return path


def open_privately(path: str, flags: int) -> int:
    """Open a file, for `open`. A new one is for this user alone, whatever the umask."""
    return os.open(path, flags, 0o600)


def open_at_once(path: str, flags: int) -> int:
    """Open a file, for `open`, without waiting for what was put in its place, such as a pipe without a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def _make(path: Path) -> None:
    """Make a directory and those above it, for this user alone whatever the umask.

    Those above belong to the owner of the first that exists: root in a user's home must not lock that user out.
    """
    missing = [place for place in (path, *path.parents) if not place.is_dir()]
    for place in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(place, 0o700)
            above = os.stat(place.parent)
            if place != path and above.st_uid != os.geteuid() == 0:
                os.chown(place, above.st_uid, above.st_gid)


def ready_runs_dir() -> Path:
    """Return the directory of the runs, made where it is missing, and private.

    Raises:
        UnsafeDirectory: it is a link, another user's, or open to others; or others may put one in its place.
        OSError: it cannot be made.
    """
    state = state_dir()
    _make(state)
    found = os.stat(state)  # it may be this user's own link to a larger disk
    if found.st_uid not in (os.getuid(), 0):
        raise UnsafeDirectory(f"{state} belongs to another user, who could exchange what lies in it")
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise UnsafeDirectory(f"everybody may exchange what lies in {state}; run: chmod o-w {state}")
    return private_directory(state / "runs")


def socket_path(run: Path) -> Path:
    """Return the place of the socket at which this host's recorder of a run publishes."""
    return socket_dir() / f"{_socket_key(run)}.sock"


def inbox_path(run: Path) -> Path:
    """Return the place of the socket at which this host's recorder of a run receives what producers send."""
    return socket_dir() / f"{_socket_key(run)}.inbox"


def _socket_key(run: Path) -> str:
    """Return a short name that only this run has, by whatever path it is reached. Sockets never leave their host."""
    found = os.stat(run)
    return f"{found.st_dev:x}-{found.st_ino:x}"


def slug(text: str, limit: int = 40) -> str:
    """Return `text` as it may stand in a file name."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", text).strip("-.")[:limit] or "run"


def new_run(name: str, **identity: Any) -> Path:
    """Make a run directory with its identity file.

    Args:
        name: the run's name, shown to people; need not be unique.
        identity: further keys of ``run.json``.

    Raises:
        OSError: the state directory cannot be written, or is not private (UnsafeDirectory).
    """
    runs = ready_runs_dir()
    while True:
        run_id = f"{slug(name)}-{time.strftime('%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"
        path = runs / run_id
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            continue
        break
    known: Dict[str, Any] = {
        "id": run_id,
        "name": name,
        "host": socket.gethostname(),
        "started": time.time(),
        "started_monotonic": time.monotonic(),
        "boot_id": process_identity.boot_id(),
        "time_namespace": process_identity.time_namespace(),
        "pid_namespace": process_identity.pid_namespace(),
    }
    known.update(identity)
    write_json(path / IDENTITY, known)
    return path


def write_json(path: Path, mapping: Dict[str, Any]) -> None:
    """Write atomically: a reader sees the old file or the new one, never half of one."""
    handle, temporary = tempfile.mkstemp(dir=str(path.parent), prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            json.dump(mapping, out, indent=1, default=str)
            out.write("\n")
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def read_regular(path: Union[str, Path], most: int) -> bytes:
    """Return the content of a regular file. Others may have no end.

    Raises:
        OSError: there is none, or it is larger than `most` bytes.
    """
    with open(path, "rb", opener=open_at_once) as source:
        status = os.fstat(source.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > most:
            raise OSError(errno.EFBIG, "not a regular file, or too large", str(path))
        return source.read(most)


def read_json(path: Union[str, Path]) -> Optional[Dict[str, Any]]:
    """Return the mapping in a file, or None where there is no such file or it holds something else."""
    try:
        found = json.loads(read_regular(path, MAX_JSON_BYTES).decode("utf-8", "replace"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def rename(run: Path, name: str) -> None:
    """Rename a run as its program asks, unless the person who started it named it."""
    identity = read_json(run / IDENTITY)
    if identity is None or identity.get("named") or identity.get("name") == name:
        return
    identity["name"] = name
    with contextlib.suppress(OSError):
        write_json(run / IDENTITY, identity)


def rank_journal(run: Path, rank: int, producer: str) -> Path:
    return run / f"rank-{rank}-{producer}.jsonl"


MAX_CLAIMS = 4096  # numbers that are looked at for a free one


def claim_rank(run: Path, role: str, rank: int) -> int:
    """Return a number that no process of another role has in this run: `rank`, or the next free one above it.

    It stays the same for this rank of the role, and so for a process that replaces another.

    Raises:
        OSError: nothing can be written there.
    """
    owner = f"{role} {rank}".encode()
    for number in range(rank, rank + MAX_CLAIMS):
        path = run / f".role-{number}"
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            if read_regular(path, MAX_CLAIMS) == owner:
                return number
        else:
            with open(descriptor, "wb", buffering=0) as target:
                target.write(owner)
            return number
    return rank


def actor_journal(run: Path, producer: str) -> Path:
    """Return the journal of a process that steps environments, and trains nothing itself."""
    return run / f"actor-{producer}.jsonl"


def node_journal(run: Path, host: Optional[str] = None) -> Path:
    return run / f"node-{slug(host or socket.gethostname(), 64)}.jsonl"


def recorder_lock(run: Path) -> Path:
    """Return the lock that this host's recorder of the run holds while it lives."""
    return node_journal(run).with_suffix(".lock")


def console_journal(run: Path, host: Optional[str] = None) -> Path:
    return run / f"console-{slug(host or socket.gethostname(), 64)}.jsonl"


def journals(run: Path) -> List[Path]:
    """Return the journals of a run: those of the trainings first, by name."""
    names = [name for name in _names(run) if name.endswith(".jsonl")]
    return [run / name for name in sorted(names, key=lambda name: (not name.startswith("rank-"), name))]


def _names(directory: Path) -> List[str]:
    """Return the names of the files there. No paths: making them is slow for callers that poll."""
    try:
        return os.listdir(directory)
    except OSError:
        return []


class Lock:
    """An exclusive lock on a file, held by this process until `release` or its death.

    POSIX record locks: the kernel releases them when the process dies, even while a forked worker lives on.
    """

    def __init__(self, path: Path, file: Kept) -> None:
        self.path = path
        self._file = file

    @classmethod
    def acquire(cls, path: Path) -> Optional["Lock"]:
        """Return the lock, or None where another process holds it.

        Raises:
            OSError: the file cannot be made, or its file system has no locks.
        """
        file = _locked(path)
        return None if file is None else cls(path, file)

    def keep(self) -> None:
        """Take the lock again if the program has closed its descriptor, which released it. Never raises."""
        if not self._file.is_ours():
            with contextlib.suppress(OSError):  # no descriptor is free: the next call tries again
                self._file = _locked(self.path) or self._file  # a reader may hold it for a moment

    def release(self) -> None:
        self._file.close()


def _locked(path: Path) -> Optional[Kept]:
    """Return the locked file `path`, or None where another process holds the lock."""
    file = Kept(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), path)
    handle = file.number  # locked after the descriptor was moved: closing another one of the file releases the lock
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    except OSError:
        file.close()
        raise
    content = json.dumps(process_identity.identity_of(os.getpid())).encode()
    with contextlib.suppress(OSError):  # on a full disk it is a lock nevertheless
        os.pwrite(handle, content, 0)  # over what the last owner left: the file is never seen empty
        os.ftruncate(handle, len(content))
    return file


def lock_held(path: Union[str, Path]) -> bool:
    """Return whether a living process holds the lock file `path`. Never call it on a lock of this process."""
    try:
        handle = open_at_once(str(path), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.lockf(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks: the process's own identity decides
        return process_identity.identity_alive(read_json(path) or {})
    finally:
        os.close(handle)
    return False


def run_alive(run: Path) -> bool:
    """Return whether a process of this run's training lives: one that holds a lock, or the launched one itself.

    A process of another PID namespace is not visible. Its supervisor is, by its lock, and lives as long.
    """
    if ranks_alive(run):
        return True
    identity = read_json(run / IDENTITY) or {}
    if process_identity.has_foreign_pids(identity):
        return not (run / EXIT).exists() and recorder_alive(run)
    return process_identity.identity_alive(identity)


def recorder_alive(run: Path) -> bool:
    """Return whether anybody records the run. Never call it in a process that records it (see `lock_held`)."""
    names = [name for name in _names(run) if name.startswith("node-") and name.endswith(".lock")]
    return any(lock_held(f"{run}/{name}") for name in names)


def ranks_alive(run: Path) -> bool:
    """Return whether a process that reports lives, which may outlive the launched program."""
    return any(map(lock_held, rank_locks(run)))


def rank_locks(run: Path) -> List[str]:
    """Return the lock files of a run's training processes, as strings (see `_names`)."""
    return [f"{run}/{name}" for name in _names(run) if name.startswith("rank-") and name.endswith(".lock")]
