"""What is said beside the timings: metrics, counts, skips, notes, facts. The half of an assembler with no clock."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from trainhooks.clocks import NANOSECOND, monotonic_seconds
from trainhooks.deferred import Deferred
from trainhooks.events import MAX_INTEGER, MAX_METRICS, MAX_NAME, Event, Facts, Metrics, Note, clean, number, to_dict
from trainhooks.facts import masked_config
from trainhooks.open_work import OpenStep, Shared

Mapping = Dict[str, Any]


class Told:
    """What belongs to the open step goes with it, the rest is an event of its own."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.events: List[Mapping] = []
        self.step: Optional[OpenStep] = None

    def _emit(self, event: Event) -> None:
        self.events.append(to_dict(event))

    def _log_in_step(self, step: OpenStep, metrics: Mapping) -> None:
        names = tuple(metrics)
        if names in self.shared.plain_names:  # and finite numbers, nearly always: sent as they are
            for value in metrics.values():
                if type(value) is not float or value - value != 0.0:
                    break
            else:
                if step.metrics:
                    step.metrics.update(metrics)
                else:
                    step.metrics = metrics  # made for this call alone, so it is ours
                return
        elif len(self.shared.plain_names) < MAX_METRICS and all(map(self._is_plain, names)):
            self.shared.plain_names.add(names)
        for name, value in metrics.items():
            sent_name = self.shared.metric_name(name)
            if type(value) is Deferred:
                value.name = sent_name
                step.late += (value,)
            else:
                sent = number(value)
                if sent is not None:
                    step.metrics[sent_name] = sent

    def _is_plain(self, name: str) -> bool:
        return type(name) is str and self.shared.metric_name(name) == name

    def _log(self, metrics: Mapping) -> None:
        """Metrics outside a step. Ones that are still on their way keep no step."""
        values: Mapping = {}
        for name, value in metrics.items():
            if type(value) is Deferred:
                value.name = self.shared.metric_name(name)
                continue
            sent = number(value)
            if sent is not None:
                values[self.shared.metric_name(name)] = sent
        if values:
            self._emit(Metrics("", 0, monotonic_seconds(), values=values))

    def _tally(self, sums: Mapping, means: Mapping) -> None:
        """Metrics of one of several like things that a step does (calls of generate, rewards): one figure for all."""
        step = self.step
        if step is None:
            self._log({**sums, **means})
            return
        known = step.metrics
        told = {name: known.get(name, 0) + value for name, value in sums.items()}
        if means:
            step.tallies += 1
            for name, value in means.items():
                before = known.get(name, 0.0)
                told[name] = before + (value - before) / step.tallies
        self._log_in_step(step, told)

    def _late(self, deferred: Deferred, value: Any) -> None:
        sent = number(value)
        if sent is None:
            return
        if self.step is not None and deferred in self.step.late:  # its step is still open
            self.step.metrics[deferred.name] = sent
        else:
            values = {deferred.name: sent}
            self._emit(Metrics("", 0, monotonic_seconds(), values=values, step=deferred.step, role=deferred.role))

    def _count(self, tokens: Any, padded_tokens: Any, samples: Any, forwards: int = 0) -> None:
        holder = self.step or self.shared
        if holder.counts is None:
            holder.counts = {}
        counts = holder.counts
        if tokens is not None:
            counts["tokens"] = counts.get("tokens", 0) + _amount(tokens)
        if padded_tokens is not None:
            counts["padded_tokens"] = counts.get("padded_tokens", 0) + _amount(padded_tokens)
        if samples is not None:
            counts["samples"] = counts.get("samples", 0) + _amount(samples)
        if forwards:
            counts["forwards"] = forwards

    def _skip(self, reason: Any) -> None:
        if self.step is not None:
            self.step.skipped = clean(reason) or "no reason given"

    def _note(self, t: int, text: Any) -> None:
        self._emit(Note("", 0, t / NANOSECOND, text=clean(text)))

    def _facts(self, known: Mapping) -> None:
        facts = Facts("", 0, monotonic_seconds())
        if "name" in known:
            facts.name = clean(known["name"], MAX_NAME) or None
        facts.total_steps = _positive(known.get("total_steps"))
        start = _positive(known.get("start_step"))
        if start is not None:
            facts.start_step = start
            self.shared.steps = max(self.shared.steps, start)
        if isinstance(known.get("config"), dict):
            facts.facts = {"config": masked_config(known["config"])}
        if isinstance(known.get("facts"), dict):  # what `auto` learnt
            facts.facts.update(masked_config(known["facts"]))
        self._emit(facts)


def _amount(value: Any) -> int:
    """What was counted: a whole number, or 0 where it is none (a count must not wait for a GPU)."""
    if type(value) is int:
        return value if 0 <= value <= MAX_INTEGER else 0
    if value is None or hasattr(value, "detach"):
        return 0
    sent = number(value)
    return int(sent) if isinstance(sent, (int, float)) and 0 <= sent <= MAX_INTEGER else 0


def _positive(value: Any) -> Optional[int]:
    return value if type(value) is int and 0 <= value <= MAX_INTEGER else None
