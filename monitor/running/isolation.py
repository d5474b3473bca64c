"""Run a program so that nothing it writes, and nothing it sends, is left: namespaces of its own. Linux only.

Its working directory, its home and the directories for temporary files are overlays, whose changes are thrown away.
All else can be read and not written, and there is no network but the loopback. GPUs stay usable: their device files are
no files of a disk. This keeps a training from harm by accident; it is no prison for a program that wants out.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from monitor.running.command import module_command

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
MOUNT_ATTR_RDONLY = 1
SYS_MOUNT_SETATTR = 442  # on all architectures; since Linux 5.12
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
SHARED_MEMORY = "/dev/shm"
MEMORY_PART = 4  # of the memory, where changes can be kept in memory alone
FAILED = 125  # exit code where the namespaces cannot be made, as of `env` and `timeout`
CHECK_SECONDS = 60.0
NAMESPACE = "mounts"  # a file of the place: the mount namespace's number


@dataclass(frozen=True)
class Isolation:
    """What a program may see.

    Attributes:
        place: a directory for the changes, which the caller removes afterwards.
        writable: directories that stay as they are, and writable.
        overlays: directories whose changes are thrown away; those of others lie in them or beside them.
    """

    place: str
    writable: tuple[str, ...]
    overlays: tuple[str, ...]

    def command(self, words: list[str]) -> list[str]:
        """Return the command line that runs a program in it."""
        return [*module_command("monitor.running.isolation", json.dumps(asdict(self))), *words]


def refusal(isolation: Isolation) -> str | None:
    """Return why no program can be isolated here; None where it can."""
    try:
        done = subprocess.run(
            isolation.command(["true"]), capture_output=True, text=True, errors="replace", timeout=CHECK_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    finally:
        (Path(isolation.place) / NAMESPACE).unlink(missing_ok=True)  # its number may become another one's
    if done.returncode == 0:
        return None
    return (done.stderr.strip().splitlines() or ["it does not start"])[-1]


def directories(more: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the directories to lay overlays over, outer ones first: the working one, home, temporary ones, `more`."""
    wanted = [os.getcwd(), os.path.expanduser("~"), "/tmp", tempfile.gettempdir(), *more]
    return tuple(sorted({os.path.realpath(path) for path in wanted if os.path.isdir(path)} - {"/"}))


def main(text: str, *words: str) -> None:
    """Become the program, in namespaces of its own."""
    known = json.loads(text)
    directory = os.getcwd()
    try:
        _enter(Isolation(known["place"], tuple(known["writable"]), tuple(known["overlays"])))
        os.chdir(directory)  # the overlay, no longer what lies below it
    except OSError as error:
        sys.stderr.write(f"trainmon: {error.filename or 'namespaces'}: {error.strerror or error}\n")
        sys.exit(FAILED)
    try:
        os.execvp(words[0], words)
    except OSError as error:
        sys.stderr.write(f"trainmon: {words[0]}: cannot start: {error.strerror}\n")
        sys.exit(126)


def _enter(isolation: Isolation) -> None:
    """Make the namespaces.

    Raises:
        OSError: the system does not permit it.
    """
    _unshare()
    _mount("none", "/", None, MS_REC | MS_PRIVATE)
    (Path(isolation.place) / NAMESPACE).write_text(str(os.stat("/proc/self/ns/mnt").st_ino))
    changes = Path(tempfile.mkdtemp(prefix="changes-", dir=isolation.place))
    kept = [(path, os.open(path, os.O_PATH)) for path in isolation.writable]
    size = os.statvfs(SHARED_MEMORY)
    # A disk that cannot hold changes, or that is itself covered: they are kept in memory.
    if any(f"{changes}/".startswith(f"{path}/") for path in isolation.overlays) or not _holds_changes(changes):
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MEMORY_PART
        _mount("tmpfs", str(changes), "tmpfs", MS_NOSUID | MS_NODEV, f"mode=0700,size={total}")
    mounted = _mount_points()  # with the one for the changes: it stays where a directory around it is covered
    own: list[str] = []
    for number, path in enumerate(isolation.overlays):
        if any(path.startswith(f"{one}/") and os.stat(one).st_dev == os.stat(path).st_dev for one in own):
            continue  # it lies in one
        try:
            _lay_over(path, changes / str(number), mounted)
        except OSError:
            # In a user namespace none can lie over other mounts. Where it is not the working directory, it is not
            # written to, as all else.
            if path == os.path.realpath(os.getcwd()):
                raise
        else:
            own.append(path)
    _check_working_directory()
    for path, handle in kept:
        _mount(f"/proc/self/fd/{handle}", path, None, MS_BIND)
        os.close(handle)
    _set_read_only("/", True, AT_RECURSIVE)
    for path in (*own, *isolation.writable):
        _set_read_only(path, False)
    _mount("tmpfs", SHARED_MEMORY, "tmpfs", MS_NOSUID | MS_NODEV, f"mode=1777,size={size.f_frsize * size.f_blocks}")
    _raise_loopback()


def _check_working_directory() -> None:
    """Check that the program can write where it could before: in a user namespace only what the user's own group has.

    Raises:
        OSError: it cannot.
    """
    directory = os.getcwd()
    if os.access(directory, os.W_OK):
        os.rmdir(tempfile.mkdtemp(prefix="trainmon-", dir=directory))


def _lay_over(path: str, changes: Path, mounted: list[str]) -> None:
    """Lay an overlay over a directory. What is mounted in it does not show through, and is mounted again."""
    inner = [point for point in mounted if point.startswith(f"{path}/") and os.path.lexists(point)]
    outermost = [point for point in inner if not any(point.startswith(f"{other}/") for other in inner)]
    handles = [os.open(point, os.O_PATH) for point in outermost]
    try:
        _overlay(path, changes)
        for point, handle in zip(outermost, handles, strict=True):
            _mount(f"/proc/self/fd/{handle}", point, None, MS_BIND | MS_REC)
    finally:
        for handle in handles:
            os.close(handle)


def _unshare() -> None:
    user, group = os.geteuid(), os.getegid()
    if user == 0 and _unshared(CLONE_NEWNS | CLONE_NEWNET):
        return
    if not _unshared(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, f"namespaces are not permitted here ({os.strerror(number)})")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _unshared(flags: int) -> bool:
    return bool(_libc().unshare(flags) == 0)


def _mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    encoded = [os.fsencode(source), os.fsencode(target), None if kind is None else kind.encode()]
    if _libc().mount(*encoded, ctypes.c_ulong(flags), os.fsencode(data) if data else None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot be mounted ({os.strerror(number)})", target)


def _overlay(path: str, changes: Path) -> None:
    upper, work = changes / "upper", changes / "work"
    upper.mkdir(parents=True)
    work.mkdir()
    os.chmod(upper, os.stat(path).st_mode & 0o7777)
    lower = os.open(path, os.O_PATH)
    try:
        options = f"lowerdir=/proc/self/fd/{lower},upperdir={upper},workdir={work}"
        if Path("/proc/self/uid_map").read_text().split() != ["0", "0", "4294967295"]:
            options += ",userxattr"  # in a user namespace there are no others
        _mount("overlay", path, "overlay", MS_NOSUID | MS_NODEV, options)
    finally:
        os.close(lower)


def _holds_changes(changes: Path) -> bool:
    """Return whether a file system may hold the changes of an overlay: one of another overlay may not, nor NFS."""
    kinds = [line.split()[2] for line in Path("/proc/self/mounts").read_text().splitlines()]
    points = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    within = [at for at, point in enumerate(points) if f"{changes}/".startswith(f"{point.rstrip('/')}/")]
    return bool(within) and kinds[max(within, key=lambda at: (len(points[at]), at))] in (
        "ext4",
        "xfs",
        "btrfs",
        "tmpfs",
    )


def _mount_points() -> list[str]:
    """Return where anything is mounted, outer ones first."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    points = {line.split()[1].encode().decode("unicode_escape") for line in lines}
    return sorted(points)


class _MountAttributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd")]


def _set_read_only(path: str, is_read_only: bool, flags: int = 0) -> None:
    change = _MountAttributes(*((MOUNT_ATTR_RDONLY, 0) if is_read_only else (0, MOUNT_ATTR_RDONLY)))
    size = ctypes.c_size_t(ctypes.sizeof(change))
    done = _libc().syscall(SYS_MOUNT_SETATTR, AT_FDCWD, os.fsencode(path), flags, ctypes.byref(change), size)
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot be made read-only ({os.strerror(number)})", path)


def _raise_loopback() -> None:
    """Bring the loopback up: ranks of one machine talk over it."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asked:
        request = struct.pack("16sh22x", b"lo", 0)
        flags = struct.unpack("16sh22x", fcntl.ioctl(asked, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(asked, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", flags | IFF_UP))
