"""Environments that are stepped where nothing learns from them: in another thread, or in a process of their own.

A thread that acts beside the one that trains is its rollout. A process that steps environments for a while and learns
nothing itself acts for a learner elsewhere (one that multiprocessing started), or learns without an optimizer: an
evolution strategy, a table of values. It is announced as an actor then, and the run has what it counts.
"""

from __future__ import annotations

import atexit
import sys
from typing import Any, Optional, Set

from trainhooks import session
from trainhooks.auto.instrumentation import framework
from trainhooks.auto.rl.instances import Counts, Instance
from trainhooks.lane_entries import AGGREGATE, NANOSECOND, SPAN

ROLLOUT = "rollout"
PUT_INTERVAL = NANOSECOND // 2  # between what is put
MIN_ACTING = NANOSECOND  # without learning; a first rollout may be longer, and is counted all the same

vector_packages: Set[str] = set()  # libraries whose vectors of environments are counted as wholes


class Acting:
    """The environment steps of a thread that does not learn.

    Args:
        rollouts: of the thread that trains beside it; None: there is none.
        t: when it began.
    """

    __slots__ = ("_began", "_instance", "_is_told", "_put", "_since", "counts", "rollouts")

    def __init__(self, rollouts: Optional[Any], t: int) -> None:
        self.rollouts = rollouts
        self.counts = Counts()
        self._put = session.side_put()  # a step may be open in its own lane, and never end
        self._began = self._since = t
        self._instance: Optional[Instance] = None  # the last one
        self._is_told = False  # the process is announced

    def env_resets(self, instance: Instance, t: int) -> None:
        """Take no notice of it."""

    def env_step_begins(self, instance: Instance, t: int) -> bool:
        """Return whether a step is counted: beside a thread that collects itself, others evaluate."""
        rollouts = self.rollouts
        return not ((rollouts is not None and rollouts.collects) or framework.open_evaluations)

    def env_step_ends(self, instance: Instance, t: int) -> None:
        """Take what was stepped, and put it from time to time."""
        self._instance = instance
        self.counts.take(instance.counts)
        if t - self._since >= PUT_INTERVAL:
            # Beside a thread that steps it is a phase of the steps; else it is told by itself.
            self._put((SPAN, self._since, ROLLOUT) if self.rollouts is None else (ROLLOUT, self._since))
            self._put((None, t))
            self._put_counts()
            self._since = t
            if not self._is_told and t - self._began >= MIN_ACTING and learns_nothing():
                self._announce()

    def _put_counts(self) -> None:
        counts, self.counts = self.counts, Counts()
        if metrics := counts.metrics():
            self._put((AGGREGATE, metrics, {}))

    def _announce(self) -> None:
        self._is_told = True
        session.announce(acts=True)
        atexit.register(self.finish)  # runs before the session's own
        if session.is_child():  # atexit does not run in such a process
            sys.modules["multiprocessing.util"].Finalize(None, self.finish, exitpriority=-99)

    def finish(self) -> None:
        """Put what was counted last, at the end of the program."""
        if self._instance is not None:
            self._instance.ends_at_limit()
            self.counts.take(self._instance.counts)
        self._put_counts()


def learns_nothing() -> bool:
    """Return whether this process has not learned so far, and does not seem to be about to."""
    if is_vector_worker():
        return False
    tracker = framework.tracker
    if tracker is None:
        return True
    if tracker.silent or tracker.fast_path.steps or tracker.has_gradients:
        return False
    return bool(tracker.optimizers.none) or session.is_child()  # a forked one has the optimizers of its parent


def is_vector_worker() -> bool:
    """Return whether this process holds environments of a vector, whose steps are counted where that is stepped."""
    if not session.is_child():
        return False
    target = getattr(sys.modules["multiprocessing.process"].current_process(), "_target", None)
    return str(getattr(target, "__module__", "")).partition(".")[0] in vector_packages
