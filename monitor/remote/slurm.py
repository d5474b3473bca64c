"""The nodes of a Slurm job, and the way to each: `srun --overlap` within the job, where no ssh leads."""

from __future__ import annotations

import re
import subprocess

from monitor.errors import UserError
from monitor.remote.line import Target

# States in which a job stays.
_ENDED = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT")
ASK_SECONDS = 30.0  # a controller of a large cluster answers late


def nodes(job: str) -> list[Target]:
    """Return the ways to the nodes that a job runs on.

    Raises:
        UserError: Slurm is not here, or the job does not run.
    """
    if re.fullmatch(r"[0-9]{1,12}(_[0-9]{1,9})?", job) is None:
        raise UserError(f"no run of a job {job} here; name its hosts: --job {job} --host HOST,HOST")
    listed = _said("squeue", "--noheader", "--states=RUNNING", "--format=%N", "--jobs", job).split()
    if not listed:
        raise UserError(f"job {job} does not run")
    names = _said("scontrol", "show", "hostnames", ",".join(listed)).split()
    way = ("srun", "--overlap", "--jobid", job, "--nodes=1", "--ntasks=1", "--nodelist")
    return [Target(name, (*way, name)) for name in names]


def starts_again(job: str, starts: int) -> bool:
    """Return whether a job that was started again so often before is to be started once more, or has just been.

    Preempted, requeued or without its node, it waits; False where Slurm does not say so.
    """
    try:
        known = dict(word.partition("=")[::2] for word in _said("scontrol", "show", "job", "--oneliner", job).split())
    except UserError:
        return False
    restarts = known.get("Restarts", "")
    return restarts.isdigit() and int(restarts) > starts and known.get("JobState") not in _ENDED


def _said(*words: str) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=ASK_SECONDS, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise UserError(f"no such job here, and no {words[0]} that knows it; name its hosts: --host") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(f"{words[0]}: {error}") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise UserError(lines[-1] if lines else f"{words[0]}: exit code {done.returncode}")
    return done.stdout
