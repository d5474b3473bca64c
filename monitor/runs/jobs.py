"""The runs of one job as one: where hosts share a disk, each task of a scheduler has left a run of its own there.

Nothing is relied on but that files of other hosts appear within a minute or so: no lock, no clock finer than a second.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from monitor.remote import joined
from trainhooks.protocol import rundir
from trainhooks.protocol.job_key import BATCH, is_named, key_over_hosts, restart

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
