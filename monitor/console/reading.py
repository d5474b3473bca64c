"""Hold the values of one line."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainhooks.protocol.limits import Number

MAX_VALUES = 200  # per line
MAX_LINE_CHARACTERS = 4096  # characters of a line that are read; JSON and dicts are read whole
MAX_PERCENT_SUM = 105.0  # percent; a larger sum of parts is a contradiction


@dataclass(slots=True)
class Reading:
    """The values of one line. None and empty mean unknown."""

    family: str  # what it was recognized as: bar, step, metrics, phases, span, skip, epoch or pattern
    number: int = 0  # of the line
    row: int = 0  # of the line on the screen
    rank: int | None = None
    head: int | None = None  # a number without a name before everything else in the line
    wall: float | None = None  # a time of day in the line: seconds, comparable within one log

    key: str | None = None  # name of the counter: the label of a bar, the word for a step
    label: str | None = None  # the words before a bar
    step: int | None = None
    total: int | None = None
    completed: bool = False  # `step` is the number of steps done, as in a bar; else the number of one step
    per_epoch: bool = False  # it restarts in every epoch
    fraction: float | None = None
    mention: bool = False  # a step is named, but perhaps not reached
    unit: str | None = None  # what a bar counts
    epoch: float | None = None
    epochs: int | None = None
    planned_epochs: int | None = None  # by a printed configuration

    metrics: dict[str, Number] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    shares: float | None = None  # percent that the program gives for the phases together
    block: bool = False  # the phases belong to one step, whose seconds are given
    seconds: float | None = None  # of one step, by the program's own clock
    elapsed: float | None = None  # since the bar, or the training, began
    ambiguous_times: dict[str, float] = field(default_factory=dict)  # their meaning depends on the line's other values
    tokens: int | None = None  # in one step
    samples: int | None = None
    tokens_total: float | None = None  # since the beginning
    samples_total: float | None = None
    tokens_rate: float | None = None  # per second
    samples_rate: float | None = None
    steps_rate: float | None = None
    average: bool = False  # the rates are over the whole time so far
    role: str | None = None
    reason: str | None = None  # why a step was skipped
    skipped: int = 0  # steps since the line before of which none is named
    impossible: list[str] = field(default_factory=list)  # values left out because they cannot be true

    @property
    def useful(self) -> bool:
        """Return whether the line has any value."""
        position = (self.step, self.fraction, self.epoch, self.elapsed, self.total, self.seconds, self.planned_epochs)
        counts = (self.tokens, self.samples, self.tokens_total, self.samples_total, self.tokens_rate, self.samples_rate)
        has_values = bool(self.metrics or self.phases or self.reason or self.impossible or self.block or self.shares)
        return has_values or any(value is not None for value in (*position, *counts))

    @property
    def counter(self) -> str:
        """Return the key of the counter: bars of one label and different totals are different counters."""
        if self.family != "bar":
            return self.key or "step"
        return f"{self.key}/{self.total}" if self.total is not None else self.key or "bar"
