"""The runs of one job as one: where hosts share a disk, each task of a scheduler has left a run of its own there.

Nothing is relied on but that files of other hosts appear within a minute or so: no lock, no clock finer than a second.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from monitor.remote import joined, slurm
from monitor.remote.copies import FAR, parts_of
from trainhooks.protocol import rundir
from trainhooks.protocol.job_key import BATCH, is_named, key_over_hosts, restart, task

REFRESH_SECONDS = 1.0  # between two looks for what is new of a job
REST_TIMES = 20.0  # as long as a look took: one at a thousand parts takes a second
APART_SECONDS = 120.0  # by which a part may seem to have ended before another began: caches of the disk hold 60 s


class _Part(NamedTuple):
    path: Path
    environment: dict[str, str]
    name: str
    words: list[str]
    began: float
    ended: float  # about now where it lives
    key: str
    restart: int
    rank: int


def together(runs: Sequence[Path]) -> list[Path]:
    """Return the runs, in their order, the parts of a job as one run in the place of the first of them.

    Args:
        runs: newest first.
    """
    parts = {run: part for run in runs if (part := _part(run)) is not None}
    if len(parts) < 2:
        return list(runs)
    whole: dict[Path, Path] = {}
    alike: Counter[str] = Counter()
    for job in _jobs(sorted(parts.values(), key=lambda part: part.began)):
        alike[name := _name(job)] += 1
        if len(job) > 1:
            with suppress(OSError):  # no room, or another user's: each part by itself
                number = f"-{alike[name]}" if alike[name] > 1 else ""
                made = joined.together(name + number, [part.path for part in sorted(job, key=lambda part: part.rank)])
                whole.update(dict.fromkeys((part.path for part in job), made))
    return list(dict.fromkeys(whole.get(run, run) for run in runs))


def of_job(runs: Sequence[Path], job: str) -> list[Path]:
    """Return those of the runs that a person means who names a job, newest first."""
    return [run for run in runs if (part := _part(run)) is not None and is_named(part.environment, job)]


def whole(run: Path) -> Path:
    """Return the run that `together` has made of a run and others of its job; the run itself where it is alone."""
    part = _part(run)
    places = [] if part is None else sorted(joined.place("").glob(f"*-{_tail(part)}*"))
    return next((made for made in places if run in parts_of(made)), run)


def gathered(run: Path) -> Path:
    """Return the same, after a look for others of the job."""
    with suppress(OSError):
        Gathering(run).look()
    return whole(run)


def acting(run: Path) -> Path:
    """Return what is stopped, or asked, in the place of a run: the one part of its job that lives, else all of it."""
    found = whole(run)
    living = [part for part in parts_of(found) if not (part / FAR).exists() and rundir.run_alive(part)]
    return living[0] if len(living) == 1 else found


def is_awaited(run: Path) -> bool:
    """Return whether Slurm says that it starts the job of a run again. It is asked, which may take seconds."""
    parts = [_part(part) for part in parts_of(run) or [run] if not (part / FAR).exists()]
    known = [part for part in parts if part is not None]
    starts = max((part.restart for part in known), default=0)
    return bool(known) and slurm.starts_again(known[0].environment["SLURM_JOB_ID"], starts)


class Gathering:
    """Takes into a run what its job gets: more of its parts, other parts, later starts; in a thread, once begun.

    Nothing for a run that is of no job.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._stop = threading.Event()
        parts = parts_of(run)
        self._is_far = any((part / FAR).exists() for part in parts)
        self._mine = set() if self._is_far else {part for part in parts or [run] if _part(part) is not None}
        self._keys = {part.key for each in self._mine if (part := _part(each)) is not None}
        self._others: set[Path] = set()

    def start(self) -> None:
        if self._is_far or self._mine:
            threading.Thread(target=self._gather, name="join", daemon=True).start()

    def _gather(self) -> None:
        pause = REFRESH_SECONDS
        while not self._stop.wait(pause):
            began = time.monotonic()
            with suppress(OSError):  # a full disk
                self.look()
            pause = max(REFRESH_SECONDS, REST_TIMES * (time.monotonic() - began))

    def look(self) -> None:
        """Look once.

        Raises:
            OSError: the directory of the runs is not readable, or the disk is full.
        """
        if self._is_far:
            joined.refresh(self._run)
        if not self._mine:
            return
        for run in rundir.runs_dir().iterdir():
            if run not in self._mine and run not in self._others and (run / rundir.IDENTITY).exists():
                part = _part(run)
                (self._mine if part is not None and part.key in self._keys else self._others).add(run)
        together(list(self._mine))  # which refreshes what it made before

    def stop(self) -> None:
        self._stop.set()


def _part(run: Path) -> _Part | None:
    """Return what tells whose part a run is; None for a run that Slurm has not started."""
    known = rundir.read_json(run / rundir.IDENTITY) or {}
    environment, began = known.get("environment"), known.get("started")
    if not isinstance(environment, dict) or "SLURM_JOB_ID" not in environment or type(began) not in (int, float):
        return None
    ended = (rundir.read_json(run / rundir.EXIT) or {}).get("ended")
    if type(ended) not in (int, float):
        ended = time.time()
        with suppress(OSError):
            ended = max((path.stat().st_mtime for path in rundir.journals(run)), default=ended)
    environment = {str(key): str(value) for key, value in environment.items()}
    if (key := key_over_hosts(environment)) is None:
        return None
    return _Part(
        path=run,
        environment=environment,
        name=str(known.get("name") or run.name),
        words=known.get("command") or [],
        began=float(began or 0.0),
        ended=float(ended or 0.0),
        key=key,
        restart=restart(environment),
        rank=task(environment, 0),
    )


def _jobs(parts: Sequence[_Part]) -> list[list[_Part]]:
    """Return the parts, by job. They come in the order in which they began."""
    found: list[list[_Part]] = []
    for part in parts:
        alike = [job for job in found if job[0].key == part.key and job[0].name == part.name]
        mine = [job for job in alike if _is_beside(part, job)] or _before(part, alike)
        if mine:
            max(mine, key=lambda job: (_has_words(part, job), _overlap(part, job))).append(part)
        else:
            found.append([part])
    return found


def _is_beside(part: _Part, job: Sequence[_Part]) -> bool:
    """Return whether a part is another task of the same start of a job. One task does not run it twice."""
    beside = [each for each in job if each.restart == part.restart]
    is_step = not part.key.endswith(f".{BATCH}")  # in a batch script, what runs beside another is another
    is_other = is_step and all(each.rank != part.rank for each in beside)
    return is_other and any(part.began <= each.ended + APART_SECONDS for each in beside)


def _before(part: _Part, alike: Sequence[list[_Part]]) -> list[list[_Part]]:
    """Return the jobs that a part may be a later start of: the last one, whose words may differ; any with the same."""
    earlier = [job for job in alike if job[0].restart < part.restart]
    return [
        job
        for job in earlier
        if max(each.restart for each in job) < part.restart and (job is earlier[-1] or _has_words(part, job))
    ]


def _has_words(part: _Part, job: Sequence[_Part]) -> bool:
    return any(each.words == part.words for each in job)


def _overlap(part: _Part, job: Sequence[_Part]) -> float:
    """Return the seconds for which both lived; less than 0: those between them."""
    ended, began = max(each.ended for each in job), min(each.began for each in job)
    return min(part.ended, ended) - max(part.began, began)


def _name(job: Sequence[_Part]) -> str:
    first = min(job, key=lambda part: part.began)
    began = time.strftime("%m%d", time.localtime(first.began))
    return f"{rundir.slug(first.name, 80)}-{began}-{_tail(first)}"


def _tail(part: _Part) -> str:
    """Return what ends the names of the runs that are made of parts of the same job and step."""
    return rundir.slug(part.key.rpartition(" ")[2])
