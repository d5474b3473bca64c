"""What a step of a run does: tokens, samples, the arithmetic of a token. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from monitor.model.flops import Work as Computing
from monitor.model.flops import each_of, model_of
from monitor.model.operations import operations
from monitor.model.report import Report


@dataclass(frozen=True, slots=True)
class Work:
    """Means over the run; None is unknown."""

    tokens: float | None = None  # a step
    samples: float | None = None  # a step
    length: float | None = None  # tokens a sample
    flops_a_token: float | None = None  # forward and backward
    parameters: int | None = None


def work_of(report: Report) -> Work:
    """The work of a run's steps, by its rates and by what is known of its model."""
    tokens, samples = _a_step(report, "tokens_per_second"), _a_step(report, "samples_per_second")
    length = tokens / samples if tokens and samples else None
    model = report.run.facts.get("model")
    facts = model if isinstance(model, dict) else {}
    parameters = facts.get("parameters")
    known = isinstance(parameters, int) and parameters > 0
    each = each_of(Computing(model_of(facts), length, seen=operations(report.run.facts)))
    a_token = each.flops if each is not None and each.per == "token" else None
    return Work(tokens, samples, length, a_token, parameters if known else None)


def _a_step(report: Report, rate: str) -> float | None:
    per_second, steps = getattr(report.throughput, rate), report.throughput.steps_per_second
    return per_second / steps if per_second and steps else None
