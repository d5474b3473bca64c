"""Where runs live, who is alive, and where sockets lie. The one place for paths; the monitor uses it too.

``<state>/runs/<id>/`` (mode 0700) holds ``run.json`` (identity), ``rank-<n>-<producer>.jsonl`` and ``.lock`` for
each training process, ``node-<host>.jsonl`` from the recorder, ``console.log`` and ``exit.json``.
"""

from __future__ import annotations

import contextlib
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

STATE_VARIABLE = "TRAINMON_DIR"  # where runs live
RUN_VARIABLE = "TRAINMON_RUN"  # the run directory that a launched training joins

BOOTSTRAP = str(Path(__file__).resolve().parent / "auto" / "bootstrap")  # on PYTHONPATH, it arms `trainhooks.auto`

SOCKETS = Path("/tmp")  # whatever TMPDIR says: a socket's path is limited

IDENTITY = "run.json"
EXIT = "exit.json"
CONSOLE = "console.log"
PRODUCTS = "matrix-products.json"  # beside the runs: what GPUs were measured to reach


class UnsafeDirectory(OSError):
    """A directory that must be private is a link, foreign, or open to others. The message says what to do."""


# Directories


def state_dir() -> Path:
    """``$TRAINMON_DIR``, or the platform's user state directory (the same as platformdirs gives).

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


def products_file() -> Path:
    """What the machine's GPUs reach in plain matrix products, once somebody had it measured."""
    return state_dir() / PRODUCTS


def socket_dir() -> Path:
    """The private directory of this user's sockets. Short, because a socket's path is limited to 107 bytes.

    Raises:
        UnsafeDirectory: something that is not ours stands in its place.
        OSError: it cannot be made.
    """
    return private(SOCKETS / f"trainmon-{os.getuid()}")


def private(path: Path) -> Path:
    """`path` as a directory that only this user can enter; made if it is missing, checked if it stands."""
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


def privately(path: str, flags: int) -> int:
    """For `open`: a new file is for this user alone, whatever the umask."""
    return os.open(path, flags, 0o600)


def at_once(path: str, flags: int) -> int:
    """For `open`: nobody waits for what was put in a file's place, such as a pipe that nobody writes to."""
    return os.open(path, flags | os.O_NONBLOCK)


def _make(path: Path) -> None:
    """With what is missing above it. All of it is for this user alone, whatever the umask."""
    if not path.is_dir():
        if path.parent != path:
            _make(path.parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)


def ready_runs_dir() -> Path:
    """The directory of the runs, made where it is missing, and private.

    Raises:
        UnsafeDirectory: it is a link, another user's, or open to others; or others may put one in its place.
        OSError: it cannot be made.
    """
    state = state_dir()
    _make(state)
    found = os.stat(state)  # it may be a link of this user's own, to a larger disk
    if found.st_uid not in (os.getuid(), 0):
        raise UnsafeDirectory(f"{state} belongs to another user, who could exchange what lies in it")
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise UnsafeDirectory(f"everybody may exchange what lies in {state}; run: chmod o-w {state}")
    return private(state / "runs")


def socket_path(producer: str) -> Path:
    return socket_dir() / f"{producer}.sock"


# Runs


def slug(text: str, limit: int = 40) -> str:
    """`text` as it may stand in a file name."""
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
        "boot_id": boot_id(),
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


def read_json(path: Union[str, Path]) -> Optional[Dict[str, Any]]:
    """The mapping in a file, or None where there is no such file or it holds something else."""
    try:
        with open(path, encoding="utf-8", errors="replace", opener=at_once) as source:
            found = json.load(source)
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def rename(run: Path, name: str) -> None:
    """Show the name that the program gave itself, unless the person who started it gave one."""
    identity = read_json(run / IDENTITY)
    if identity is None or identity.get("named") or identity.get("name") == name:
        return
    identity["name"] = name
    with contextlib.suppress(OSError):
        write_json(run / IDENTITY, identity)


def rank_journal(run: Path, rank: int, producer: str) -> Path:
    return run / f"rank-{rank}-{producer}.jsonl"


def node_journal(run: Path, host: Optional[str] = None) -> Path:
    return run / f"node-{slug(host or socket.gethostname(), 64)}.jsonl"


def recorder_lock(run: Path) -> Path:
    """What this host's recorder of the run holds while it lives."""
    return node_journal(run).with_suffix(".lock")


def console_journal(run: Path, host: Optional[str] = None) -> Path:
    return run / f"console-{slug(host or socket.gethostname(), 64)}.jsonl"


def journals(run: Path) -> List[Path]:
    """The journals of a run: those of the trainings first, by name."""
    found = [name for name in _names(run) if name.endswith(".jsonl")]
    return [run / name for name in sorted(found, key=lambda name: (not name.startswith("rank-"), name))]


def _names(directory: Path) -> List[str]:
    """Of the files there. No paths: who looks once a second makes one only of what it looks for."""
    try:
        return os.listdir(directory)
    except OSError:
        return []


# Liveness


class Lock:
    """An exclusive lock on a file, held by this process until `release` or its death.

    POSIX record locks: the kernel lets them go when the process dies, even while a forked worker lives on.
    """

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self._handle = handle

    @classmethod
    def acquire(cls, path: Path) -> Optional["Lock"]:
        """The lock, or None where another process holds it.

        Raises:
            OSError: the file cannot be made, or its file system knows no locks.
        """
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        except OSError:
            os.close(handle)
            raise
        owner = {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid()), "boot_id": boot_id()}
        told = json.dumps(owner).encode()
        os.pwrite(handle, told, 0)  # over what the last owner left: the file is never seen empty
        os.ftruncate(handle, len(told))
        return cls(path, handle)

    def release(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._handle)


def lock_held(path: Union[str, Path]) -> bool:
    """Whether a living process holds the lock file `path`. Never call it on a lock that this process holds."""
    try:
        handle = at_once(str(path), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.lockf(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks: the process's own identity decides
        owner = read_json(path) or {}
        return process_alive(owner.get("pid"), owner.get("start_ticks"), owner.get("boot_id"))
    finally:
        os.close(handle)
    return False


def run_alive(run: Path) -> bool:
    """Whether a process of this run's training lives: one that holds a lock, or the launched one itself."""
    if ranks_alive(run):
        return True
    identity = read_json(run / IDENTITY) or {}
    return process_alive(identity.get("pid"), identity.get("start_ticks"), identity.get("boot_id"))


def ranks_alive(run: Path) -> bool:
    """Whether one that reports lives: also after the launched program, if that left a training behind."""
    return any(map(lock_held, rank_locks(run)))


def rank_locks(run: Path) -> List[str]:
    """The lock files of a run's training processes. Texts: who looks again and again makes no paths (see `_names`)."""
    return [f"{run}/{name}" for name in _names(run) if name.startswith("rank-") and name.endswith(".lock")]


def process_alive(pid: Any, ticks: Any, boot: Any) -> bool:
    """Whether exactly this process lives: same pid, same start, same boot, and not a zombie."""
    if not isinstance(pid, int) or pid <= 0 or (boot and boot != boot_id()):
        return False
    fields = _proc_stat(pid)
    if fields is not None:
        return fields[0] not in "ZX" and (ticks is None or int(fields[19]) == ticks)
    if sys.platform.startswith("linux"):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def boot_id() -> str:
    """An id that changes at each boot; empty where the platform has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as source:
            return source.read().strip()
    except OSError:
        return ""


def start_ticks(pid: int) -> Optional[int]:
    """When a process started, in clock ticks since boot; None where the platform does not tell."""
    fields = _proc_stat(pid)
    return int(fields[19]) if fields else None


def parent(pid: int) -> Optional[int]:
    """The pid of a process's parent; None where the platform does not tell."""
    fields = _proc_stat(pid)
    return int(fields[1]) if fields else None


def started_monotonic(pid: int) -> Optional[float]:
    """When a process started, on the monotonic clock; None where the platform does not tell."""
    ticks = start_ticks(pid)
    if ticks is None or not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - max(0.0, age)


def _proc_stat(pid: int) -> Optional[List[str]]:
    """The fields of /proc/<pid>/stat from the state on (the name before them may hold spaces and brackets)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as source:
            return source.read().decode("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return None
