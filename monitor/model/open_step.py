"""The step that is open now, as its pulses show it: which phase was seen from when to when. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainhooks.events import Pulse

MAX_PARTS = 64  # of one step; older ones become time that nobody saw
SAME = 0.25  # seconds by which two pulses may differ on when a phase began, and mean the same entry of it


@dataclass(slots=True)
class OpenStep:
    """Phases are seen once a second: those that came and went between two pulses are not among these."""

    step: int | None = None
    parts: list[tuple[str, float, float]] = field(default_factory=list)  # phase, from and to, in seconds of the step

    def take(self, pulse: Pulse) -> None:
        if pulse.step is None or pulse.step_open is None:
            self.step, self.parts = None, []
            return
        here = pulse.step_open
        if pulse.step != self.step or (self.parts and here < self.parts[-1][2]):  # another one, or the same once more
            self.step, self.parts = pulse.step, []
        if pulse.phase is None:
            return
        begin = here if pulse.phase_open is None else max(0.0, here - pulse.phase_open)
        if self.parts:
            name, since, upto = self.parts[-1]
            if name == pulse.phase and abs(begin - since) < SAME:
                self.parts[-1] = (name, since, here)
                return
            begin = max(begin, upto)
        self.parts.append((pulse.phase, begin, here))
        if len(self.parts) > MAX_PARTS:
            del self.parts[0]

    def upto(self, now: float) -> list[tuple[str | None, float]]:
        """The step's first `now` seconds in turn; None is time in which no phase was seen."""
        out: list[tuple[str | None, float]] = []
        at = 0.0
        for name, begin, end in self.parts:
            if begin - at > 0:
                out.append((None, begin - at))
            out.append((name, end - begin))
            at = end
        if now - at > 0:
            out.append((None, now - at))
        return out
