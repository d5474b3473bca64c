"""What is not the same in two runs: arguments, settings, versions, environment, commit, hardware. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from monitor.model.arguments import Arguments, parse
from monitor.model.report import Report

# What differs between any two runs, and explains nothing; and what is counted while a run goes on.
# What says nothing of how a run is set up; the operations that were seen follow from the model and its batch.
IDLE_FACTS = frozenset(("cwd", "command", "tags", "devices", "compile", "download", "ops", "batch", "device_clock"))
COUNTS = frozenset(("forwards",))
REPEATED = 0.1  # of the model's calls; a share that differs by less is no other loop


@dataclass(frozen=True, slots=True)
class Change:
    """A setting, version or circumstance that is not the same."""

    name: str
    before: Any
    after: Any


def changes(one: Report, two: Report) -> list[Change]:
    """Every difference that is known, the arguments of the command first."""
    rows = _arguments(one.run.command, two.run.command)
    before, after = _circumstances(one), _circumstances(two)
    for name in dict.fromkeys([*before, *after]):
        if before.get(name) != after.get(name):
            rows.append(Change(name, before.get(name), after.get(name)))
    return rows


def _arguments(one: list[str], two: list[str]) -> list[Change]:
    if one == two:
        return []
    before, after = parse(one), parse(two)
    if before.program != after.program:
        return [Change("command", " ".join(one) or None, " ".join(two) or None)]
    rows = []
    for name in dict.fromkeys([*before.options, *after.options]):
        if before.options.get(name) != after.options.get(name):
            rows.append(Change(name, before.options.get(name), after.options.get(name)))
    if before.others != after.others:
        rows.append(Change("arguments", _words(before), _words(after)))
    return rows


def _words(arguments: Arguments) -> str | None:
    return " ".join(arguments.others) or None


def _circumstances(report: Report) -> dict[str, Any]:
    found = _flat(report.run.facts)
    found["host"], found["ranks"] = report.run.host, report.run.ranks
    found["gpus"] = ", ".join(gpu.name or "?" for gpu in report.gpus) or None
    if (repeated_calls(report.run.facts) or 0.0) >= REPEATED:
        found["model called twice on the same input"] = "yes"
    return found


def repeated_calls(facts: dict[str, Any]) -> float | None:
    """The share of the model's calls in training mode that got an input once more; None where nobody counted."""
    told = facts.get("forwards")
    if not isinstance(told, dict):
        return None
    repeated, calls = told.get("repeated"), told.get("calls")
    return repeated / calls if isinstance(repeated, int) and isinstance(calls, int) and calls > 0 else None


def _flat(facts: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in facts.items():
        if not prefix and (name in IDLE_FACTS or name in COUNTS):
            continue
        if name == "dtypes" and isinstance(value, dict):
            out[f"{prefix}{name}"] = ", ".join(sorted(value))
        elif isinstance(value, dict):
            out.update(_flat(value, f"{prefix}{name}."))
        else:
            out[f"{prefix}{name}"] = value
    return out
