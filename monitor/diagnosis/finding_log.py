"""The log of changed findings, for one reader that follows a run. The moment is passed in."""

from __future__ import annotations

from dataclasses import dataclass, field

from monitor.model.report import Finding
from monitor.model.view import FindingChange

# A finding that leaves for a moment and comes back has not cleared: half a minute is the memory of a recent rate.
CLEARED_AFTER = 30.0
LEVELS = ("info", "warning", "critical")
LOGGED = LEVELS[1:]  # information is not logged
MAX_CHANGES = 200


@dataclass(slots=True)
class _Known:
    finding: Finding
    last_found: float


@dataclass(slots=True)
class FindingLog:
    """Changes between one diagnosis and the next; the newest `MAX_CHANGES` are kept.

    It begins with those of an earlier reader: what had appeared and is gone then clears.
    """

    turns: list[FindingChange] = field(default_factory=list)
    _known: dict[str, _Known] = field(default_factory=dict)
    _has_read: bool = False

    def update(self, findings: list[Finding], now: float, is_last: bool = False) -> list[FindingChange]:
        """Take the findings of one moment and return what changed. What the first call holds is `present`, not new.

        Args:
            is_last: the run has ended: what is not found any more stays as it was.
        """
        new = []
        if not self._has_read:
            for turn in self.turns:
                self._known[turn.finding.code] = _Known(turn.finding, now)
                if turn.kind == "cleared":
                    del self._known[turn.finding.code]
        for finding in findings:
            known = self._known.get(finding.code)
            if finding.severity not in LOGGED:
                continue  # a known finding that got milder is not logged
            if known is None or not self._has_read:
                new.append(FindingChange(now, "appeared" if self._has_read else "present", finding))
            elif LEVELS.index(finding.severity) > LEVELS.index(known.finding.severity):
                new.append(FindingChange(now, "worse", finding))
            self._known[finding.code] = _Known(finding, now)
        for code, known in list(self._known.items()):
            if now - known.last_found >= CLEARED_AFTER and not is_last:
                del self._known[code]
                new.append(FindingChange(now, "cleared", known.finding))
        self._has_read = True
        self.turns = [*self.turns, *(change for change in new if change.kind != "present")][-MAX_CHANGES:]
        return new
