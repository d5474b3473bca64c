"""Free the older part of a long run's journals while it runs. What it held stays in the cache of the run's state.

Whole-run figures, curves and quantiles are then as before; single steps of the freed part can no longer be listed,
replayed or exported.
"""

from __future__ import annotations

import os
from pathlib import Path

from monitor.model.fold import fold
from monitor.model.state import RunState
from monitor.runs import state_cache
from monitor.sources import sparse_files
from monitor.sources.run_directory import RunDirectory
from trainhooks.protocol import rundir
from trainhooks.protocol.limits import MAX_LINE

KEPT_HEAD_BYTES = 1 << 20  # of each journal that stay: who wrote it, and the start of the training
LEAST_PRIORITY = 19


def main(run: str, most: str) -> None:
    """Free what a run's journals take beyond `most` bytes. A process of its own: reading needs memory for a while."""
    os.nice(LEAST_PRIORITY)
    compact(Path(run), int(most))


def compact(run: Path, most: int) -> int:
    """Free the older part of each journal that takes more than its share of `most` bytes. Return the bytes freed."""
    source = RunDirectory(run)
    try:
        source.find_journals()
        several = len(source.streams) > 1  # then no state is kept: it would be of one of them
        state = (None if several else state_cache.recall_state(source)) or RunState()
        until = sum(path.stat().st_size for path in rundir.journals(run))  # it grows while it is read
        while source.bytes_read() < until and (batch := source.poll_blocks()):
            for event in batch:
                fold(state, event)
        kept = not several and state_cache.keep_state(source, state)
        journals = rundir.journals(run)
        offsets = source.position().offsets
        freed = sum(_free_older(path, most // len(journals), offsets.get(path.name)) for path in journals)
        if not (kept or several):  # the disk was full
            state_cache.keep_state(source, state)
        return freed
    finally:
        source.close()


def _free_older(journal: Path, share: int, read: int | None) -> int:
    """Free whole lines between the head of a journal and its newest part, so that half of its share is left.

    Args:
        share: bytes that it may take.
        read: how far it was read; later lines stay. None: it is not of the training that was read.
    """
    used = sparse_files.used_bytes(journal)
    if used <= share:
        return 0
    with open(journal, "rb") as source:
        size = os.fstat(source.fileno()).st_size
        newest = size - share // 2
        begin = _line_after(source.fileno(), min(KEPT_HEAD_BYTES, share // 4))
        end = _line_after(source.fileno(), newest if read is None else min(newest, read - MAX_LINE))
    if end <= begin or not sparse_files.free_space(journal, begin, end):
        return 0
    return used - sparse_files.used_bytes(journal)


def _line_after(handle: int, offset: int) -> int:
    """Return the begin of the first line that begins after `offset`; `offset` itself in a freed part."""
    return offset + os.pread(handle, MAX_LINE, offset).find(b"\n") + 1
