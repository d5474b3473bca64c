"""What a rule may look at: the state, the report read off it, and what is open now. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from monitor.model.report import OpenWork, Report
from monitor.model.state import RunState


@dataclass(frozen=True, slots=True)
class Evidence:
    state: RunState
    report: Report
    open: OpenWork
