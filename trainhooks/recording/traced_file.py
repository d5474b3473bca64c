"""Write all that a trace recorded to a file (`trainhooks.protocol.traced_events`). In the background thread."""

from __future__ import annotations

import contextlib
import json
import os
import resource
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Sequence

from trainhooks.protocol.descriptors import Kept
from trainhooks.protocol.limits import MAX_NAME, clean
from trainhooks.protocol.traced_events import MAX_FILE
from trainhooks.tracing.profiler import Recorded
from trainhooks.tracing.trace_reading import Mark, in_slices, kernel_name
from trainhooks.tracing.tracer import Finished

CHUNK = 256 * 1024  # bytes written at once
END_BYTES = 64  # of the last line


def write_events(
    path: Path,
    about: Dict[str, Any],
    trace: Finished,
    recorded: Sequence[Recorded],
    marks: Sequence[Mark],
    pause: Callable[[], object],
) -> None:
    """Write the file in place of an older one. Never raises: where it cannot be written there is none.

    Args:
        about: what its first line says besides.
        marks: of the phases, by the host's clock.
        pause: called now and then, to release the interpreter.
    """
    temporary = path.with_name(f".{path.name}")
    with contextlib.suppress(OSError):
        os.unlink(path)  # an older trace must not be taken for this one
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = Kept(os.open(temporary, flags, 0o600), temporary)
        try:
            # A program may let the signal of a file that is too large end it, as a shell's programs do.
            limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
            room = MAX_FILE if limit == resource.RLIM_INFINITY else min(MAX_FILE, limit)
            for chunk in _chunks(_lines(about, trace, recorded, marks, room, pause)):
                _write(file, chunk)
                pause()
        finally:
            file.close()
        os.replace(temporary, path)
    except OSError:  # a full disk, a directory that is gone or read-only
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _lines(
    about: Dict[str, Any],
    trace: Finished,
    recorded: Sequence[Recorded],
    marks: Sequence[Mark],
    room: int,
    pause: Callable[[], object],
) -> Iterator[bytes]:
    """Return the lines of the file, of at most `room` bytes; later events are left out first.

    Raises:
        OSError: there is no room for the first line.
    """
    whole = [(t - trace.began, phase) for t, phase in marks if t <= trace.ended]
    before = sum(t < 0 for t, _ in whole)
    head = {**about, "until": trace.until - trace.began, "phases": whole[max(0, before - 1) :]}
    line = _line(head)
    used, left_out = len(line) + END_BYTES, 0
    if used > room:
        raise OSError("no room")
    yield line
    names: Dict[str, int] = {}
    for place, one in enumerate(in_slices(sorted(recorded, key=lambda one: one.began), pause)):
        name = clean(kernel_name(one.name), MAX_NAME)
        line = b"" if name in names else _line([name])
        number = names.setdefault(name, len(names))
        values = (number, int(one.on_device), one.began - trace.began, one.ended - one.began, one.lane, one.correlation)
        line += b"[%d,%d,%d,%d,%d,%d]\n" % values
        used += len(line)
        if used > room:
            left_out = len(recorded) - place
            break
        yield line
    yield _line({"left_out": left_out})


def _line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"


def _chunks(lines: Iterator[bytes]) -> Iterator[bytes]:
    waiting, size = [], 0
    for line in lines:
        waiting.append(line)
        size += len(line)
        if size >= CHUNK:
            yield b"".join(waiting)
            waiting, size = [], 0
    yield b"".join(waiting)


def _write(file: Kept, data: bytes) -> None:
    while data:
        if not file.is_ours():  # the program has closed it
            raise OSError("closed by the program")
        data = data[os.write(file.number, data) :]
