"""A report as JSON; its keys are stable. Unknown is null, and so are non-finite numbers."""

from __future__ import annotations

import msgspec

from monitor.model.report import Report


def as_json(report: Report) -> str:
    """The report, one key a line."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


def as_line(report: Report) -> str:
    """The report in one line."""
    return msgspec.json.encode(report).decode()
