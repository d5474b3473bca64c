"""The table of hangs: each program, where it stands, and what may be said of its slow but healthy twins."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent / "programs"
EARLY, SOON, LATER = 0, 3, 30  # steps before it stands: none, too few to know a usual one, enough


@dataclass(frozen=True)
class Case:
    """One program, and the truth about it."""

    program: str  # without `.py`
    at: int  # steps before it stands
    how: str = ""  # its second argument
    marker: str = "stands"  # the comment of the line that is to be named; empty: any
    named: str = ""  # what else is to be said: a rank
    ranks: int = 1  # that are started
    world: int | None = None  # that it believes to be; as many as are started by default
    is_healthy: bool = False  # nothing of weight may be found
    severity: str = "info"  # the least that the finding must have

    @property
    def name(self) -> str:
        return "_".join(filter(None, (self.program, self.how, str(self.at))))

    @property
    def place(self) -> str:
        """The line that is to be named, as `fifo.py:14`; empty: any."""
        lines = (PROGRAMS / f"{self.program}.py").read_text().splitlines()
        found = [number for number, line in enumerate(lines, 1) if line.endswith(f"# {self.marker}")]
        return f"{self.program}.py:{found[0]}" if self.marker else ""


def _ok(how: str, at: int = LATER) -> Case:
    return Case("ok_slow", at, how, marker="", is_healthy=True)


HANGS = (
    Case("ranks", LATER, "skip", marker="skip", named="rank 1", ranks=3, severity="critical"),
    Case("ranks", SOON, "early", marker="early", named="rank 1", ranks=2),
    Case("ranks", LATER, "save", marker="reordered", named="rank 1", ranks=2, severity="critical"),
    Case("ranks", LATER, "line", marker="called", named="rank 1", ranks=3, severity="critical"),
    Case("ranks", LATER, "raise", marker="raised", named="rank 1", ranks=4, severity="critical"),
    Case("ranks", EARLY, "skip", marker="skip", named="rank 1", ranks=2),
    Case("never_forms", EARLY, named="rank 1", world=2),
    Case("loader_worker_waits", LATER),
    Case("empty_queue", SOON),
    Case("silent_subprocess", LATER),
    Case("lost_future", EARLY),
    Case("killed_pool_worker", LATER),
    Case("lock_over_fork", LATER),
    Case("two_threads", LATER),
    Case("fifo", SOON),
    Case("stale_lock_file", EARLY),
    Case("held_interpreter", LATER, marker=""),  # no thread of the process can say where it is
    Case("stopped", LATER, marker=""),
    Case("thread_at_exit", LATER),
    Case("atexit_waits", LATER, marker=""),  # by then the hooks have taken their leave
    Case("silent_server", SOON),
    Case("silent_pipe", LATER),
    Case("event_loop", LATER),
    Case("in_evaluation", LATER),
    Case("in_checkpoint", LATER),
    Case("barrier_of_threads", EARLY),
    Case("child_never_ends", SOON),
)
HEALTHY = (
    _ok("compile"),
    _ok("compile", EARLY),
    _ok("tokenize"),
    _ok("factorize", SOON),
    _ok("generate"),
    _ok("evaluate"),
    _ok("hold"),
    _ok("save"),
    _ok("download"),
    _ok("debugger"),
    _ok("person", SOON),
    _ok("retry"),
    _ok("pool"),
    Case("ranks", LATER, "alone", marker="", ranks=2, is_healthy=True),
)
CASES = (*HANGS, *HEALTHY)
# The most different ones, for a short look.
SHORT = (
    *("ranks_skip_30", "lock_over_fork_30", "empty_queue_3", "lost_future_0", "in_evaluation_30", "two_threads_30"),
    *("thread_at_exit_30", "ok_slow_tokenize_30", "ok_slow_debugger_30", "ok_slow_save_30"),
)
