"""When findings came, grew worse and went, as seen by one reader that follows a run. Pure: the moment is passed in."""

from __future__ import annotations

from dataclasses import dataclass, field

from monitor.model.report import Finding, Turn

# A finding that leaves for a moment and comes back has not cleared: half a minute is the memory of a recent rate.
CLEARED_AFTER = 30.0
LEVELS = ("info", "warning", "critical")
TOLD = LEVELS[1:]  # what is only worth knowing wakes nobody
MAX_TURNS = 200


@dataclass(slots=True)
class _Known:
    finding: Finding
    seen: float


@dataclass(slots=True)
class FindingLog:
    """Take each look's findings in turn; what turned comes back, and the last turns are kept."""

    turns: list[Turn] = field(default_factory=list)
    _known: dict[str, _Known] = field(default_factory=dict)
    _looked: bool = False

    def take(self, findings: list[Finding], now: float) -> list[Turn]:
        """One look. What is found at the first one was there before this reader came: it is told as `present`."""
        new = []
        for finding in findings:
            known = self._known.get(finding.code)
            if finding.severity not in TOLD:
                continue  # and a known one that is milder now is on its way to be cleared
            if known is None:
                new.append(Turn(now, "appeared" if self._looked else "present", finding))
            elif LEVELS.index(finding.severity) > LEVELS.index(known.finding.severity):
                new.append(Turn(now, "worse", finding))
            self._known[finding.code] = _Known(finding, now)
        for code, known in list(self._known.items()):
            if now - known.seen >= CLEARED_AFTER:
                del self._known[code]
                new.append(Turn(now, "cleared", known.finding))
        self._looked = True
        self.turns = [*self.turns, *(turn for turn in new if turn.kind != "present")][-MAX_TURNS:]
        return new
