"""The lines of the program's source files. Only our own threads read them, and only from regular files.

To open a file by its name can take for ever, on a file system that hangs, and a pipe's text is the program's to read.
So the training thread asks for a file, and looks again later.
"""

from __future__ import annotations

import io
import linecache
import os
import stat
import sys
import time
import tokenize

# A test of the program may put others in their place there, and count their calls.
from os import close, fstat
from os import open as open_file
from os import read as read_bytes
from os import stat as status_of
from typing import Dict, List, NamedTuple, Optional, Set

MAX_BYTES = 4 << 20  # of a file
MAX_FILES = 500  # kept; a program is looked at in a few dozen
_STARTED = time.time()


class Source(NamedTuple):
    lines: List[str]  # none where the file cannot be read
    was_edited: bool  # since the program began: its lines are no longer those that run


_NONE = Source([], False)
_known: Dict[str, Source] = {}
_wanted: Set[str] = set()


def known(path: str) -> Optional[Source]:
    """Return a source without opening anything; None: not yet, it has been asked for."""
    cell = linecache.cache.get(path)  # a notebook's, whose text is nowhere else
    if cell is not None and len(cell) == 4 and (cell[1] is None or path.startswith("<")):
        return Source(cell[2], False)
    found = _NONE if path.startswith("<") else _known.get(path)
    if found is None and len(_wanted) < MAX_FILES:
        _wanted.add(path)
    return found


def read(path: str) -> Source:
    """Return a source, for a thread of ours: this can take long on a slow disk."""
    found = known(path)
    if found is None:
        if len(_known) >= MAX_FILES:
            _known.clear()
        found = _known[path] = _read(path)
        _wanted.discard(path)
    return found


def line(path: str, number: int) -> str:
    """Return a line of a source as `read` does; empty where there is none."""
    lines = read(path).lines
    return lines[number - 1] if 0 < number <= len(lines) else ""


def read_wanted() -> None:
    """Read what has been asked for, in a thread of ours."""
    for path in list(_wanted):
        read(path)


def read_main() -> None:
    """Read the program's own file, which will be asked for, in a thread of ours."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    if isinstance(path, str):
        read(path)


def _read(path: str) -> Source:
    try:
        if not stat.S_ISREG(status_of(path).st_mode):
            return _NONE
        file = open_file(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            about = fstat(file)
            if not stat.S_ISREG(about.st_mode) or about.st_size > MAX_BYTES:
                return _NONE
            data = read_bytes(file, MAX_BYTES)
        finally:
            close(file)
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        lines = io.StringIO(data.decode(encoding), newline=None).readlines()
    except Exception:  # no such file, no text, or files that the program forbids with an error of its own
        return _NONE
    return Source(lines, about.st_mtime > _STARTED)
