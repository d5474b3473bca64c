"""Checks of this machine: GPU driver and readings, terminal, session, run directory, locks, sockets."""

from __future__ import annotations

import grp
import locale
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from monitor.running import command, lifetime
from monitor.sources.amdgpu import UNTESTED
from monitor.sources.gpu_source import GpuSource, Reading
from monitor.sources.sockets import Publisher, Refused
from monitor.units import size
from trainhooks.protocol import rundir
from trainhooks.protocol.events import Gpu
from trainhooks.protocol.limits import clean

State = Literal["works", "limited", "missing", "broken"]


@dataclass(frozen=True)
class Check:
    """The result of one check: state, description, and what to do about it."""

    part: str
    state: State
    text: str
    advice: str | None = None
    essential: bool = False  # without it trainmon cannot do its work
    details: dict[str, Any] = field(default_factory=dict)  # for programs

    @property
    def fatal(self) -> bool:
        return self.essential and self.state == "broken"


ROUNDS = 5  # of readings: rates need two, and slow queries take turns
ROUND_SECONDS = 0.2  # seconds between them

# Fields that are not readings: identity, values known only in a run, and values absent without a problem.
_NO_READINGS = frozenset((
    "producer", "seq", "t", "uuid", "index", "name", "simulated", "ours", "mig_of", "mig", "xid", "delta", "unknown",
    "driver", "bus_id",
))  # fmt: skip
READINGS = tuple(f.name for f in fields(Gpu) if f.name not in _NO_READINGS)

_ADVICE = {
    "not-found": "Nothing to do on a machine without an NVIDIA GPU. In a container, start it with --gpus all.",
    "not-loaded": "Load it (sudo modprobe nvidia) or reboot; nothing to do on a machine without a GPU.",
    "version-mismatch": "Reboot or reload the driver's modules: the driver was updated on a running system.",
    "no-permission": "Your user needs read access to /dev/nvidia*; ask the administrator of this machine.",
    "gpu-lost": "See dmesg for XID errors; reset the GPU or reboot the machine.",
}


def gpu_checks(source: GpuSource | None = None, sleep: Callable[[float], None] = time.sleep) -> list[Check]:
    """Read the GPUs as the recorder does. Return a check for the driver and one for each group of like cards."""
    source = source or GpuSource()
    readings = [source.read(time.monotonic())]
    if readings[0].gpus:
        for _ in range(ROUNDS - 1):
            sleep(ROUND_SECONDS)
            readings.append(source.read(time.monotonic()))
    source.close()
    driver = _driver(readings[-1], source.version) if source.amd is None else _amd_driver(readings[-1])
    return [driver, *_cards(readings)]


def _driver(last: Reading, version: str | None) -> Check:
    if last.trouble is not None:
        state: State = "limited" if last.gpus else "missing" if last.trouble.code == "not-found" else "broken"
        return Check("NVIDIA driver", state, last.trouble.text, _ADVICE.get(last.trouble.code))
    cards = sum(gpu.mig_of is None for gpu in last.gpus)
    seen = "1 GPU" if cards == 1 else f"{cards} GPUs"
    simulated = any(gpu.simulated for gpu in last.gpus)
    text = f"{version or 'version unknown'}, {seen}" + (", SIMULATED: a stand-in for the driver" if simulated else "")
    return Check("NVIDIA driver", "works", text, details={"version": version, "gpus": cards, "simulated": simulated})


def _amd_driver(last: Reading) -> Check:
    seen = "1 GPU" if len(last.gpus) == 1 else f"{len(last.gpus)} GPUs"
    text = f"amdgpu, {seen}; {UNTESTED}: compare its readings with rocm-smi"
    return Check("AMD driver", "limited", text, details={"gpus": len(last.gpus), "tested": False})


def _cards(readings: list[Reading]) -> list[Check]:
    """Return a check for each group of cards with the same name and readings."""
    by_uuid: dict[str, tuple[Gpu, set[str]]] = {}
    for reading in readings:
        for gpu in reading.gpus:
            known = by_uuid.setdefault(gpu.uuid, (gpu, set()))[1]
            known.update(name for name in READINGS if getattr(gpu, name) is not None)
    alike: dict[tuple[str | None, bool, frozenset[str]], list[Gpu]] = {}
    for gpu, known in by_uuid.values():
        alike.setdefault((gpu.name, gpu.mig_of is not None, frozenset(known)), []).append(gpu)
    return [_card(gpus, set(known), is_instance) for (_, is_instance, known), gpus in alike.items()]


def _card(gpus: list[Gpu], known: set[str], is_instance: bool) -> Check:
    indices = sorted({gpu.index for gpu in gpus})
    which = "s " + _span(indices) if len(indices) > 1 else f" {indices[0]}"
    part = f"GPU{which} readings" if not is_instance else f"MIG instances of GPU{which}"
    missing = [name for name in READINGS if name not in known]
    text = f"{gpus[0].name or 'name unknown'}: {len(known)} of {len(READINGS)} readings"
    if missing:
        text += "; missing: " + ", ".join(name.replace("_", " ") for name in missing)
    details = {"uuids": [gpu.uuid for gpu in gpus], "readings": sorted(known), "missing": missing}
    hint = None
    if "sm_clock" not in known or "reasons" not in known:
        hint = "Throttling of this GPU cannot be detected without clocks and throttle reasons."
        hint = None if is_instance else hint  # those of an instance are its card's
    return Check(part, "works" if hint is None else "limited", text, hint, details=details)


def _span(numbers: list[int]) -> str:
    """Return indices as `0-7` or `0, 2, 5`."""
    if numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]}-{numbers[-1]}"
    return ", ".join(map(str, numbers))


# What the terminal can draw.

MIN_SCREEN = (80, 24)  # columns and rows below which panels are left out


def terminal() -> Check:
    """Check the terminal that this command was started on."""
    on_terminal = all(os.isatty(handle) for handle in (0, 1))
    try:
        columns, rows = os.get_terminal_size(1) if on_terminal else (0, 0)
    except OSError:
        columns, rows = 0, 0
    encoding = getattr(sys.stdout, "encoding", None) or locale.getpreferredencoding(False)
    return check_terminal(os.environ, on_terminal, encoding, (columns, rows))


def check_terminal(environment: Mapping[str, str], on_terminal: bool, encoding: str, room: tuple[int, int]) -> Check:
    """
    Args:
        room: columns and rows; zeros where unknown.
    """
    part = "terminal"
    name = environment.get("TERM", "")
    details = {"term": name or None, "encoding": encoding, "columns": room[0] or None, "rows": room[1] or None}
    if not on_terminal:
        text = "not a terminal: `trainmon run` passes output through, `attach --once` prints a screen"
        return Check(part, "missing", text, None, details=details)
    if name in ("", "dumb"):
        text = f"TERM is {name or 'not set'}: the dashboard cannot run"
        return Check(part, "broken", text, "Set TERM to your terminal type, e.g. xterm-256color.", details=details)
    colors = _colors(environment)
    hints = []
    size = f"{room[0]}x{room[1]}" if all(room) else "size unknown"
    if not encoding.lower().replace("-", "").startswith("utf8"):
        hints.append("Charts need Unicode: set LANG to a UTF-8 locale, e.g. C.UTF-8.")
    if all(room) and (room[0] < MIN_SCREEN[0] or room[1] < MIN_SCREEN[1]):
        hints.append(f"Below {MIN_SCREEN[0]}x{MIN_SCREEN[1]} some panels are hidden: enlarge the window.")
    if colors is not None and colors < 256 and not environment.get("NO_COLOR"):
        hints.append("Few colors: set COLORTERM=truecolor if your terminal supports it.")
    if environment.get("NO_COLOR"):
        known = "no colors (NO_COLOR is set)"
    else:
        known = "colors unknown" if colors is None else f"{colors:,} colors"
    details["colours"] = colors
    text = f"{name}, {size}, {known}, {encoding}"
    return Check(part, "limited" if hints else "works", text, " ".join(hints) or None, details=details)


def _colors(environment: Mapping[str, str]) -> int | None:
    """Return the number of colors that the terminal reports; None where unknown."""
    if environment.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return 1 << 24
    name = environment.get("TERM", "")
    if name.endswith("-direct"):
        return 1 << 24
    if "256color" in name:
        return 256
    try:
        import curses

        curses.setupterm(name, 1)
        number = curses.tigetnum("colors")
    except Exception:  # no curses or no terminfo; the errors have no common class
        return None
    return number if number > 0 else None


# Whether a training outlives the terminal it was started from.

SESSION_PART = "logging out"


def session_lifetime(tied: lifetime.LifetimeLimit | None) -> Check:
    """
    Args:
        tied: the result of `monitor.running.lifetime.lifetime_limit` for this process.
    """
    if tied is None:
        return Check(
            SESSION_PART, "works", "nothing found that ends a training when its terminal closes or you log out"
        )
    if tied.this_process:
        return Check(
            SESSION_PART, "limited", tied.text, "The training ends with trainmon here, so `trainmon run` waits for it."
        )
    return Check(SESSION_PART, "limited", tied.text)


# The directories of runs and sockets: writable, with working locks, with free space.

MIN_RUN_SPACE = 50 << 20  # bytes: a few hours of one GPU's readings
LOW_RUN_SPACE = 1 << 30


def run_directory() -> list[Check]:
    """Check whether a run can be recorded."""
    runs = rundir.runs_dir()
    part = "run directory"
    try:
        runs = rundir.ready_runs_dir()
        place = Path(tempfile.mkdtemp(dir=runs, prefix=".doctor-"))
    except rundir.UnsafeDirectory as error:
        advice = f"Or set {rundir.STATE_VARIABLE} to a directory that you own."
        return [Check(part, "broken", str(error), advice, True)]
    except OSError as error:
        advice = f"Set {rundir.STATE_VARIABLE} to a writable directory."
        return [Check(part, "broken", f"{runs}: {error.strerror}", advice, True)]
    try:
        return [_room(runs), _locks(place)]
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _room(runs: Path) -> Check:
    part = "run directory"
    try:
        free = shutil.disk_usage(runs).free
    except OSError as error:
        return Check(part, "limited", f"{runs}: writable; free space unknown: {error.strerror}", None, True)
    text = f"{runs}: writable, {size(free)} free"
    advice = f"Free some space (`trainmon prune`), or set {rundir.STATE_VARIABLE} to another disk."
    if free < MIN_RUN_SPACE:
        return Check(part, "broken", text, advice, True, {"free": free})
    if free < LOW_RUN_SPACE:
        return Check(part, "limited", text, advice, True, {"free": free})
    return Check(part, "works", text, None, True, {"free": free})


def _locks(place: Path) -> Check:
    """Check that another process sees a lock that this one holds; some network file systems fail that."""
    advice = f"Set {rundir.STATE_VARIABLE} to a local disk: without locks, only this machine knows which runs are live."
    path = place / "test.lock"
    try:
        lock = rundir.Lock.acquire(path)
    except OSError as error:
        return Check("locks", "missing", f"not supported by the file system: {error.strerror}", advice)
    if lock is None:
        return Check("locks", "broken", "a new lock file is already locked", advice)
    try:
        done = subprocess.run(
            command.module_command("monitor.doctor.checks", str(path)), capture_output=True, timeout=30
        )
        held = done.stdout.strip() == b"True"
    except (OSError, subprocess.TimeoutExpired):
        held = False
    finally:
        lock.release()
    if held:
        return Check("locks", "works", "visible to other processes")
    return Check("locks", "missing", "not visible to other processes", advice)


def main(path: str) -> None:
    """Print whether this process sees a lock held. Started by `_locks` as a process of its own."""
    print(rundir.lock_held(Path(path)))


def sockets() -> Check:
    """Check whether live screens can be notified by socket."""
    part = "sockets"
    try:
        directory = rundir.socket_dir()
    except rundir.UnsafeDirectory as error:
        return Check(part, "broken", "not available; screens poll the journals", f"{error}.")
    except OSError as error:
        text = f"no directory for them ({error.strerror}); screens poll the journals"
        return Check(part, "missing", text, "Make /tmp writable.")
    try:
        Publisher(directory / f"doctor-{os.getpid()}.sock").close()
    except Refused as error:
        text = f"{clean(str(error), 200)}; screens poll the journals"
        return Check(part, "missing", text, "Check that pyzmq is installed, the limits, and that /tmp allows sockets.")
    return Check(part, "works", f"{directory}, private")


# Whether another user may change the directories above the state directory, and so replace it.

UNMAPPED_UID = 65534  # shown for owners that a container does not know


def parent_directories() -> Check:
    """Check that only this user and the system may change the directories above the runs."""
    part = "parent directories"
    state = rundir.state_dir()
    for directory in _parents(state):
        who = _who(directory)
        if who is not None:
            text = f"{clean(str(directory), 200)}: {who} can replace your runs directory"
            advice = (
                f"Set {rundir.STATE_VARIABLE} to a directory below your home, or remove that permission with chmod."
            )
            return Check(part, "limited", text, advice)
    return Check(part, "works", "only you and the system can change the directories above the runs")


def _parents(state: Path) -> Iterator[Path]:
    """Yield the directories from the root to the state directory, both as written and with links resolved."""
    here = Path(os.path.abspath(state))
    ways = {*here.parents, here} | {*here.resolve().parents, here.resolve()}
    return iter(sorted(ways))


def _who(directory: Path) -> str | None:
    """Return who besides this user may rename entries of a directory; None where no one may."""
    try:
        status = directory.stat()
    except OSError:  # does not exist yet: it will be created private
        return None
    if status.st_uid not in (0, os.getuid(), UNMAPPED_UID):
        return f"its owner {_name(status.st_uid)}"
    if status.st_mode & stat.S_ISVTX:
        return None  # sticky, like /tmp: users cannot rename the files of others
    if status.st_mode & stat.S_IWOTH:
        return "every user"
    if status.st_mode & stat.S_IWGRP and not _own_group(status.st_gid):
        return f"the group {_group(status.st_gid)}"
    return None


def _own_group(number: int) -> bool:
    """Return whether a group is root's, or the private group of this user."""
    if number in (0, UNMAPPED_UID):
        return True
    with suppress(KeyError):
        group, me = grp.getgrgid(number), pwd.getpwuid(os.getuid())
        return number == me.pw_gid and group.gr_name == me.pw_name and set(group.gr_mem) <= {me.pw_name}
    return False


def _group(number: int) -> str:
    with suppress(KeyError):
        return clean(grp.getgrgid(number).gr_name, 60)
    return str(number)


def _name(number: int) -> str:
    with suppress(KeyError):
        return clean(pwd.getpwuid(number).pw_name, 60)
    return str(number)
