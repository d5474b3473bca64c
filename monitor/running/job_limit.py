"""Until when a scheduler lets the job run: told to the journal at the start and now and then, as limits change."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping

from trainhooks.protocol import events

ASK_SECONDS = 600.0  # between two questions: one controller answers all jobs of a cluster
ANSWER_SECONDS = 60.0
_LEFT = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,6}):(\d{2})")  # squeue: days-hours:minutes:seconds


def tell(write: Callable[[events.Event], None], over: Callable[[float], bool]) -> None:
    """Tell until `over`, which waits for the given seconds, returns true. Never raises.

    One process of a job does: the task of rank 0, or the batch script.
    """
    job = os.environ.get("SLURM_JOB_ID", "")
    if not re.fullmatch(r"\d{1,12}", job) or os.environ.get("SLURM_PROCID", "0") != "0":
        return
    known = seconds_until_end(os.environ, time.time())
    while True:
        left = _asked(job) if known is None else known
        if left is not None:
            write(events.Facts(producer="", seq=0, t=time.monotonic(), facts={"job_left": left}))
        if known is not None or over(ASK_SECONDS):
            return


def seconds_until_end(environment: Mapping[str, str], now: float) -> float | None:
    """Return the seconds until a job's end where newer Slurms (23.02) tell it; None where they do not."""
    text = environment.get("SLURM_JOB_END_TIME", "")
    return max(0.0, int(text) - now) if text.isascii() and text.isdigit() and len(text) < 12 else None


def seconds_left(text: str) -> float | None:
    """Return the seconds of a time as squeue writes it, `1-02:03:04` or `3:04`; None for UNLIMITED and the like."""
    match = _LEFT.fullmatch(text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _asked(job: str) -> float | None:
    words = ["squeue", "--noheader", "--format=%L", "--jobs", job]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=ANSWER_SECONDS, stdin=subprocess.DEVNULL)
    except (OSError, ValueError, subprocess.SubprocessError):  # no such command, or the controller is busy
        return None
    return seconds_left(done.stdout)
