"""Write what a far side tells into a copy: only files of known names, only within the copy, up to a limit."""

from __future__ import annotations

import json
import os
import stat
import zlib
from pathlib import Path
from typing import Any

from monitor.remote.far_side import CHECKED, GROWING, LOOK, SMALL_FILES
from monitor.remote.line import Frame
from trainhooks.protocol import rundir

MAX_FILES = 20_000  # of one copy: a thousand ranks, each restarted twenty times
MAX_BYTES = 8 << 30  # that one copy takes on the disk
MAX_OFFSET = 1 << 44

# What names a process: here its number is somebody else's.
_PROCESS = ("pid", "start_ticks", "group", "pid_namespace")


class BadFrame(Exception):
    """The far side told what it must not."""


class CopyWriter:
    """Writes one copy. The caller holds its lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._sizes = {name: (path / name).stat().st_size for name in os.listdir(path) if GROWING.fullmatch(name)}
        self._handles: dict[str, int] = {}
        self._files = len(os.listdir(path))
        self._written = sum((path / name).stat().st_blocks * 512 for name in self._sizes)

    def have(self) -> dict[str, list[int]]:
        """Return the size of each growing file, and the checksum of its end."""
        found = {}
        for name, size in self._sizes.items():
            begin = max(0, size - CHECKED)
            found[name] = [size, zlib.crc32(os.pread(self._handle(name), size - begin, begin))]
        return found

    def take(self, frame: Frame) -> bool:
        """Write a frame of a file. Return whether it was one.

        Raises:
            BadFrame: the far side is not to be trusted.
            OSError: the disk is full.
        """
        if frame.kind not in ("bytes", "whole", "cut"):
            return False
        name = frame.header.get("file")
        if not isinstance(name, str):
            raise BadFrame("a file without a name")
        if frame.kind == "whole":
            self._write_whole(name, frame.data)
        elif GROWING.fullmatch(name) is None:
            raise BadFrame("a file of a name that no run has")
        elif frame.kind == "cut":
            self._cut(name)
        else:
            self._append(name, frame.header.get("offset"), frame.data)
        return True

    def _append(self, name: str, offset: Any, data: bytes) -> None:
        size = self._sizes.get(name, 0)
        if type(offset) is not int or not size <= offset <= MAX_OFFSET:
            raise BadFrame("bytes that do not follow those before")
        self._written += len(data)
        if self._written > MAX_BYTES:
            raise BadFrame(f"more than {MAX_BYTES >> 30} GiB")
        handle = self._handle(name)
        written = 0
        while written < len(data):
            written += os.pwrite(handle, data[written:], offset + written)
        self._sizes[name] = offset + len(data)

    def _cut(self, name: str) -> None:
        os.ftruncate(self._handle(name), 0)
        self._sizes[name] = 0

    def _write_whole(self, name: str, data: bytes) -> None:
        if name not in SMALL_FILES and LOOK.fullmatch(name) is None:
            raise BadFrame("a file of a name that no run has")
        try:
            content = json.loads(data)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            return  # as a reader would ignore it
        if name == rundir.IDENTITY:
            content = {key: value for key, value in content.items() if key not in _PROCESS}
        elif name not in SMALL_FILES:
            content["host"] = ""  # whatever its name is: its processes are not those of this host
        if not (self.path / name).exists():
            self._count_file()
        rundir.write_json(self.path / name, content)

    def _handle(self, name: str) -> int:
        handle = self._handles.get(name)
        if handle is None:
            if len(self._handles) >= 256:
                self.close()
            if name not in self._sizes:
                self._count_file()
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            handle = self._handles[name] = os.open(self.path / name, flags, 0o600)
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise BadFrame(f"{name} is no file")
        return handle

    def _count_file(self) -> None:
        self._files += 1
        if self._files > MAX_FILES:
            raise BadFrame(f"more than {MAX_FILES} files")

    def close(self) -> None:
        for handle in self._handles.values():
            os.close(handle)
        self._handles.clear()
