"""Where the time of a step went, as programs print it: a block with a phase a line, or all in one line. Pure."""

from __future__ import annotations

import re

from monitor.console.figures import NUMBER, TIME_UNIT, seconds
from monitor.console.pairs import read_parts
from monitor.console.reading import Reading

MAX_BLOCK = 64  # lines

_SLOW = re.compile(
    rf"\bslow (?:training )?step\b[ #:]{{0,3}}(?P<step>\d{{1,12}})?(?:/(?P<total>\d{{1,12}}))?[^(\d]{{0,24}}"
    rf"\(?(?P<time>{NUMBER}\s?{TIME_UNIT})\)?",
    re.IGNORECASE,
)
_BREAKDOWN = re.compile(
    r"(?:tim(?:ing|e)|step|phase|profil\w{0,4})s?\s(?:breakdown|profile|summary)s?(?:\s?\([^)]{0,40}\))?\s?[-:–—]*\s?(?P<rest>.*)",
    re.IGNORECASE,
)
_WORDS = ("breakdown", "profile", "summar")
_ITEM = re.compile(r"^[\s\-*•·>+├└│─|↳→]{1,24}(?P<rest>\S.{0,300})$")


class Block:
    """A block that is being read: opened by its first line, closed by a line that is no part of it."""

    def __init__(self) -> None:
        self.open: Reading | None = None
        self._lines = 0

    def begin(self, text: str) -> Reading | None:
        """A reading that is complete in this line; a block that only begins is kept open."""
        lower = text.lower()
        slow = _SLOW.search(text) if "slow" in lower else None
        if slow is not None:
            block = Reading("phases", block=True, seconds=seconds(slow["time"]))
            block.step = int(slow["step"]) if slow["step"] else None
            block.mention = True
            block.total = int(slow["total"]) if slow["total"] else None
            return self._begun(block, text[slow.end() :])
        told = _BREAKDOWN.search(text) if any(word in lower for word in _WORDS) else None
        return self._begun(Reading("phases"), told["rest"]) if told is not None else None

    def _begun(self, block: Reading, rest: str) -> Reading | None:
        parts = read_parts(rest)
        if parts is not None:
            block.phases, block.shares = parts
            return block
        self.open, self._lines = block, 0
        return None

    def take(self, text: str) -> bool:
        """Whether this line belongs to the open block."""
        assert self.open is not None
        item = _ITEM.match(text)
        self._lines += 1
        parts = read_parts(item["rest"]) if item is not None and self._lines <= MAX_BLOCK else None
        if parts is None:
            return False
        for called, taken in parts[0].items():
            self.open.phases[called] = self.open.phases.get(called, 0.0) + taken
        self.open.shares += parts[1]
        return True

    def end(self) -> Reading | None:
        """Close the open block; what it said, if it said anything."""
        block, self.open = self.open, None
        return block if block is not None and (block.phases or block.block) else None
