"""A report as JSON; its keys are stable. Unknown is null, and so are non-finite numbers."""

from __future__ import annotations

import msgspec

from monitor.model.report import Report
from monitor.reports.machine_output import SCREENS_ONLY, versioned


def as_json(report: Report) -> str:
    """Return the report as JSON, one key a line."""
    return msgspec.json.format(as_line(report), indent=2)


def as_line(report: Report) -> str:
    """Return the report as JSON in one line."""
    keys = msgspec.to_builtins(report)
    keys["run"]["facts"] = report.run.facts.table
    for alert in keys["alerts"]:
        for key in SCREENS_ONLY["Alert"]:
            del alert[key]
    return msgspec.json.encode(versioned(keys)).decode()
