"""What one look found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["works", "limited", "missing", "broken"]


@dataclass(frozen=True)
class Check:
    """One part: its state, that in words, and what to do where something can be done."""

    part: str
    state: State
    text: str
    advice: str | None = None
    essential: bool = False  # without it trainmon cannot do its work
    details: dict[str, Any] = field(default_factory=dict)  # for programs

    @property
    def fatal(self) -> bool:
        return self.essential and self.state == "broken"
