"""Which parts of a step longer than a second are traced, one after the other.

A part begins where a phase begins, and holds what follows until that phase begins again (a micro-batch) or a second is
over. A phase that is longer alone is a part if it is known how much it launches: nothing can end a trace inside it.
"""

from __future__ import annotations

from typing import Dict, Iterable, Optional, Set, Tuple

from trainhooks.lane_entries import BACKWARD, DATA, FORWARD, NANOSECOND, OPTIMIZER

MAX_NS = NANOSECOND  # of a part, and of a step that is traced as a whole
MAX_PHASE_NS = 10 * NANOSECOND  # of a phase that is traced though it is longer alone
MIN_SHARE = 0.01  # of the step: a shorter phase is traced beside others only
# Launches and kernels of a phase, for a launch of the model's forward pass, recomputation included. Other phases call
# models nobody knows how often.
EVENTS = {FORWARD.name: 2, BACKWARD.name: 5, OPTIMIZER.name: 5}


class Parts:
    """The phases of the newest steps, and which of them have been traced. For the background thread.

    Attributes:
        is_long: whether the newest two that were seen took longer than MAX_NS.
        are_left: whether there are phases that no trace has tried to hold.
    """

    def __init__(self) -> None:
        self.is_long = self._was_long = False
        self._lengths: Dict[str, int] = {}  # nanoseconds of a phase at a time
        self._wanted: Dict[str, float] = {}  # the phases to trace: the device's seconds a step
        self._tried: Set[str] = set()

    def learn(self, duration: int, phases: Iterable[Tuple[str, int, int]]) -> None:
        """Learn the phases of a step: name, nanoseconds and times entered, of each."""
        self._was_long, was_long = duration > MAX_NS, self._was_long
        self.is_long = self._was_long and was_long
        if self._was_long:
            self._lengths = {name: spent // max(1, times) for name, spent, times in phases}

    def learn_device(self, seconds: float, phases: Iterable[Tuple[str, float]]) -> None:
        """Learn where the device spends a step: its seconds, and those of each phase."""
        self._wanted = {name: spent for name, spent in phases if name != DATA.name and spent > MIN_SHARE * seconds}

    def length(self, phase: Optional[str]) -> int:
        """Return the nanoseconds that a phase takes at a time; 0: not known."""
        return self._lengths.get(phase or "", 0)

    @property
    def are_left(self) -> bool:
        return self.is_long and not self._tried.issuperset(self._wanted)

    def choose(self, launches: Optional[int], max_events: int) -> Optional[str]:
        """Return the phase to begin the next trace with: the longest that was not tried, of all once each was.

        Args:
            launches: of a forward pass; None: not known.
            max_events: that a trace may hold.

        Returns:
            None where a trace of any would not end soon enough.
        """
        fitting = [name for name in self._wanted if self._fits(name, launches, max_events)]
        self._tried.update(name for name in self._wanted if name not in fitting)
        if self._tried.issuperset(fitting):
            self._tried.difference_update(fitting)
        chosen = max(fitting, key=lambda name: (name not in self._tried, self._wanted[name]), default=None)
        self._tried.update(() if chosen is None else (chosen,))
        return chosen

    def _fits(self, phase: str, launches: Optional[int], max_events: int) -> bool:
        events, length = EVENTS.get(phase, 0), self.length(phase)
        if length > MAX_NS and not (events and launches and length <= MAX_PHASE_NS):
            return False
        return events * (launches or 0) <= max_events

    def tried(self, phases: Iterable[str]) -> None:
        """Note that a trace held these phases."""
        self._tried.update(phases)
