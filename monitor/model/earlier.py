"""The run that this one is measured by, as far as a screen tells of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Earlier:
    """The last comparable run of the same command, and what is not the same in it: name, before, now."""

    id: str | None
    name: str | None
    changes: tuple[tuple[str, Any, Any], ...]
