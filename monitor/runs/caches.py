"""What the caches beside the journals of a run share: when one matches, and how it is written.

They hold nothing that cannot be read again from the journals; a cache that does not match them is ignored.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import zlib
from functools import cache
from pathlib import Path

import msgspec

from monitor import __version__
from trainhooks.protocol import rundir


@cache
def type_checksum(of: type) -> str:
    """Return a checksum of a type's fields and of trainmon's version: caches of other versions do not match."""
    described = re.sub(r" at 0x[0-9a-f]+", "", repr(msgspec.inspect.type_info(of)))  # functions have addresses
    return f"{__version__} {zlib.crc32(described.encode()):08x}"


def write_cache(path: Path, content: bytes | bytearray) -> bool:
    """Write a cache atomically. Return whether it was written: never into another user's directory."""
    with contextlib.suppress(OSError):
        if path.parent.stat().st_uid != os.getuid():
            return False
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as out:
                out.write(content)
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)
            raise
        return True
    return False


def journal_bytes(run: Path) -> int:
    total = 0
    for journal in rundir.journals(run):
        with contextlib.suppress(OSError):
            total += journal.stat().st_size
    return total
