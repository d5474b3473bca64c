"""GPU readings made up second by second, and what is made of them."""

from __future__ import annotations

from typing import Any

from monitor.arrays import np
from monitor.diagnosis.diagnose import RULES
from monitor.diagnosis.rule import GpuEvidence, gpu_evidence
from monitor.model.device.throttle_events import Episode
from monitor.model.device.throttle_watch import Throttles
from monitor.model.report import Finding
from monitor.model.steps.baseline import StepKind
from monitor.model.steps.step_intervals import Timelines
from trainhooks.protocol.events import Gpu

H100 = "NVIDIA H100 80GB HBM3"
BUSY: dict[str, Any] = {"utilization": 99.0, "sm_clock": 1980, "sm_clock_max": 1980, "reasons": 0, "name": H100}

ANY_KIND = StepKind()


class Play:
    """A box of GPUs, read once a second from second 0 on, and a training on it."""

    def __init__(self, gpus: int = 1, **always: Any) -> None:
        self.t = 0.0
        self.throttles = Throttles()
        self.timelines = Timelines()
        self.news: list[tuple[str, bool, str]] = []  # uuid, whether it began, reason
        self.steps = 0
        self._gpus = gpus
        self._true = {**BUSY, **always}

    def read(self, seconds: int = 1, gpu: int | None = None, every: float = 1.0, **fields: Any) -> Play:
        """So many readings of every GPU; `fields` are of one, or of all where `gpu` is None."""
        for _ in range(seconds):
            self.t += every
            for index in range(self._gpus):
                told = {**self._true, **(fields if gpu in (None, index) else {})}
                self._take(Gpu("r", 0, self.t, f"GPU-{index}", index, **told))
        return self

    def _take(self, reading: Gpu) -> None:
        for episode in self.throttles.add_reading(reading):
            self.news.append((episode.uuid, episode.open, episode.reason))

    def train(self, upto: float, seconds: float, pause: float = 0.0, kind: StepKind = ANY_KIND) -> Play:
        """Steps of so many seconds, until second `upto` of the play."""
        at, rows = getattr(self, "_trained", 0.0), []
        while at + seconds <= upto + 1e-9:
            rows.append((at, at + seconds))
            at += seconds + pause
        self._trained = at
        return self.ran(rows, kind)

    def ran(self, rows: list[tuple[float, float]], kind: StepKind = ANY_KIND) -> Play:
        """Steps of these begins and ends, in the order in which they ended."""
        if rows:
            starts, ends = np.array(rows, float).T
            self.timelines.extend(kind, starts, ends, np.arange(self.steps + 1, self.steps + 1 + len(rows)))
            self.steps += len(rows)
        return self

    def episodes(self, gpu: int = 0) -> list[Episode]:
        return self.throttles.gpus[f"GPU-{gpu}"].episodes.all_episodes()

    def evidence(self, over: bool = False, **more: Any) -> GpuEvidence:
        return gpu_evidence(self.throttles, self.timelines, self.t, over, **more)

    def findings(self, over: bool = False, **more: Any) -> list[Finding]:
        evidence = self.evidence(over, **more)
        return [finding for rule in RULES if rule.on_gpus and (finding := rule.check(evidence)) is not None]

    def codes(self, over: bool = False) -> list[str]:
        return [finding.code for finding in self.findings(over)]
