"""An environment of the program: its episodes, what was stepped in it, and whether the learner sees that.

An episode belongs to one environment, and to one place of a vector. It ends where the environment says so, or where the
program resets it after a step: an episode limit of its own. Programs that overlook that an episode was cut off step on
beyond its end, where each step ends it again: these are of no episode. Only numbers are kept of an environment.
"""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence, Tuple

from trainhooks.lane_entries import NANOSECOND
from trainhooks.protocol.vocabulary import (
    ENV_CALLS,
    ENV_SECONDS,
    ENV_STEPS,
    EPISODE_FIGURES,
    EPISODES,
    HIGHEST,
    LOWEST,
)

UNDECIDED, TRAINS, EVALUATES = range(3)


class Counts:
    """What was stepped, in nanoseconds of the host clock, and the episodes that ended."""

    __slots__ = ("calls", "episodes", "lengths", "ns", "returns", "steps")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.calls = self.ns = self.steps = self.episodes = 0
        self.returns: Tuple[float, float, float] = (0.0, 0.0, 0.0)  # sum, lowest, highest
        self.lengths: Tuple[float, float, float] = (0.0, 0.0, 0.0)

    def add_episode(self, total: float, length: float) -> None:
        self.returns = _joined(self.episodes, self.returns, (total, total, total))
        self.lengths = _joined(self.episodes, self.lengths, (length, length, length))
        self.episodes += 1

    def take(self, other: "Counts") -> None:
        """Add what another one holds, which then holds nothing."""
        if other.episodes:
            self.returns = _joined(self.episodes, self.returns, other.returns)
            self.lengths = _joined(self.episodes, self.lengths, other.lengths)
        self.calls += other.calls
        self.ns += other.ns
        self.steps += other.steps
        self.episodes += other.episodes
        other.clear()

    def metrics(self) -> Dict[str, Any]:
        """Return the metrics, none where nothing was counted: of several episodes the mean, lowest and highest."""
        found: Dict[str, Any] = {}
        if self.steps:  # none where an episode ended after its steps were put
            found = {ENV_STEPS: self.steps, ENV_CALLS: self.calls, ENV_SECONDS: self.ns / NANOSECOND}
        if self.episodes:
            found[EPISODES] = self.episodes
            for name, (whole, low, high) in zip(EPISODE_FIGURES, (self.returns, self.lengths)):
                found[name] = whole / self.episodes
                if self.episodes > 1:
                    found[name + LOWEST], found[name + HIGHEST] = low, high
        return found


def _joined(count: int, one: Tuple[float, ...], other: Tuple[float, ...]) -> Tuple[float, float, float]:
    if not count:
        return other[0], other[1], other[2]
    return one[0] + other[0], min(one[1], other[1]), max(one[2], other[2])


class Instance:
    """One environment, single or a vector, as it is stepped from outside.

    Attributes:
        use: whether the learner sees its steps, as far as that is known.
        counts: what was stepped and has not been put.
        block: of its last step; the steps between two updates are a block.
        blocks: in how many it was stepped.
        reset_block: of its last reset.
        limit: steps after which the program has ended its last two episodes; 0: it leaves that to the environment.
        size: how many environments its last step stepped.
        described: the size that the facts tell of.
        on_host: whether its rewards are in host memory: reading others would wait for them.
    """

    __slots__ = (
        "_cut", "_is_over", "block", "blocks", "counts", "described", "lengths", "limit", "on_host", "reference",
        "reset_block", "resetting", "returns", "size", "use",
    )  # fmt: skip

    def __init__(self, reference: Any) -> None:
        self.reference = reference  # weak
        self.use = UNDECIDED
        self.counts = Counts()
        self.block = self.blocks = self.reset_block = self.size = self.described = self.limit = self._cut = 0
        self._is_over = False  # an episode of several steps has ended, and there was no reset since
        self.on_host = True
        self.returns: Any = 0.0  # since each environment's last episode
        self.lengths: Any = 0
        self.resetting: Any = None  # which of a vector's environments are reset by their next step

    def is_midway(self) -> bool:
        """Return whether an episode is under way."""
        lengths = self.lengths
        return bool(lengths) if type(lengths) is int else bool(lengths.any())

    def resets(self, mask: Any) -> None:
        """Take a reset by the program: what is under way has ended.

        Args:
            mask: which environments of a vector; None: all.
        """
        if type(self.lengths) is int:
            self._is_over = False
            if self.lengths:
                self.limit = self.lengths if self.lengths == self._cut else 0
                self._cut = self.lengths
                self._single_ends(None)
            return
        under_way = self.lengths > 0
        if self.resetting is not None:
            under_way &= ~self.resetting  # they have ended; their first step would only have reset them
        if mask is not None:
            under_way &= mask
        for index in under_way.nonzero()[0].tolist():
            self._ends(index, None)
        if mask is None:
            self.resetting = None

    def ends_at_limit(self) -> None:
        """End an episode that is as long as the program lets them be: its last one is not followed by a reset."""
        if self.limit and self.lengths == self.limit:
            self._single_ends(None)

    def steps(self, environment: Any, result: Any, ns: int) -> None:
        """Take a step's result: observations, rewards, ends of episodes (one column, or two), and information.

        Args:
            ns: nanoseconds that it took.
        """
        counts = self.counts
        counts.calls += 1
        counts.ns += ns
        items: Sequence[Any] = result if isinstance(result, (tuple, list)) else ()
        if len(items) not in (4, 5):
            counts.steps += 1
            return
        rewards = items[1]
        if type(rewards) is not float:
            shape: Any = getattr(rewards, "shape", ())
            is_vector = len(shape) == 1
            self.on_host = type(rewards).__module__ in ("builtins", "numpy")
            if is_vector or not self.on_host:
                self.size = int(shape[0]) if is_vector else 1
                counts.steps += self.size
                if self.on_host:
                    mode = (getattr(environment, "metadata", None) or {}).get("autoreset_mode")
                    self._vector(rewards, _ended(items), items[-1], getattr(mode, "name", "") == "NEXT_STEP")
                return
            rewards = float(rewards)
        counts.steps += 1
        if self.size != 1:
            self.size, self.returns, self.lengths = 1, 0.0, 0
        self.returns += rewards
        self.lengths += 1
        if _ended(items):
            if self._is_over and self.lengths == 1:
                self.returns, self.lengths = 0.0, 0
                return
            self._is_over = self.lengths > 1
            self._single_ends(items[-1])

    def _single_ends(self, information: Any) -> None:
        total, length = _statistics(information) or (self.returns, self.lengths)
        self.counts.add_episode(float(total), float(length))
        self.returns, self.lengths = 0.0, 0

    def _vector(self, rewards: Any, done: Any, information: Any, resets_next: bool) -> None:
        if getattr(self.returns, "shape", None) != rewards.shape:
            self.returns, self.lengths, self.resetting, self.limit = rewards * 0.0, rewards * 0.0, None, 0
        self.returns = self.returns + rewards
        self.lengths = self.lengths + 1
        if self.resetting is not None:
            self.returns[self.resetting] = self.lengths[self.resetting] = 0
        self.resetting = done.copy() if resets_next else None
        if done.any():
            for index in done.nonzero()[0].tolist():
                self._ends(index, information)

    def _ends(self, index: int, information: Any) -> None:
        known = _statistics(information[index]) if isinstance(information, (list, tuple)) else None
        if known is None and isinstance(information, dict):
            known = _statistics(information, index)
        total, length = known or (self.returns[index], self.lengths[index])
        self.counts.add_episode(float(total), float(length))
        self.returns[index] = self.lengths[index] = 0


def _ended(items: Sequence[Any]) -> Any:
    """Return which episodes a step has ended: terminated or truncated, in older libraries one column."""
    return items[2] if len(items) == 4 else items[2] | items[3]


def _statistics(information: Any, index: Optional[int] = None) -> Any:
    """Return an episode's return and length, as wrappers that record them leave them; None: unknown."""
    known = information.get("episode") if isinstance(information, dict) else None
    if not isinstance(known, dict) or "r" not in known or "l" not in known:
        return None
    return (known["r"], known["l"]) if index is None else (known["r"][index], known["l"][index])
