"""Caches beside the journals: they hold nothing that cannot be read again, and one that does not fit is passed over."""

from __future__ import annotations

import contextlib
import os
import tempfile
import zlib
from functools import cache
from pathlib import Path

import msgspec

from monitor import __version__


@cache
def shape(of: type) -> str:
    """What a cached object consists of: one that was kept by another version is read by no mistake."""
    return f"{__version__} {zlib.crc32(repr(msgspec.inspect.type_info(of)).encode()):08x}"


def write(path: Path, content: bytes | bytearray) -> None:
    """Put a cache in its place, whole. Failing is no harm. In another user's directory we read, no more."""
    with contextlib.suppress(OSError):
        if path.parent.stat().st_uid != os.getuid():
            return
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as out:
            out.write(content)
        os.replace(temporary, path)
