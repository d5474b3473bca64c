"""The runs of one job as one: where hosts share a disk, each task of a scheduler has left a run of its own there.

Nothing is relied on but that files of other hosts appear within a minute or so: no lock, no clock finer than a second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from monitor.remote import joined, slurm
from monitor.remote.copies import FAR, parts_of
from trainhooks.protocol import rundir
from trainhooks.protocol.job_key import BATCH, is_named, key_over_hosts, restart

REFRESH_SECONDS = 1.0  # between two looks for what is new of a job
REST_TIMES = 20.0  # as long as a look took: one at a thousand parts takes a second
APART_SECONDS = 120.0  # by which a part may seem to have ended before another began: caches of the disk hold 60 s


class _Part(NamedTuple):
    path: Path
    environment: dict[str, str]
    name: str
    began: float
    ended: float  # about now where it lives

    @property
    def key(self) -> str | None:
        return key_over_hosts(self.environment)

    @property
    def restart(self) -> int:
        return restart(self.environment)

    @property
    def rank(self) -> int:
        text = self.environment.get("SLURM_PROCID", "")
        return int(text) if text.isascii() and text.isdigit() else 0


def together(runs: Sequence[Path]) -> list[Path]:
    """Return the runs, in their order, the parts of a job as one run in the place of the first of them.

    Args:
        runs: newest first.
    """
    parts = {run: part for run in runs if (part := _part(run)) is not None}
    if len(parts) < 2:
        return list(runs)
    whole: dict[Path, Path] = {}
    for job in _jobs(sorted(parts.values(), key=lambda part: part.began)):
        if len(job) > 1:
            with suppress(OSError):  # no room, or another user's: each part by itself
                made = joined.together(_name(job), [part.path for part in sorted(job, key=lambda part: part.rank)])
                whole.update(dict.fromkeys((part.path for part in job), made))
    return list(dict.fromkeys(whole.get(run, run) for run in runs))


def of_job(runs: Sequence[Path], job: str) -> list[Path]:
    """Return those of the runs that a person means who names a job, newest first."""
    return [run for run in runs if (part := _part(run)) is not None and is_named(part.environment, job)]


def whole(run: Path) -> Path:
    """Return the run that `together` has made of a run and others of its job; the run itself where it is alone."""
    part = _part(run)
    made = None if part is None else joined.place(_name([part]))
    return made if made is not None and run in parts_of(made) else run


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
    return _Part(run, environment, str(known.get("name") or run.name), float(began or 0.0), float(ended or 0.0))


def _jobs(parts: Sequence[_Part]) -> list[list[_Part]]:
    """Return the parts, by job. They come in the order in which they began."""
    found: list[list[_Part]] = []
    for part in parts:
        mine = next((job for job in reversed(found) if job[0].key == part.key and _belongs(part, job)), None)
        if mine is None:
            found.append([part])
        else:
            mine.append(part)
    return found


def _belongs(part: _Part, job: Sequence[_Part]) -> bool:
    """Return whether a part is of a job: another task of the same start, or of a later one."""
    newest = max(each.restart for each in job)
    if part.restart > newest:
        return any(each.name == part.name for each in job)  # its words may differ: --resume
    beside = [each for each in job if each.restart == part.restart]
    is_step = not str(part.key).endswith(f".{BATCH}")  # in a batch script, what runs beside another is another
    return is_step and any(part.began <= each.ended + APART_SECONDS for each in beside)


def _name(job: Sequence[_Part]) -> str:
    first = min(job, key=lambda part: part.began)
    began = time.strftime("%m%d", time.localtime(first.began))
    return rundir.slug(f"{first.name}-{began}-{str(first.key).rpartition(' ')[2]}", 120)
