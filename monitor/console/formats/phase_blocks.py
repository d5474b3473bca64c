"""Read the phases of a step as programs print them: a block with one phase per line, or all in one line."""

from __future__ import annotations

import re
from typing import ClassVar

from monitor.console.field_mapping import phase
from monitor.console.formats import Format, register
from monitor.console.printed_values import CLOCK, NUMBER, TIME_UNIT, seconds
from monitor.console.reading import MAX_LINE_CHARACTERS, MAX_VALUES, Reading

MAX_BLOCK_LINES = 64  # of a block

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
_PART = re.compile(
    rf"(?P<name>[A-Za-z_][\w ./&+-]{{0,60}}?)\s?[:=]\s{{0,12}}(?P<time>{CLOCK}|{NUMBER}\s?{TIME_UNIT})"
    r"(?:\s{0,4}\(\s?(?P<share>\d{1,3}(?:\.\d{1,6})?)\s?%\s?\))?"
)


@register
class PhaseBlocks(Format):
    """A block, opened by its first line and ended by a line that is no part of it; or the whole of it in one line."""

    order: ClassVar[int] = 60  # before named values, which phases resemble
    exclusive: ClassVar[bool] = True  # else its lines would be read as values of no step

    def __init__(self) -> None:
        self._block: Reading | None = None
        self._lines = 0

    @property
    def open(self) -> bool:
        return self._block is not None

    def ends_at(self, text: str) -> bool:
        return self._block is not None and (self._lines >= MAX_BLOCK_LINES or _item_parts(text) is None)

    def read(self, text: str) -> list[Reading] | None:
        if self._block is not None and (parts := _item_parts(text)) is not None:
            self._lines += 1
            _add(self._block, parts)
            return []
        lower = text.lower()
        slow = _SLOW.search(text) if "slow" in lower else None
        if slow is not None:
            block = Reading("phases", block=True, seconds=seconds(slow["time"]), mention=True)
            block.step = int(slow["step"]) if slow["step"] else None
            block.total = int(slow["total"]) if slow["total"] else None
            rest = text[slow.end() :]
        elif any(word in lower for word in _WORDS) and (match := _BREAKDOWN.search(text)) is not None:
            block, rest = Reading("phases"), match["rest"]
        else:
            return None
        parts = _parts(rest)
        if parts is None:
            self._block, self._lines = block, 0
            return []
        _add(block, parts)
        return [block]

    def close(self) -> list[Reading]:
        block, self._block = self._block, None
        return [block] if block is not None and (block.phases or block.block) else []


_Parts = tuple[dict[str, float], float]  # seconds by phase, the sum of their percents


def _parts(text: str) -> _Parts | None:
    """Read `Forward: 0.02s (1.5%), Loss: 76.45s (97.7%)`; None without any part."""
    phases: dict[str, float] = {}
    shares = 0.0
    for match in _PART.finditer(text[:MAX_LINE_CHARACTERS]):
        spent, called = seconds(match["time"]), phase(match["name"])
        if spent is not None and called and len(phases) < MAX_VALUES:
            phases[called] = phases.get(called, 0.0) + spent
            shares += float(match["share"] or 0.0)
    return (phases, shares) if phases else None


def _item_parts(text: str) -> _Parts | None:
    item = _ITEM.match(text)
    return _parts(item["rest"]) if item is not None else None


def _add(block: Reading, parts: _Parts) -> None:
    phases, shares = parts
    for called, spent in phases.items():
        block.phases[called] = block.phases.get(called, 0.0) + spent
    block.shares = (block.shares or 0.0) + shares
