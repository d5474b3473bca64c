"""Why a run was slow and what to do, kept beside its journals for lists of runs: nothing else has to be loaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import msgspec

from monitor import __version__
from monitor.runs.caches import journal_bytes, write_cache
from monitor.runs.catalogue import RunEntry
from trainhooks.protocol import rundir
from trainhooks.protocol.limits import clean

ANSWER_CACHE = "answer.cache"
MAX_BYTES = 1 << 16


class _Kept(msgspec.Struct):
    version: str  # of trainmon: another one may judge otherwise
    bytes: int  # of the journals that it was made of
    verdict: str
    fix: str  # what to do first; empty where nothing is known


_decoder = msgspec.json.Decoder(_Kept)


def keep_answer(run: Path, verdict: str, fix: str) -> None:
    write_cache(run / ANSWER_CACHE, msgspec.json.encode(_Kept(__version__, journal_bytes(run), verdict, fix)))


def with_answers(entries: Iterable[RunEntry]) -> list[RunEntry]:
    """Return the runs with the verdict and the fix of those that were looked at since they ended."""
    return [entry if entry.state == "running" else _with_answer(entry) for entry in entries]


def _with_answer(entry: RunEntry) -> RunEntry:
    try:
        kept = _decoder.decode(rundir.read_regular(entry.path / ANSWER_CACHE, MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return entry
    if kept.version != __version__ or kept.bytes != journal_bytes(entry.path):
        return entry
    return replace(entry, verdict=clean(kept.verdict), fix=clean(kept.fix) or None)
