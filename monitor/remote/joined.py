"""A job on many hosts as one run: a directory of links to the journals of its copies, all on one host's clock.

Parts belong together where their launcher gave them the same name, and they lived at the same time; or the launcher
counts another start of the job.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from monitor.errors import UserError
from monitor.remote.copies import COPIES, FAR, PARTS, Far, copies_dir, far_of, fars_of, parts_of
from monitor.remote.far_side import GROWING
from monitor.sources.host_clocks import CLOCKS, shifts
from trainhooks.protocol import rundir
from trainhooks.protocol.job_key import key_over_hosts, restart, task
from trainhooks.protocol.limits import MAX_LINE

JOINED = "joined"  # among the copies, where hosts are
NAMED_HOSTS = 4  # in the run's `host`


def join(parts: Sequence[Path]) -> Path:
    """Return the directory of the run that these copies are parts of, with what they hold now.

    Raises:
        UserError: they are not parts of one job.
        OSError: it cannot be made.
    """
    keys = {}
    for part in parts:
        keys[part] = _key(part)
        if keys[part] is None and _first_line(part) is None:
            raise UserError(f"{_name(part)}: no rank has reported yet, so its job is not known")
        if keys[part] is None:
            raise UserError(
                f"{_name(part)}: its launcher gives the job no name over hosts; give torchrun --rdzv-id NAME and an "
                "address that is not a loopback, or use srun"
            )
    first, *others = parts
    for other in others:
        if keys[other] != keys[first]:
            raise UserError(f"{_name(first)} and {_name(other)} are two jobs: {keys[first]}, {keys[other]}")
        if _restart(first) == _restart(other) and not _overlap(first, other):
            raise UserError(f"{_name(first)} and {_name(other)} are two jobs: one ended before the other began")
    holders: dict[tuple[int, int], Path] = {}
    for part in parts:
        for rank in _living_ranks(part):
            if (other := holders.setdefault((_restart(part), rank), part)) != part:
                raise UserError(f"{_name(other)} and {_name(part)} are two jobs: both have a living rank {rank}")
    digest = hashlib.sha256(json.dumps([keys[first], *map(str, sorted(parts))]).encode()).hexdigest()[:12]
    parts = sorted(parts, key=_lowest_rank)
    return together(f"{rundir.slug(parts[0].name, 100)}-{digest}", parts)


def earlier_starts(part: Path, others: Sequence[Path]) -> list[Path]:
    """Return those of the others that are of the same job and were begun before it was started again.

    Where programs ran one after another in the job, it is the one with the same words, or the last of that name.
    """
    key, known, found = _key(part), rundir.read_json(part / rundir.IDENTITY) or {}, {}

    def likeness(other: Path) -> tuple[bool, float]:
        its = rundir.read_json(other / rundir.IDENTITY) or {}
        return its.get("command") == known.get("command"), _started(its)

    for other in sorted(others, key=likeness):
        is_alike = (rundir.read_json(other / rundir.IDENTITY) or {}).get("name") == known.get("name")
        if key is not None and is_alike and _key(other) == key and _restart(other) < _restart(part):
            found[_restart(other), _lowest_rank(other)] = other
    return list(found.values())


def together(name: str, parts: Sequence[Path]) -> Path:
    """Return the directory of a run that is made of these parts, the lowest rank's first, with what they hold now.

    Raises:
        OSError: it cannot be made.
    """
    run = rundir.private_directory(rundir.private_directory(copies_dir() / JOINED) / name)
    known = {"parts": [str(part) for part in sorted(parts, key=_restart, reverse=True)]}
    is_known = rundir.read_json(run / PARTS) == known
    if not is_known:
        for journal in rundir.journals(run):
            if not journal.name.startswith("rank-"):  # those of an earlier start tell of an end that was none
                journal.unlink(missing_ok=True)
        rundir.write_json(run / PARTS, known)
        (run / rundir.EXIT).unlink(missing_ok=True)  # of the job's start before
    if not is_known or not (run / rundir.EXIT).exists():
        refresh(run)
    return run


def place(name: str) -> Path:
    """Return the directory of a run that is made of parts, which may not be there."""
    return rundir.runs_dir().parent / COPIES / JOINED / name


def refresh(run: Path) -> None:
    """Take in what the parts have got since."""
    parts = [(part, far) for part, far in zip(parts_of(run), fars_of(run), strict=False) if part.is_dir()]
    if not parts:
        return
    lead, lead_far = parts[0]
    moved, before, last = {}, shifts(run), newest([part for part, _ in parts])
    links = []
    for place, (part, far) in enumerate(parts):
        seconds, is_before = _shift(lead, lead_far, part, far), part not in last
        for journal in rundir.journals(part):
            name = _shown(part, journal.name)
            is_told = place and journal.name.startswith("console-")  # what all hosts print alike
            if is_told or (is_before and not journal.name.startswith("rank-")):
                continue
            if seconds is None:  # read by another clock than its own it would be years off, for good
                continue
            links.append((run / name, part / journal.name))
            known, doubt = before.get(name), (far.uncertainty or 0.0) + (lead_far.uncertainty or 0.0)
            # A little jitter must not move steps that follow each other apart.
            moved[name] = seconds if known is None or abs(known - seconds) > doubt else known
    if moved != before:
        rundir.write_json(run / CLOCKS, moved)
    for shown, file in links:
        _link(shown, file)
    console = run / rundir.CONSOLE
    if os.path.lexists(console) and os.path.realpath(console) != os.path.realpath(lead / rundir.CONSOLE):
        console.unlink(missing_ok=True)
    _link(console, lead / rundir.CONSOLE)
    _write_small(run, parts, last)


def _write_small(run: Path, parts: list[tuple[Path, Far]], newest: list[Path]) -> None:
    known = rundir.read_json(newest[0] / rundir.IDENTITY) or {}
    for name in ("pid", "start_ticks", "group"):  # of one part only
        known.pop(name, None)
    if not (newest[0] / FAR).exists():
        known["id"] = run.name
    first = min((rundir.read_json(part / rundir.IDENTITY) or {} for part, _ in parts), key=_started)
    if first.get("boot_id") == known.get("boot_id"):
        known.update({name: first[name] for name in ("started", "started_monotonic") if name in first})
    hosts = list(dict.fromkeys(far.host for _, far in parts))
    named = ", ".join(hosts[:NAMED_HOSTS])
    known["host"] = named if len(hosts) <= NAMED_HOSTS else f"{named} and {len(hosts) - NAMED_HOSTS} more"
    _write_if_new(run / rundir.IDENTITY, known)
    ends = {part: end for part in newest if (end := rundir.read_json(part / rundir.EXIT)) is not None}
    if len(ends) == len(newest):  # the job ends with the last host; it failed if one did
        part = next((part for part, end in ends.items() if end.get("exit_code") != 0), newest[0])
        if _clock_of(part) != _clock_of(newest[0]):
            ends[part].pop("ended_monotonic", None)
        _write_if_new(run / rundir.EXIT, ends[part])
    for part in newest:
        if (stopped := rundir.read_json(part / rundir.STOPPED)) is not None:
            _write_if_new(run / rundir.STOPPED, stopped)


def _write_if_new(path: Path, content: dict[str, Any]) -> None:
    if rundir.read_json(path) != content:
        rundir.write_json(path, content)


def _shift(lead: Path, lead_far: Far, part: Path, far: Far) -> float | None:
    """Return the seconds to add to a part's times; None where they are not known yet."""
    if part == lead or _clock_of(lead) == _clock_of(part):
        return 0.0
    if lead_far.clock is None or far.clock is None or lead_far.boot_id != far.boot_id:
        return None
    return lead_far.clock - far.clock


def _clock_of(part: Path) -> tuple[Any, Any]:
    """Return what two parts have in common that read the same clock."""
    known = rundir.read_json(part / rundir.IDENTITY) or {}
    return known.get("boot_id") or str(part), known.get("time_namespace")


def _shown(part: Path, name: str) -> str:
    """Return the name that a journal of a part has in the run: hosts may share a name, and thus a journal's."""
    mark = hashlib.sha256(str(part).encode()).hexdigest()[:6]
    return name if name.startswith("rank-") else f"{name.removesuffix('.jsonl')}.{mark}.jsonl"


def _link(shown: Path, file: Path) -> None:
    """Link a file of a part, once."""
    with contextlib.suppress(FileExistsError):
        if GROWING.fullmatch(file.name) is not None and os.path.exists(file):
            os.symlink(file, shown)


def _first_line(part: Path) -> dict[str, Any] | None:
    """Return the first line of the journal of the part's lowest rank."""
    return next(_first_lines(part), None)


def _first_lines(part: Path) -> Iterator[dict[str, Any]]:
    """Yield the first lines of the journals of the part's ranks."""
    for journal in rundir.journals(part):
        if journal.name.startswith("rank-"):
            with contextlib.suppress(OSError, ValueError, RecursionError), open(journal, "rb") as source:
                line = json.loads(source.readline(MAX_LINE))
                if isinstance(line, dict):
                    yield line


def _living_ranks(part: Path) -> set[int]:
    """Return the ranks that a part has now: torchrun may give a process another one when it starts it again."""
    far = far_of(part)
    if far is None or not far.ranks:
        return set()
    found = {}
    for line in sorted(_first_lines(part), key=_began):
        local, rank = line.get("local_rank"), line.get("rank")
        if isinstance(local, int) and isinstance(rank, int):
            found[local] = rank
    return set(found.values())


def _began(line: dict[str, Any]) -> float:
    began = line.get("t")
    return float(began) if isinstance(began, int | float) else 0.0


def _environment(part: Path) -> dict[str, str]:
    """Return the variables of the part's lowest rank, those of its launcher where none has reported yet."""
    hello = _first_line(part)
    facts = (rundir.read_json(part / rundir.IDENTITY) or {}) if hello is None else hello.get("facts")
    known = facts.get("environment") if isinstance(facts, dict) else None
    return {str(key): str(value) for key, value in known.items()} if isinstance(known, dict) else {}


def _key(part: Path) -> str | None:
    return key_over_hosts(_environment(part))


def _started(known: dict[str, Any]) -> float:
    started = known.get("started")
    return float(started) if isinstance(started, int | float) else 0.0


def _restart(part: Path) -> int:
    """Return how often the job was started before this part."""
    known = (rundir.read_json(part / rundir.IDENTITY) or {}).get("environment")
    return restart(known if isinstance(known, dict) else _environment(part))


def newest(parts: Sequence[Path]) -> list[Path]:
    """Return the parts of a job's last start."""
    starts = {part: _restart(part) for part in parts}
    last = max(starts.values(), default=0)
    return [part for part, start in starts.items() if start == last]


def _lowest_rank(part: Path) -> int:
    rank = (_first_line(part) or {}).get("rank")
    return rank if isinstance(rank, int) else task(_environment(part), 1 << 30)


def _overlap(one: Path, other: Path) -> bool:
    """Return whether two parts lived at the same time. Wall clocks of hosts agree within seconds; jobs last longer."""
    (one_began, one_ended), (other_began, other_ended) = _lifetime(one), _lifetime(other)
    return one_began <= other_ended and other_began <= one_ended


def _lifetime(part: Path) -> tuple[float, float]:
    known, end = (rundir.read_json(part / name) or {} for name in (rundir.IDENTITY, rundir.EXIT))
    far, began, ended = far_of(part), known.get("started"), end.get("ended")
    if far is None or far.alive or not isinstance(ended, int | float):
        ended = time.time()
    return float(began) if isinstance(began, int | float) else 0.0, float(ended)


def _name(part: Path) -> str:
    far = far_of(part)
    return f"{far.host}:{far.run}" if far is not None else part.name
