"""Rollouts: the time in which a program steps its environments to collect what it trains on.

The adapters of environment libraries report the outermost step of an environment. A rollout lasts from the first model
call without gradients, or the first environment step, to the last environment step before the learning; model calls
with gradients in between are `forward`. Where a program has trained before it first steps an environment, its data come
from elsewhere: then environment steps are an evaluation.
"""

from __future__ import annotations

from typing import Any, Dict, Optional

from trainhooks.auto.instrumentation import framework
from trainhooks.lane_entries import AGGREGATE, NANOSECOND, NO_PHASE, PhaseMarker
from trainhooks.protocol.vocabulary import ENV_CALLS, ENV_SECONDS, ENV_STEPS, EPISODE_LENGTH, EPISODE_RETURN, EPISODES

ROLLOUT = PhaseMarker("rollout")


class Rollouts:
    """The rollouts of one tracker's thread. Times are nanoseconds of the host clock.

    Attributes:
        has_environment: an environment has been reset or stepped.
        collects: the program trains on what its environments return.
        open: a rollout is open, as the phase of the open step.
    """

    __slots__ = (
        "_acted_at", "_acting_since", "_lengths", "_returns", "_tracker", "collects", "env_calls", "env_ns",
        "env_steps", "episodes", "has_environment", "open",
    )  # fmt: skip

    def __init__(self, tracker: Any) -> None:
        self._tracker = tracker
        self.has_environment = self.collects = self.open = False
        self._acting_since: Optional[int] = None  # the first model call without gradients since the last rollout
        self._acted_at = 0  # when the last environment step ended
        self.env_calls = self.env_ns = self.env_steps = self.episodes = 0  # of the open step
        self._returns = self._lengths = (0.0, 0)  # sum and number of those that are known

    def acts(self, t: int) -> None:
        """Record a model call without gradients, which may choose an action."""
        if self.open:
            return
        if self.collects and not self._tracker.open:
            self._begin(t)
        elif self._acting_since is None:
            self._acting_since = t

    def env_step_begins(self, t: int) -> bool:
        """Record the begin of an environment's step. Return whether it is part of a rollout."""
        self.has_environment = True
        tracker = self._tracker
        if framework.open_evaluations or framework.open_phases:
            return False
        if self.open:
            return True
        if tracker.in_forward or tracker.in_backward or tracker.nested:
            return False
        if not self.collects:
            if tracker.last is not None:
                tracker.end_if_done(t)
                if not tracker.evaluating and not tracker.open:
                    tracker.evaluation_begins(t, 0)
                return False
            self.collects = True
        if tracker.evaluating:
            return False  # an evaluation that began with batches
        if tracker.open and tracker.stepped:
            tracker.end(t)
        since, self._acting_since = self._acting_since or t, None
        self._begin(since)
        return self.open

    def collection_begins(self, t: int) -> None:
        """Record that a framework begins to collect."""
        tracker = self._tracker
        if not (self.open or tracker.evaluating or tracker.in_backward or tracker.nested):
            self.collects = True
            if tracker.open and tracker.stepped:
                tracker.end(t)
            self._begin(t)

    def collection_ends(self, t: int) -> None:
        """Record that a framework has collected."""
        if self.open:
            self._acted_at = t
            self.end()

    def _begin(self, t: int) -> None:
        tracker = self._tracker
        if not tracker.open:
            tracker.begin(tracker.since(t))
        if tracker.open:
            tracker.put((ROLLOUT, t))
            self.open = True

    def env_step_ends(self, t: int, count: int, since: int) -> None:
        """Record the end of an environment's step, which was one of each of `count` environments."""
        self._acted_at = t
        self.env_steps += count
        self.env_calls += 1
        self.env_ns += t - since

    def episode_ends(self, total: Optional[float], length: Optional[float]) -> None:
        """Record the end of an episode, with its return and its length in environment steps where they are known."""
        self.episodes += 1
        if total is not None:
            self._returns = self._returns[0] + total, self._returns[1] + 1
        if length is not None:
            self._lengths = self._lengths[0] + length, self._lengths[1] + 1

    def end(self) -> None:
        """End the open rollout with its last environment step, as the learning begins."""
        self.open = False
        self._acting_since = None
        self._tracker.put((NO_PHASE, self._acted_at))

    def step_ends(self) -> None:
        """Put what was counted in the step that ends."""
        if self.open:
            self.end()
        self._acting_since = None
        if not self.env_steps:
            return
        sums: Dict[str, Any] = {
            ENV_STEPS: self.env_steps,
            ENV_CALLS: self.env_calls,
            ENV_SECONDS: self.env_ns / NANOSECOND,
        }
        means: Dict[str, Any] = {}
        if self.episodes:
            sums[EPISODES] = self.episodes
            for name, (whole, known) in ((EPISODE_RETURN, self._returns), (EPISODE_LENGTH, self._lengths)):
                if known:
                    means[name] = whole / known
        self._tracker.put((AGGREGATE, sums, means))
        self.step_canceled()

    def step_canceled(self) -> None:
        """Forget the counts of a step that is not recorded."""
        self.open = False
        self.env_calls = self.env_ns = self.env_steps = self.episodes = 0
        self._returns = self._lengths = (0.0, 0)
