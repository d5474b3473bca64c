"""A report as JSON; its keys are stable. Unknown is null, and so are non-finite numbers."""

from __future__ import annotations

import msgspec

from monitor.model.report import Report


def as_json(report: Report) -> str:
    """Return the report as JSON, one key a line."""
    return msgspec.json.format(as_line(report), indent=2)


def as_line(report: Report) -> str:
    """Return the report as JSON in one line."""
    keys = msgspec.to_builtins(report)
    keys["run"]["facts"] = report.run.facts.table
    for alert in keys["alerts"]:
        del alert["slow_step"], alert["rank"]  # for the screens only, not in the JSON
    return msgspec.json.encode(keys).decode()
