"""Which settings `trainmon try` can put to the test, by the findings of a run. Pure.

Only what can be set without touching the code: the advice of most findings cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from monitor.model.batch_argument import batch_argument
from monitor.model.report import Finding, Gain, Report
from trainhooks.protocol.trial_settings import BATCH_SIZE, Settings

MAX_WORKERS = 8  # where the cores are not known
RARER = 10  # times as many steps from one save, log or evaluation to the next


@dataclass(frozen=True, slots=True)
class Candidate:
    """Settings to test.

    Attributes:
        code: the finding that advises them; None: a person has named them.
        promised: what the finding says that it gains; None: nothing.
    """

    settings: Settings
    code: str | None = None
    promised: Gain | None = None


def candidates(report: Report) -> list[Candidate]:
    """Return what can be tested of a run's findings, in their order, each setting once."""
    found: list[Candidate] = []
    for finding in report.findings:
        settings = _SETTINGS[finding.code](report, finding) if finding.code in _SETTINGS else None
        if settings and not any(one.settings.keys() & settings.keys() for one in found):
            found.append(Candidate(settings, finding.code, finding.gain))
    return found


def _workers(report: Report, _: Finding) -> Settings | None:
    facts = report.run.facts
    now = facts.loader.dataloader_num_workers
    now = facts.config.dataloader_num_workers if now is None else now
    if now is None:
        return None  # no loader of torch
    cores = facts.cpus or MAX_WORKERS
    wanted = min(max(2, 2 * now), max(1, cores), MAX_WORKERS) if now else min(max(1, cores), MAX_WORKERS // 2)
    return {"num_workers": wanted} if wanted > now else None


def _threads(report: Report, _: Finding) -> Settings | None:
    cores, threads = report.run.facts.cpus, report.run.facts.torch.threads
    ranks = max(1, report.run.ranks or 1)
    return {"threads": max(1, cores // ranks)} if cores and threads and threads * ranks > cores else None


def _debugging(report: Report, _: Finding) -> Settings | None:
    flags = report.run.facts.torch
    found: Settings = {}
    if flags.detect_anomaly:
        found["detect_anomaly"] = False
    if flags.profiler:
        found["profiler"] = False
    return found or None


def _rarer(name: str) -> Callable[[Report, Finding], Settings | None]:
    def settings(report: Report, _: Finding) -> Settings | None:
        steps = report.run.facts.table.get("config", {}).get(name)
        if report.run.facts.framework != "transformers" or type(steps) is not int or steps < 1:
            return None
        return {name: RARER * steps}

    return settings


def _batch(report: Report, _: Finding) -> Settings | None:
    found = batch_argument(report.run.command)
    return {BATCH_SIZE: 2 * found[2]} if found is not None else None


def _always(settings: Settings) -> Callable[[Report, Finding], Settings | None]:
    return lambda report, finding: dict(settings)


def _cache(report: Report, _: Finding) -> Settings | None:
    return {"use_cache": True} if "transformers" in report.run.facts.versions else None


_SETTINGS: dict[str, Callable[[Report, Finding], Settings | None]] = {
    "input-bound": _workers,
    "oversubscribed": _threads,
    "debug-settings": _debugging,
    "garbage-collection": _always({"gc_collect": False}),
    "fp32-matmul": _always({"matmul_precision": "high"}),
    "unfused-optimizer": _always({"fused": True}),
    "launch-bound": _always({"compile": True}),
    "recompiling": _always({"compile_dynamic": True}),
    "pageable-copies": _always({"pin_memory": True}),
    "no-kv-cache": _cache,
    "logging-overhead": _rarer("logging_steps"),
    "checkpoint-stall": _rarer("save_steps"),
    "eval-heavy": _rarer("eval_steps"),
    "memory-headroom": _batch,
}
