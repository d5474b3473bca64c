"""A folded state kept beside the journals, so that a long run is not read from its beginning each time.

It is a cache and nothing more: the journals hold the truth, and a keepsake that does not fit them is passed over.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import msgspec

from monitor.model.state import RunState
from monitor.runs import caches
from monitor.runs.packed import packed, unpacker
from monitor.sources.run_directory import Position, RunDirectory
from trainhooks import rundir

NAME = "state.cache"
WORTH = 8 * 1024 * 1024  # journal bytes that take long enough to read to be worth keeping: some 25,000 steps
HEAD = 512  # bytes at the begin of a journal that tell it from another


class _Kept(msgspec.Struct):
    shape: str
    heads: dict[str, int]  # journal -> checksum of its first bytes
    position: Position
    state: RunState


_decoder = unpacker(_Kept)


def keep(source: RunDirectory, state: RunState) -> None:
    """Write the state down, with the place in the journals that it stands for. Failing is no harm."""
    position = source.position()
    heads = {name: _head(source.path / name, offset) for name, offset in position.offsets.items()}
    caches.write(source.path / NAME, packed(_Kept(caches.shape(RunState), heads, position, state)))


def recall(source: RunDirectory) -> RunState | None:
    """The state that was kept, with the source moved to where it stands; None where there is none that fits."""
    try:
        kept = _decoder.decode((source.path / NAME).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    fits = kept.shape == caches.shape(RunState) and all(
        _head(source.path / name, offset) == kept.heads.get(name) and _size(source.path / name) >= offset
        for name, offset in kept.position.offsets.items()
    )
    if not fits:
        return None
    source.move_to(kept.position)
    return kept.state


def _head(path: Path, upto: int) -> int:
    try:
        with open(path, "rb", opener=rundir.at_once) as source:
            return zlib.crc32(source.read(min(HEAD, upto)))
    except OSError:
        return -1


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
