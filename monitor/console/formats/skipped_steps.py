"""Read lines about skipped steps: `Skipping generator step 1/10: empty code`, `Step 7 skipped: loss is not finite`.

A loss scaler names no step: `OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768`.
"""

from __future__ import annotations

import re
from typing import ClassVar

from monitor.console.field_mapping import ROLES
from monitor.console.formats import Format, register
from monitor.console.reading import Reading
from monitor.console.step_labels import STEP_LABEL, set_step
from trainhooks.protocol.limits import clean
from trainhooks.protocol.vocabulary import SCALER_OVERFLOW

MAX_REASON = 400  # characters

# `skipped=0` is a count of skipped steps, as DeepSpeed prints it beside every step.
_SKIPPING = re.compile(r"\bskip(?:ping|ped|s)?\b(?!\s?[:=]?\s?\d{1,12}\s?(?:[,;|)\]]|$))", re.IGNORECASE)
_REASON = re.compile(rf"\s*(?::|-|–|—|\(|\bbecause\b|\bdue to\b)\s*(?P<reason>.{{1,{MAX_REASON}}})")
_OVERFLOW = re.compile(
    r"\boverflow\b.{0,80}?\b(?:skipp(?:ing|ed) (?:the )?(?:step|update|iteration|batch)|ignoring gradient)",
    re.IGNORECASE,
)
_OF_RANK = re.compile(r"\brank:? ?(\d{1,6})\b", re.IGNORECASE)
# Characters between the number of a step and the word behind it or before it; farther away it is unrelated.
MAX_BEHIND, MAX_BEFORE = 12, 60


@register
class SkippedSteps(Format):
    """A step that was skipped, with the program's reason."""

    order: ClassVar[int] = 50  # before named values: a reason may hold some

    def __init__(self) -> None:
        self._rank: str | None = None  # the first one named: each rank tells of the same step

    def read(self, text: str) -> list[Reading] | None:
        if "overflow" in text.lower() and _OVERFLOW.search(text):
            rank = _OF_RANK.search(text)
            self._rank = self._rank or (rank[1] if rank is not None else None)
            is_another = rank is not None and rank[1] != self._rank
            return [] if is_another else [Reading("skip", skipped=1, reason=SCALER_OVERFLOW)]
        word = _SKIPPING.search(text) if "skip" in text.lower() else None
        if word is None:
            return None
        skipped = Reading("skip")
        for match in STEP_LABEL.finditer(text):
            far = word.start() > match.end() + MAX_BEHIND or word.end() < match.start() - MAX_BEFORE
            if far or not set_step(match, text, skipped):
                continue
            reason = _REASON.match(text, max(match.end(), word.end()))
            stated = clean(reason["reason"], MAX_REASON).strip(" ().") if reason else ""
            skipped.reason = stated or "skipped, the program does not say why"
            skipped.mention = False
            between = text[word.end() : match.start()].lower().split()
            skipped.role = next((role for role in [*between, skipped.role] if role in ROLES), None)
            return [skipped]
        return None
