"""Whether two runs are alike, so that the speed of one is a baseline for the other; what differs, where not. Pure.

A difference that is unknown on one side is none, except the source of the steps: what a program prints is not what the
hooks measure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from monitor.model.compute.flops import work_of
from monitor.model.report import Report
from trainhooks.protocol.facts import RunFacts

# Times; samples or tokens a step that differ by more are another batch or length. What shuffling, padding and a last
# small batch do to a mean is less.
MAX_WORK_RATIO = 1.1
MAX_SIZE_RATIO = 1.02  # parameters of the model: a head with other classes is less

# Settings of arguments, frameworks and loaders that change the work of a step, and how fast it can be at all.
_SETTINGS = re.compile(
    r"(?:^|_)batch_size$|(?:^|_)train_batch_size$|accumulat|^max_(?:seq_)?length$|^(?:seq|sequence|block)_(?:len|length|size)$"
    r"|^context_length$|^bf16$|^fp16$|^(?:torch_)?dtype$|^precision$|^mixed_precision$|^num_processes$"
)
_BACKENDS = ("KERAS_BACKEND", "JAX_PLATFORMS")  # of the environment
_STACKS = ("torch", "jax", "tensorflow", "keras")  # loaded by one run and not by the other: another backend
_TABLES = ("config", "loader", "accelerate")

Difference = tuple[str, Any, Any]  # name, before, after


def differences(one: Report, two: Report) -> list[Difference]:
    """Return what makes the speed of one run no baseline for the other; empty where they are alike, as far as known."""
    rows = [*_circumstances(one, two), *_work(one, two), *_settings(one.run.facts.table, two.run.facts.table)]
    return list({name: (name, before, after) for name, before, after in rows}.values())


def _circumstances(one: Report, two: Report) -> Iterator[Difference]:
    """Yield differences in what measures, runs and computes the steps."""
    first, second = one.run.facts, two.run.facts
    if one.run.source and two.run.source and one.run.source != two.run.source:
        yield "source of the steps", one.run.source, two.run.source
    if one.run.ranks and two.run.ranks and one.run.ranks != two.run.ranks:
        yield "ranks", one.run.ranks, two.run.ranks
    yield from _if_different("python", _minor_version(first.python_version), _minor_version(second.python_version))
    yield from _if_different("device", first.optimizer.device, second.optimizer.device)
    for name in _BACKENDS:
        yield from _if_different(name, first.environment.get(name), second.environment.get(name))
    yield from _if_different("frameworks", _framework_versions(first.versions), _framework_versions(second.versions))


def _work(one: Report, two: Report) -> Iterator[Difference]:
    """Yield differences in what a step computes."""
    before, after = work_of(one), work_of(two)
    for name, first, second, most in (
        ("samples per step", before.samples, after.samples, MAX_WORK_RATIO),
        ("tokens per step", before.tokens, after.tokens, MAX_WORK_RATIO),
        ("model parameters", before.parameters, after.parameters, MAX_SIZE_RATIO),
    ):
        if first and second and max(first, second) > most * min(first, second):
            yield name, _rounded(first), _rounded(second)
    facts, others = one.run.facts, two.run.facts
    yield from _if_different("model", facts.model.kind, others.model.kind)
    yield from _if_different("dtypes", _dtypes(facts), _dtypes(others))
    yield from _if_different("autocast", facts.autocast, others.autocast)


def _settings(one: dict[str, Any], two: dict[str, Any]) -> Iterator[Difference]:
    for table in _TABLES:
        before, after = one.get(table), two.get(table)
        if isinstance(before, dict) and isinstance(after, dict):
            for name in before:
                if isinstance(name, str) and _SETTINGS.search(name) and name in after:
                    yield from _if_different(f"{table}.{name}", before[name], after[name])


def _if_different(name: str, before: Any, after: Any) -> Iterator[Difference]:
    if before is not None and after is not None and before != after:
        yield name, before, after


def _framework_versions(versions: dict[str, str]) -> str | None:
    """Return the frameworks that were loaded; None where none is known."""
    return ", ".join(name for name in _STACKS if name in versions) or None


def _minor_version(version: str | None) -> str | None:
    """Return `3.12` of `3.12.4`: a patch release of the interpreter is as fast."""
    return ".".join(version.split(".")[:2]) if version is not None else None


def _dtypes(facts: RunFacts) -> str | None:
    return ", ".join(sorted(facts.optimizer.dtypes or facts.model.dtypes)) or None


def _rounded(count: float) -> float:
    return float(f"{count:.4g}")
