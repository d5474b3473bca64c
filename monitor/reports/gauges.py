"""A run's figures for other monitors: gauges, as Prometheus' text and as OTLP's JSON. Pure.

Names and labels are stable. `UUID` and `Hostname` are those of NVIDIA's DCGM exporter: its series join by them. The job
is told in one series, `trainmon_run_info`; all others have its `run`, beside what they are of. Nothing that a program
prints, logs or is called with is among them: no metric, command, path or text of a finding.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from monitor import __version__
from monitor.model.cycle import IDLE_PART, CycleRole
from monitor.model.report import Report
from monitor.model.view import FindingChange
from trainhooks.protocol.limits import clean

MAX_ROWS = 16  # of one gauge: phases, roles, findings, the largest ones
MAX_GPUS = 64
MAX_LABEL = 64  # characters
NANOSECONDS = 1e9
CONTENT_TYPE = "application/json"

Labels = dict[str, str]


@dataclass(frozen=True, slots=True)
class Gauge:
    """One figure, of several things where they have labels of their own; what is unknown has no row."""

    name: str
    unit: str  # as UCUM writes it: s, 1, {token}/s
    help: str
    rows: Sequence[tuple[Labels, float]]


def gauges(report: Report, now: float) -> list[Gauge]:
    """Return the known figures of a run at `now`, in Unix seconds."""
    run: Labels = {"run": _label(report.run.id)}
    info = {**run, "name": _label(report.run.name), "job_id": _job_id(report), "Hostname": _label(report.run.host)}
    rates = report.throughput.recent
    state, progress, late = report.outcome.state, report.progress, report.straggler

    def one(name: str, unit: str, text: str, value: float | None, **labels: str) -> Gauge:
        return Gauge(f"trainmon_{name}", unit, text, [] if value is None else [({**run, **labels}, float(value))])

    def many(name: str, unit: str, text: str, rows: Iterable[tuple[Labels, float | None]]) -> Gauge:
        known = [({**run, **labels}, float(value)) for labels, value in rows if value is not None]
        return Gauge(f"trainmon_{name}", unit, text, sorted(known, key=lambda row: -row[1])[:MAX_ROWS])

    found = [
        ({"code": finding.code, "severity": finding.severity}, finding)
        for finding in report.findings
        if not finding.over
    ]
    phases = report.phases
    roles = report.cycle.roles if report.cycle is not None else []
    gpus = [{**run, "UUID": _label(gpu.uuid), "Hostname": info["Hostname"]} for gpu in report.gpus if gpu.ours]
    all_of_them = [
        Gauge("trainmon_run_info", "1", "What the label `run` stands for.", [(info, 1.0)]),
        Gauge("trainmon_gpu_info", "1", "A GPU that the run uses.", [(labels, 1.0) for labels in gpus[:MAX_GPUS]]),
        one("updated_timestamp_seconds", "s", "When these figures were made.", now),
        one("running", "1", "1 while it runs.", state == "running"),
        one("failed", "1", "1 once it failed, was killed or got lost.", state in ("failed", "killed", "lost")),
        one("elapsed_seconds", "s", "Since its start.", progress.elapsed_seconds),
        one("eta_seconds", "s", "Until its end, estimated.", progress.eta_seconds),
        one("progress_ratio", "1", "Steps done, of all.", progress.fraction),
        one("steps", "{step}", "Steps done.", progress.steps_done),
        one("ranks", "{rank}", "Training processes.", report.run.ranks),
        one("steps_per_second", "{step}/s", "Recent speed.", rates.steps_per_second),
        one("tokens_per_second", "{token}/s", "Recent speed, of the rank that leads.", rates.tokens_per_second),
        one("samples_per_second", "{sample}/s", "Recent speed, of the rank that leads.", rates.samples_per_second),
        one("mfu_ratio", "1", "Model FLOPs of the recent steps, of the GPUs' dense peak.", rates.mfu),
        many("phase_ratio", "1", "A phase's share of step time.", ((_of("phase", p.name), p.share) for p in phases)),
        many("phase_seconds", "s", "Its mean in steps with it.", ((_of("phase", p.name), p.mean) for p in phases)),
        many(
            "role_idle_ratio", "1", "The share of an iteration in which a role waits.",
            ((_of("role", role.label), _idle(role)) for role in roles),
        ),
        many("finding", "1", "1 for each open finding.", ((labels, 1.0) for labels, _ in found)),
        many(
            "finding_lost_ratio", "1", "The share of wall time that mending it gains at most.",
            ((labels, finding.lost_fraction) for labels, finding in found),
        ),
        one(
            "straggler_wait_ratio", "1", "The share of their time in which the others wait for this rank.",
            None if late is None else late.share, rank="" if late is None else str(late.rank),
        ),
    ]  # fmt: skip
    return [gauge for gauge in all_of_them if gauge.rows]


def _of(label: str, value: str) -> Labels:
    return {label: _label(value)}


def _idle(role: CycleRole) -> float:
    return sum(part.share for part in role.parts if part.name == IDLE_PART)


def _label(value: str | None) -> str:
    return clean(value or "", MAX_LABEL)


def _job_id(report: Report) -> str:
    """Return the number or name that a person gave or got for the job from its launcher."""
    known = report.run.facts.environment
    return next((_label(known[name]) for name in ("SLURM_JOB_ID", "TORCHELASTIC_RUN_ID") if known.get(name)), "")


def exposition(found: Iterable[Gauge]) -> str:
    """Return the gauges in Prometheus' text format, for node-exporter's textfile collector."""
    lines = []
    for gauge in found:
        lines += [f"# HELP {gauge.name} {gauge.help}", f"# TYPE {gauge.name} gauge"]
        for labels, value in gauge.rows:
            pairs = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items() if text)
            lines.append(f"{gauge.name}{{{pairs}}} {_number(value)}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return repr(value) if math.isfinite(value) else "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def metrics_request(found: Iterable[Gauge], host: str, now: float) -> bytes:
    """Return the body of a request to /v1/metrics of an OTLP receiver."""
    rows = [
        {
            "name": gauge.name,
            "unit": gauge.unit,
            "description": gauge.help,
            "gauge": {
                "dataPoints": [
                    {"attributes": _attributes(labels), "timeUnixNano": _nanoseconds(now), "asDouble": value}
                    for labels, value in gauge.rows
                    if math.isfinite(value)
                ]
            },
        }
        for gauge in found
    ]
    return _request("Metrics", "metrics", rows, host)


SEVERITY_NUMBERS = {"info": 9, "warning": 13, "critical": 21}  # OTLP's INFO, WARN and FATAL


def events_request(run: str, changes: Iterable[FindingChange], host: str, now: float) -> bytes:
    """Return the body of a request to /v1/logs of an OTLP receiver: findings that appeared, got worse or cleared."""
    rows = [
        {
            "timeUnixNano": _nanoseconds(now),
            "severityNumber": SEVERITY_NUMBERS.get(change.finding.severity, 9),
            "severityText": change.finding.severity,
            "eventName": "trainmon.finding",
            "body": {"stringValue": f"{change.kind}: {change.finding.code}"},
            "attributes": _attributes({"run": _label(run), "code": change.finding.code, "change": change.kind}),
        }
        for change in changes
    ]
    return _request("Logs", "logRecords", rows, host)


def _request(kind: str, key: str, rows: list[dict[str, Any]], host: str) -> bytes:
    scope = {"scope": {"name": "trainmon", "version": __version__}, key: rows}
    resource = {"attributes": _attributes({"service.name": "trainmon", "host.name": _label(host)})}
    body = {f"resource{kind}": [{"resource": resource, f"scope{kind}": [scope]}]}
    return json.dumps(body, allow_nan=False).encode()


def _attributes(labels: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": text}} for name, text in labels.items() if text]


def _nanoseconds(seconds: float) -> str:
    return str(int(seconds * NANOSECONDS))
