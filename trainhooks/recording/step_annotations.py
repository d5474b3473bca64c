"""Entries other than timings: metrics, counts of work, skips, notes and facts.

Also the state that they are attached to: the open step, and what all lanes of a process share.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Set, Tuple

from trainhooks.device.deferred import Deferred
from trainhooks.lane_entries import NANOSECOND, Loop, monotonic_seconds
from trainhooks.protocol.encoding import to_dict
from trainhooks.protocol.events import Event, Facts, Metrics, Note
from trainhooks.protocol.limits import MAX_INTEGER, MAX_METRICS, MAX_NAME, OVERFLOW, clean, number
from trainhooks.protocol.secrets import mask_config
from trainhooks.recording.step_blocks import Mapping, StepEvent, StepShape


class PhaseTime:
    """The time of one phase of the open step.

    Attributes:
        ns: nanoseconds of its own so far, without phases inside it.
        count: how often it was entered.
        entered: when it was entered last, in nanoseconds of the host clock.
        is_span: whether it was opened as a span.
    """

    __slots__ = ("count", "entered", "is_span", "name", "ns")

    def __init__(self, name: str) -> None:
        self.name = name
        self.ns = 0
        self.count = 0
        self.entered = 0
        self.is_span = False


class OpenScope:
    """A phase or a span that was entered outside of steps. `since` is where its own time begins to count."""

    __slots__ = ("accounted_ns", "is_span", "name", "since", "start")

    def __init__(self, name: str, start: int, is_span: bool, accounted_ns: int) -> None:
        self.name = name
        self.start = start
        self.since = start
        self.is_span = is_span
        self.accounted_ns = accounted_ns  # of the lane, at `since`


class OpenStep:
    """The step that is under way. Times are nanoseconds of the host clock."""

    item_at: Optional[int] = None  # when the item came that the step waited for
    base_phase: Optional[PhaseTime] = None  # gets the time while no phase is open
    counts: Optional[Dict[str, int]] = None
    deferred: Tuple[Deferred, ...] = ()  # metrics still on their way from a device
    averaged = 0  # entries whose means are in `metrics`
    skip_reason: Optional[str] = None

    def __init__(self, loop: Loop, began: int, number: int) -> None:
        self.loop = loop
        self.number = number  # counted by its own loop
        self.began = began
        self.timed_until = began  # time before this has been given to phases
        self.phases: Dict[str, PhaseTime] = {}  # by the name as given
        self.open_phases: List[PhaseTime] = []  # innermost last
        self.metrics: Mapping = {}

    def give_time(self, phase: Optional[PhaseTime], t: int) -> int:
        """Give the time up to `t` to a phase, or to none. Return `t`, or what was given before, if that is later.

        Entries may be out of order: what ends in hindsight, or is overtaken by a signal handler's own entries.
        """
        passed = t - self.timed_until
        if passed < 0:
            return self.timed_until
        self.timed_until = t
        if phase is not None:
            phase.ns += passed
        return t


class ProcessState:
    """What the lanes of one process share."""

    def __init__(self) -> None:
        self.steps = 0
        self.primary: Optional[Any] = None  # the Assembler of the first lane that steps: its time is the run's time
        self.background: Dict[str, List[int]] = {}  # other lanes' phases since the last step: [nanoseconds, count]
        self.counts: Optional[Dict[str, int]] = None  # work counted outside a step since then
        self.lost = 0  # entries known to have fallen out of a full deque, or that could not be read
        self.metric_names: Dict[str, str] = {}  # as given -> as sent
        self.phase_names: Dict[str, str] = {}
        self.plain_metrics: Set[Tuple[str, ...]] = set()  # metrics logged together whose names are sent as given

    def metric_name(self, name: str) -> str:
        """Return the name under which a metric is sent."""
        return self.metric_names.get(name) or _register(self.metric_names, name)

    def phase_name(self, name: str) -> str:
        """Return the name under which a phase, a span, a role or a stage is sent."""
        return self.phase_names.get(name) or _register(self.phase_names, name)


def _register(names: Dict[Any, str], name: Any) -> str:
    """Clean a new name and remember it. Past the limit all new names share one bucket."""
    if len(names) >= MAX_METRICS:
        return OVERFLOW
    sent = clean(name, MAX_NAME) or "unnamed"
    names[name] = sent
    return sent


class StepAnnotations:
    """Attach such entries to the open step, or emit them as events if no step is open.

    Args:
        process: the state shared by the process's lanes.
        events: where events are appended.
    """

    def __init__(self, process: ProcessState, events: List[StepEvent]) -> None:
        self._process = process
        self._plain_metrics = process.plain_metrics
        self._events = events

    def emit(self, event: Event) -> None:
        """Append an event. Whoever writes it fills in the producer and the sequence number."""
        self._events.append(to_dict(event))

    def log(self, step: Optional[OpenStep], metrics: Mapping) -> None:
        """Record metrics. Deferred ones that were logged outside a step are dropped."""
        if step is not None:
            self.log_in_step(step, metrics)
            return
        values: Mapping = {}
        for name, value in metrics.items():
            if type(value) is Deferred:
                value.name = self._process.metric_name(name)
                continue
            sent = number(value)
            if sent is not None:
                values[self._process.metric_name(name)] = sent
        if values:
            self.emit(Metrics(producer="", seq=0, t=monotonic_seconds(), values=values))

    def log_in_step(self, step: OpenStep, metrics: Mapping) -> None:
        """Record metrics of the open step. `metrics` may be kept and changed."""
        if self.is_plain(metrics):
            if step.metrics:
                step.metrics.update(metrics)
            else:
                step.metrics = metrics
            return
        names = tuple(metrics)
        plain = self._plain_metrics
        if names not in plain and len(plain) < MAX_METRICS and all(map(self._is_sent_as_given, names)):
            plain.add(names)
        for name, value in metrics.items():
            sent_name = self._process.metric_name(name)
            if type(value) is Deferred:
                value.name = sent_name
                step.deferred += (value,)
            else:
                sent = number(value)
                if sent is not None:
                    step.metrics[sent_name] = sent

    def is_plain(self, metrics: Mapping) -> bool:
        """Return whether metrics can be sent as they are: known names that need no cleaning, finite numbers."""
        if tuple(metrics) not in self._plain_metrics:
            return False
        for value in metrics.values():
            if type(value) is float:
                if value - value != 0.0:
                    return False
            elif type(value) is not int or not -MAX_INTEGER <= value <= MAX_INTEGER:
                return False
        return True

    def _is_sent_as_given(self, name: str) -> bool:
        return type(name) is str and self._process.metric_name(name) == name

    def aggregate(self, step: Optional[OpenStep], sums: Mapping, means: Mapping) -> None:
        """Record metrics of one of several like operations in a step (calls of generate, rewards) as one figure."""
        if step is None:
            self.log(None, {**sums, **means})
            return
        metrics = {name: step.metrics.get(name, 0) + value for name, value in sums.items()}
        if means:
            step.averaged += 1
            for name, value in means.items():
                mean = step.metrics.get(name, 0.0)
                metrics[name] = mean + (value - mean) / step.averaged
        self.log_in_step(step, metrics)

    def resolve(self, step: Optional[OpenStep], deferred: Deferred, value: Any) -> None:
        """Record the value of a deferred metric: with its step while that is open, else as an event."""
        sent = number(value)
        if sent is None:
            return
        if step is not None and deferred in step.deferred:
            step.metrics[deferred.name] = sent
        else:
            metrics = Metrics(producer="", seq=0, t=monotonic_seconds(), values={deferred.name: sent})
            metrics.step, metrics.role = deferred.step, deferred.role
            self.emit(metrics)

    def count(self, step: Optional[OpenStep], tokens: Any, padded_tokens: Any, samples: Any, forwards: int = 0) -> None:
        """Add to the work of the open step, or of the next one where none is open."""
        holder = step or self._process
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

    def skip(self, step: Optional[OpenStep], reason: Any) -> None:
        """Record that the open step does no work."""
        if step is not None:
            step.skip_reason = clean(reason) or "no reason given"

    def note(self, step: Optional[OpenStep], t: int, text: Any, code: Optional[str] = None) -> None:
        """Emit a note; one with a code is a warning."""
        level = "info" if code is None else "warning"
        self.emit(Note(producer="", seq=0, t=t / NANOSECOND, text=clean(text), level=level, code=code))

    def facts(self, step: Optional[OpenStep], known: Mapping) -> None:
        """Emit facts, cleaned and without secrets. A start step moves the process's step count."""
        facts = Facts(producer="", seq=0, t=monotonic_seconds())
        if "name" in known:
            facts.name = clean(known["name"], MAX_NAME) or None
        facts.total_steps = _count_or_none(known.get("total_steps"))
        start = _count_or_none(known.get("start_step"))
        if start is not None:
            facts.start_step = start
            self._process.steps = max(self._process.steps, start)
        if isinstance(known.get("config"), dict):
            facts.facts = {"config": mask_config(known["config"])}
        if isinstance(known.get("facts"), dict):  # from `auto`
            facts.facts.update(mask_config(known["facts"]))
        self.emit(facts)

    def shape(self, names: Tuple[str, ...], counts: Tuple[int, ...], loop: Loop) -> StepShape:
        """Return the shape of a step of a loop, with its labels as they are sent."""
        if not loop.labeled:
            return StepShape(names, counts)
        role, stage = (None if label is None else self._process.phase_name(label) for label in (loop.role, loop.stage))
        return StepShape(names, counts, role, stage, None if loop.epoch is None else number(loop.epoch))


def _amount(value: Any) -> int:
    """Return a counted amount as a whole number; 0 for anything else (a count must not wait for a GPU)."""
    if type(value) is int:
        return value if 0 <= value <= MAX_INTEGER else 0
    if value is None or hasattr(value, "detach"):
        return 0
    sent = number(value)
    return int(sent) if isinstance(sent, (int, float)) and 0 <= sent <= MAX_INTEGER else 0


def _count_or_none(value: Any) -> Optional[int]:
    return value if type(value) is int and 0 <= value <= MAX_INTEGER else None
