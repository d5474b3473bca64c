"""A finding's advice in as much room as there is: whole clauses, and never one that breaks off. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

_ENDS = re.compile(r"[.;:](?= )|,(?= (?:and|or|but|else) )")  # a clause may end here


def shortened(advice: str, room: int, width: Callable[[str], int] = len) -> str:
    """As many of its clauses as fit; none where not even the first one does.

    Args:
        width: cells of a text.
    """
    if width(advice) <= room:
        return advice
    ends = [found.start() for found in _ENDS.finditer(advice)]
    return next((advice[:end] for end in reversed(ends) if width(advice[:end]) <= room), "")
