"""What the screens beside the overview show of a run: single steps, spans, readings. Bounded, and never changed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from monitor.model.held_back import HeldBack
from trainhooks.events import Gpu, GpuTime, Host, Span, Step


@dataclass(frozen=True, slots=True)
class KindRow:
    """Steps of one role and stage: what is usual among the latest of them."""

    role: str | None
    stage: str | None
    steps: int  # in all
    window: int  # the latest, from which the figures are
    seconds: float  # the median
    phases: dict[str, float] = field(default_factory=dict)  # the medians


@dataclass(frozen=True, slots=True)
class GpuDetail:
    """What a GPU's newest reading does not tell: its past, and the clock it has when nothing holds it back."""

    readings: tuple[Gpu, ...] = ()  # the newest last
    reference: int | None = None  # MHz, what it runs at under load and unhindered; None while too little is known
    link: tuple[int | None, int | None, int | None, int | None] = (None, None, None, None)  # gen, its most, lanes, most


@dataclass(frozen=True, slots=True)
class Details:
    """Steps, device times and spans are the events themselves. Times are on the run's monotonic clock."""

    steps: tuple[Step, ...] = ()  # the latest, the newest last
    timed: tuple[GpuTime, ...] = ()  # the latest of which the device's time is known, the newest last
    spans: tuple[Span, ...] = ()  # after the first step; of many, some
    held_back: tuple[HeldBack, ...] = ()
    gpus: dict[str, GpuDetail] = field(default_factory=dict)  # by uuid
    host: tuple[Host, ...] = ()  # its readings, the newest last
    kinds: tuple[KindRow, ...] = ()
    distributions: dict[str, list[tuple[float, int]]] = field(default_factory=dict)  # phase -> seconds from, steps
    host_distributions: dict[str, list[tuple[float, int]]] = field(default_factory=dict)  # by the host's clock
    frames: dict[str, list[tuple[str, int]]] = field(default_factory=dict)  # what was open -> places, looks
    wall_offset: float | None = None  # Unix time minus monotonic time


def figure_of(readings: Sequence[Gpu] | Sequence[Host], name: str) -> list[float]:
    """One figure of readings; nan where a reading lacks it."""
    values = [getattr(each, name) for each in readings]
    return [math.nan if value is None else float(value) for value in values]
