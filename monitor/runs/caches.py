"""Caches beside the journals of a run: its folded state, and its figures for comparison with later runs.

They hold nothing that cannot be read again from the journals; a cache that does not match them is ignored. The state
spares reading a long run from its start each time. The figures of a finished run let the next run of the same command
be compared in milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import msgspec

from monitor import __version__
from monitor.arrays import np
from monitor.memory_tuning import BLOCK
from monitor.model.comparison.compare import Side, same_kind_of_machine, same_program
from monitor.model.comparison.likeness import unlike
from monitor.model.report import Report
from monitor.model.state import RunState
from monitor.runs import catalogue
from monitor.runs.catalogue import identity
from monitor.sources.run_directory import Position, RunDirectory
from monitor.sources.sparse_files import FREED
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


# The folded state.

ENCODED_BYTES = 4 * BLOCK  # fits most states

T = TypeVar("T")


def encoded(value: Any) -> bytearray:
    """Return an object as MessagePack, in a buffer that is large from the start.

    A large buffer is given back to the system whole; one that grows would leave the heap larger.
    """
    content = bytearray(ENCODED_BYTES)
    _encoder.encode_into(value, content)
    return content


def decoder_of(kind: type[T]) -> msgspec.msgpack.Decoder[T]:
    """Return a decoder for a type. It raises a ValueError for other bytes."""
    return msgspec.msgpack.Decoder(kind, dec_hook=_as_array)


def _as_bytes(array: Any) -> tuple[str, tuple[int, ...], bytes]:
    return array.dtype.str, array.shape, array.tobytes()


def _as_array(_: type, content: Any) -> Any:
    kind, shape, data = content
    return np.frombuffer(data, kind).reshape(shape)


_encoder = msgspec.msgpack.Encoder(enc_hook=_as_bytes)


STATE_CACHE = "state.cache"
MIN_JOURNAL_BYTES = 8 << 20  # smaller journals, up to some 25,000 steps, are read quickly anyway
MAX_CACHE_BYTES = 1 << 28  # a thousand ranks take some 30 MB
IDENTIFYING_BYTES = 512  # at the start of a journal; they identify it


class _KeptState(msgspec.Struct):
    shape: str
    heads: dict[str, int | None]  # journal -> checksum of its first bytes
    position: Position
    state: RunState


_state_decoder = decoder_of(_KeptState)


def keep_state(source: RunDirectory, state: RunState) -> bool:
    """Cache the state with its position in the journals. Return whether it was written.

    Where a part of the journals is freed, the cache has what was in it: one that was made without it must not take its
    place.
    """
    if source.has_gap:
        return False
    position = source.position()
    heads = {name: _head(source.path / name, offset) for name, offset in position.offsets.items()}
    return write_cache(source.path / STATE_CACHE, encoded(_KeptState(type_checksum(RunState), heads, position, state)))


def recall_state(source: RunDirectory) -> RunState | None:
    """Return the cached state, with the source moved to its position; None where no cache matches."""
    try:
        kept = _state_decoder.decode(rundir.read_regular(source.path / STATE_CACHE, MAX_CACHE_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    fits = kept.shape == type_checksum(RunState) and all(
        _head(source.path / name, offset) == kept.heads.get(name) and _continues(source.path / name, offset)
        for name, offset in kept.position.offsets.items()
    )
    if not fits:
        return None
    source.move_to(kept.position)
    return kept.state


def _head(path: Path, upto: int) -> int | None:
    try:
        with open(path, "rb", opener=rundir.at_once) as source:
            return zlib.crc32(source.read(min(IDENTIFYING_BYTES, upto)))
    except OSError:
        return None


def _continues(path: Path, offset: int) -> bool:
    """Return whether a journal can be read on from there: it is long enough, and what follows was not freed."""
    try:
        with open(path, "rb", opener=rundir.at_once) as source:
            long_enough = os.fstat(source.fileno()).st_size >= offset
            return long_enough and os.pread(source.fileno(), 1, offset) != FREED
    except OSError:
        return not offset


# The figures of finished runs, and the run to compare with: the last comparable one of the same command.

FIGURES_CACHE = "figures.cache"
MIN_BASELINE_STEPS = 30  # steps of a run that others can be compared with
MAX_CANDIDATES = 5  # newest runs considered: code and machine of older ones are likely to differ
MAX_READ_BYTES = 64 << 20  # of journals read where no cache exists: some seconds


class _KeptFigures(msgspec.Struct):
    shape: str
    bytes: int  # of the journals that it was made of
    side: Side


_figures_decoder = msgspec.msgpack.Decoder(_KeptFigures)


def keep_figures(run: Path, side: Side) -> None:
    """Cache the figures of a run that has ended."""
    report = side.report
    if report.outcome.state == "running" or not _steps(report):
        return
    # Only what a comparison reads: none of the lists that grow with a run.
    slim = replace(report, slow_steps=[], findings=[], alerts=[])
    kept = _KeptFigures(type_checksum(Side), _journal_bytes(run), Side(slim, side.step_seconds))
    write_cache(run / FIGURES_CACHE, msgspec.msgpack.encode(kept))


def recall_figures(run: Path) -> Side | None:
    """Return the cached figures, if they match the journals."""
    try:
        kept = _figures_decoder.decode(rundir.read_regular(run / FIGURES_CACHE, MAX_CACHE_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return kept.side if kept.shape == type_checksum(Side) and kept.bytes == _journal_bytes(run) else None


def baseline_run(run: Path, report: Report, read: Callable[[Path], Side]) -> Side | None:
    """Return the last comparable run of the same command that ended before this one began; None where there is none.

    Args:
        run: the directory of the run to compare.
        report: its report.
        read: reads a run from its journals, where its figures are not cached.
    """
    own = identity(run)
    for candidate in _candidates(run)[:MAX_CANDIDATES]:
        if catalogue.state(candidate)[0] == "running":
            continue
        side = recall_figures(candidate)
        if side is None and _journal_bytes(candidate) <= MAX_READ_BYTES:
            side = read(candidate)
            keep_figures(candidate, side)
        if side is None or _steps(side.report) < MIN_BASELINE_STEPS or unlike(side.report, report):
            continue
        if same_kind_of_machine(side.report, report):
            began, ended = own.get("started"), _ended(side.report)
            if began and ended and ended <= began:
                return side
    return None


def typical_startup(run: Path) -> float | None:
    """Return the median start-up of this command's last runs in seconds, from their cached figures; None if unknown."""
    sides = [recall_figures(path) for path in _candidates(run)[:MAX_CANDIDATES]]
    known = [side.report.wall.startup for side in sides if side is not None and _steps(side.report)]
    seconds = [startup for startup in known if startup]
    return median(seconds) if seconds else None


def _candidates(run: Path) -> list[Path]:
    """Return earlier runs of the same command, newest first, by their identity alone."""
    own = identity(run)
    started = own.get("started")
    if not started or not own.get("command"):
        return []
    earlier = []
    for path in run.parent.iterdir() if run.parent == rundir.runs_dir() else ():
        known = identity(path)
        if path != run and known.get("started", started) < started and same_program(known, own):
            earlier.append((known["started"], path))
    return [path for _, path in sorted(earlier, reverse=True)]


def _ended(report: Report) -> float | None:
    if report.run.started is None or report.wall.total is None:
        return None
    return report.run.started + report.wall.total


def _steps(report: Report) -> int:
    return report.progress.steps_ok + report.progress.steps_skipped


def _journal_bytes(run: Path) -> int:
    total = 0
    for journal in rundir.journals(run):
        with contextlib.suppress(OSError):
            total += journal.stat().st_size
    return total
