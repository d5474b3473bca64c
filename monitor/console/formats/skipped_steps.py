"""Read lines about skipped steps: `Skipping generator step 1/10: empty code`, `Step 7 skipped: loss is not finite`."""

from __future__ import annotations

import re
from typing import ClassVar

from monitor.console.field_mapping import ROLES
from monitor.console.formats import Format, register
from monitor.console.reading import Reading
from monitor.console.step_labels import STEP_LABEL, set_step
from trainhooks.protocol.limits import clean

MAX_REASON = 400  # characters

# `skipped=0` is a count of skipped steps, as DeepSpeed prints it beside every step.
_SKIPPING = re.compile(r"\bskip(?:ping|ped|s)?\b(?!\s?[:=]?\s?\d{1,12}\s?(?:[,;|)\]]|$))", re.IGNORECASE)
_REASON = re.compile(rf"\s*(?::|-|–|—|\(|\bbecause\b|\bdue to\b)\s*(?P<reason>.{{1,{MAX_REASON}}})")
# Characters between the number of a step and the word behind it or before it; farther away it is unrelated.
MAX_BEHIND, MAX_BEFORE = 12, 60


@register
class SkippedSteps(Format):
    """A step that was skipped, with the program's reason."""

    order: ClassVar[int] = 50  # before named values: a reason may hold some

    def read(self, text: str) -> list[Reading] | None:
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
