"""Read lines that say how long the training stood still: `Finished saving the checkpoint in 26.50 seconds.`"""

from __future__ import annotations

import re
from typing import ClassVar

from monitor.console.field_mapping import is_about_training
from monitor.console.formats import Format, register
from monitor.console.printed_values import NUMBER, TIME_UNIT, seconds
from monitor.console.reading import Reading

_TOOK = re.compile(rf"\b(?:in|took|after)\b[ \t:=]{{0,4}}(?P<time>{NUMBER}\s?{TIME_UNIT})", re.IGNORECASE)
_SAVED = re.compile(r"\b(?:sav(?:e|ed|ing)|wr(?:ote|itten|iting))\b", re.IGNORECASE)
_CHECKPOINT = re.compile(r"checkpoint|ckpt|snapshot|\b(?:model|weights|state)\b", re.IGNORECASE)
_EVALUATED = re.compile(
    r"\b(?:evaluation|validation|eval)\b.{0,40}\b(?:took|finished|done|complete[d]?)\b", re.IGNORECASE
)
_BESIDE = re.compile(r"\basync(?:hronous(?:ly)?)?\b(?!.{0,20}enabled)|\bbackground\b", re.IGNORECASE)


@register
class TimedSpans(Format):
    """A checkpoint or an evaluation that has just ended, with its seconds."""

    order: ClassVar[int] = 45  # before named values, which take the time for one of the step that is mentioned

    def read(self, text: str) -> list[Reading] | None:
        took = _TOOK.search(text) if "in" in text or "took" in text or "after" in text else None
        if took is None or is_about_training(text) or _BESIDE.search(text):
            return None
        if _SAVED.search(text) and _CHECKPOINT.search(text):
            name = "checkpoint"
        elif _EVALUATED.search(text):
            name = "eval"
        else:
            return None
        return [Reading("span", key=name, seconds=seconds(took["time"]))]
