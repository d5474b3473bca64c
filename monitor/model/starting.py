"""What a run without a step waits for: the looks of its processes at themselves, in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from monitor.model.stacks import ranks_text
from monitor.model.standing import WAITS
from monitor.start_looks import StartLook
from monitor.units import flow, plural
from trainhooks.protocol import start_waits
from trainhooks.protocol.calls import POOL, PROCESS, SUBPROCESS
from trainhooks.protocol.events import Host
from trainhooks.protocol.start_waits import INIT_GROUP, RANKS

MAX_NAMED_RANKS = 4
# What a process that starts others stands in: these are asked first.
_OF_PARENTS = (PROCESS, SUBPROCESS, POOL)


@dataclass(frozen=True, slots=True)
class StartWait:
    """What a run without a step waits for, for people."""

    what: str  # as in `StartLook`
    text: str  # "waiting for the first batch, 64 loader workers on 16 cores, load 530"
    seconds: float | None = None  # so far, or until the end; None: no process tells, it is what is seen from outside
    place: str = ""
    ranks: tuple[str, ...] = ()  # where they are, a line for each place, where there are several


_TEXTS = {
    start_waits.IMPORT: "importing",
    start_waits.DOWNLOAD: "downloading",
    start_waits.CHECKPOINT: "reading a checkpoint",
    start_waits.DATA_SET: "preparing a data set",
    start_waits.WEIGHTS: "drawing the model's first weights",
    start_waits.TO_GPU: "moving the model to the GPU",
    start_waits.WORKERS: "starting workers",
    start_waits.FIRST_BATCH: "waiting for the first batch",
    start_waits.COMPILE: "compiling",
    start_waits.RANKS: "waiting for other ranks",
}
_ABOUT = (start_waits.IMPORT, start_waits.DOWNLOAD, start_waits.CHECKPOINT, start_waits.COMPILE)
_OF_WORKERS = (start_waits.WORKERS, start_waits.FIRST_BATCH)


def start_wait(looks: Sequence[StartLook], ranks: Sequence[int], host: Host | None, now: float) -> StartWait | None:
    """Return what a run waits for by the looks of its processes, else by the host's readings; None: nothing is known.

    Args:
        ranks: those that have reported in by a journal.
        host: the last reading of the machine.
        now: monotonic seconds; of a run that has ended, its end.
    """
    if not looks:
        text = _processes(host)
        return None if text is None else StartWait("", text)
    look = min(looks, key=lambda look: (not look.alive, look.what in _OF_PARENTS, look.rank or 0, look.since, look.pid))
    text, since = _text(look, looks, ranks, host), max(0.0, now - look.since)
    return StartWait(look.what, text, since, look.place, _by_place(looks))


def _by_place(looks: Sequence[StartLook]) -> tuple[str, ...]:
    """Return `ranks 0 to 2: waiting for other ranks at train.py:40` for each place, the most common one first."""
    places: dict[tuple[str, str], list[int]] = {}
    for look in looks:
        if look.rank is not None:
            places.setdefault((look.what, look.place), []).append(look.rank)
    if len(places) < 2:
        return ()
    rows = sorted(places.items(), key=lambda row: -len(row[1]))[:MAX_NAMED_RANKS]
    return tuple(f"{ranks_text(at)}: {_doing(what)}" + (f" at {place}" if place else "") for (what, place), at in rows)


def _text(look: StartLook, looks: Sequence[StartLook], ranks: Sequence[int], host: Host | None) -> str:
    text = _doing(look.what)
    if look.what in _ABOUT and look.of:
        text += f" {look.of}" if look.what == start_waits.IMPORT else f" ({look.of})"
    if look.what in _OF_WORKERS:
        text += "".join(f", {part}" for part in _workers(host))
    return text + (_missing(look, looks, ranks) if look.what == RANKS else "")


def _doing(what: str) -> str:
    """Return `waiting for a lock`; of nothing known `at plot`."""
    if what in WAITS:
        return f"waiting {WAITS[what]}"
    return _TEXTS.get(what) or (f"at {what}" if what else "running its own code")


def _workers(host: Host | None) -> list[str]:
    """Return `64 loader workers`, `on 16 cores`, `load 530`, as far as they are known."""
    if host is None:
        return []
    processes = host.tree_processes or 0
    told = f"{plural(host.tree_workers, 'loader worker', 'loader workers')}" if host.tree_workers else ""
    told = told or (f"{processes:,} processes" if processes > 1 else "")
    cores = min((each for each in (host.cpu_limit, host.cores) if each), default=None)
    on = "" if cores is None else f"on {plural(round(cores), 'core', 'cores')}"
    load = "" if host.load1 is None else f"load {host.load1:,.0f}"
    return [part for part in (" ".join(filter(None, (told, on))) if told else "", load) if part]


def _missing(look: StartLook, looks: Sequence[StartLook], ranks: Sequence[int]) -> str:
    """Return which ranks are not there yet, as far as the others are known."""
    doing = "process group" if look.of == INIT_GROUP else "collective call"
    if look.world_size is None:
        return f" ({doing})"
    # Those that have ended are not there; of a run that has ended all are told as they were.
    by_rank = {each.rank: each for each in looks if each.rank is not None and each.alive >= look.alive}
    absent = [rank for rank in range(look.world_size) if (found := by_rank.get(rank)) is None or found.what != RANKS]
    if not absent:
        return f" ({doing}): all {look.world_size:,} are there"
    named = [f"rank {rank} {_whereabouts(by_rank.get(rank), rank in ranks)}" for rank in absent[:MAX_NAMED_RANKS]]
    more = [f"{len(absent) - len(named):,} more"] if len(absent) > len(named) else []
    return f" ({doing} of {look.world_size:,}): {', '.join([*named, *more])}"


def _whereabouts(look: StartLook | None, has_reported: bool) -> str:
    if look is None:
        return "is past it" if has_reported else "has not reported in"
    return f"is {_TEXTS.get(look.what, 'elsewhere')}" + (f" {look.of}" if look.what == start_waits.IMPORT else "")


def _processes(host: Host | None) -> str | None:
    """Return what is known from outside of a program that has told nothing: `1 process, 98% of one core`."""
    if host is None or not host.tree_processes:
        return None
    parts = [plural(host.tree_processes, "process", "processes")]
    parts += [f"{host.tree_cpu:.0f}% of one core"] if host.tree_cpu is not None else []
    parts += [f"reads {flow(host.tree_read)}"] if host.tree_read else []
    parts += [plural(host.tree_files, "open file", "open files")] if host.tree_files else []
    return ", ".join(parts)
