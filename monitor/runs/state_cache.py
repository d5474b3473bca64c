"""The folded state of a run, kept beside long journals: it spares reading them from the start each time."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from monitor.arrays import np
from monitor.memory_tuning import BLOCK
from monitor.model.state import RunState
from monitor.runs.caches import type_checksum, write_cache
from monitor.sources.run_directory import Position, RunDirectory
from monitor.sources.sparse_files import FREED
from trainhooks.protocol import rundir

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
        with open(path, "rb", opener=rundir.open_at_once) as source:
            return zlib.crc32(source.read(min(IDENTIFYING_BYTES, upto)))
    except OSError:
        return None


def _continues(path: Path, offset: int) -> bool:
    """Return whether a journal can be read on from there: it is long enough, and what follows was not freed."""
    try:
        with open(path, "rb", opener=rundir.open_at_once) as source:
            long_enough = os.fstat(source.fileno()).st_size >= offset
            return long_enough and os.pread(source.fileno(), 1, offset) != FREED
    except OSError:
        return not offset
