"""Markup that nothing foreign gets into, and charts of a page as inline SVG. Pure.

A chart holds no text: its picture stretches to any width, and the labels around it are text of the page. So it is
readable on a phone, and without a script.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat
from statistics import median

from monitor.model.steps.series import Curve
from monitor.model.view import View
from monitor.palettes import OTHER, PhaseTones
from monitor.units import duration
from trainhooks.protocol.limits import clean


class Html(str):
    """Markup. Any other text is foreign, and is escaped before it becomes part of one."""

    __slots__ = ()


def escaped(text: str) -> Html:
    return text if isinstance(text, Html) else Html(html.escape(clean(text)))


def tag(name: str, *inside: str, **attributes: str | float | None) -> Html:
    """Return an element. An attribute of None is left out; `class_` is `class`, as Python has that word."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value if isinstance(value, str) else f"{value:g}")}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{given}>{''.join(map(escaped, inside))}</{name}>")


def joined(parts: Iterable[str]) -> Html:
    """Return all parts as one, however long: a single text is foreign, and cut at what one may have."""
    return Html("".join(map(escaped, parts)))


# Curves

WIDTH, HEIGHT = 1000, 240  # units of a picture
MOST_COLUMNS = 160  # of a small chart
MIN_VALUES = 8  # fewer show no outlier
MAX_SILENCE = 3.0  # times the median distance between values: a line does not bridge a longer one
MAX_SPREADS = 3.0  # values further outside would flatten the rest of the chart
LARGEST = 8e307  # the distance of two such numbers is no infinity yet


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture, and the values of its edges for the labels."""

    picture: Html
    low: float
    high: float
    first: float
    last: float


def _columns(curve: Curve, most: int) -> list[tuple[float, float, float, float]]:
    """Return (x, mean, low, high) of neighbors joined into at most so many; nan where no value is finite."""
    if not curve.x:
        return []
    wide = curve.width * max(1, math.ceil(((curve.x[-1] - curve.x[0]) / curve.width + 1) / most))
    sums: dict[float, list[float]] = {}
    for x, mean, low, high, count in zip(curve.x, curve.mean, curve.low, curve.high, _counts(curve), strict=False):
        row = sums.setdefault(x // wide, [x, 0.0, 0.0, math.inf, -math.inf])
        if math.isfinite(mean):
            row[1] += count
            row[2] += count * mean
            row[3] = min(row[3], low if math.isfinite(low) else mean)
            row[4] = max(row[4], high if math.isfinite(high) else mean)
    return [(x, total / count if count else math.nan, low, high) for x, count, total, low, high in sums.values()]


def _counts(curve: Curve) -> Iterable[float]:
    return curve.count or repeat(1.0)


def _edges(values: Sequence[float]) -> tuple[float, float]:
    """Return limits that hold all values, but for outliers that would flatten the rest."""
    ordered = sorted(values)
    low, high = ordered[0], ordered[-1]
    if len(ordered) >= MIN_VALUES:
        twentieth = max(1, len(ordered) // 20)
        first, last = ordered[twentieth], ordered[-1 - twentieth]
        room = MAX_SPREADS * (last - first)
        low, high = max(low, first - room) if room else low, min(high, last + room) if room else high
    if not high > low:
        room = 0.1 * abs(low) or 1.0
        low, high = (low - room if low else 0.0), high + room
    return max(low, -LARGEST), min(high, LARGEST)


def line_chart(curve: Curve, bands: Iterable[tuple[float, float]] = ()) -> Chart | None:
    """Return the means as a line over the band of the lowest and highest values; None where there is no value.

    Args:
        bands: stretches of x that are marked from top to bottom.
    """
    columns = _columns(curve, MOST_COLUMNS)
    known = [column for column in columns if math.isfinite(column[1])]
    if not known:
        return None
    low, high = _edges([value for column in known for value in column[1:]])
    first = columns[0][0]
    last = max(columns[-1][0], first if curve.end is None else curve.end)
    across = WIDTH / ((last - first) or 1.0)

    def place(x: float, y: float) -> str:
        below_top = (high - min(high, max(low, y))) / (high - low)
        return f"{min(WIDTH, max(0.0, (x - first) * across)):.4g} {HEIGHT * below_top:.4g}"

    line, band = [], []
    for run in _runs(columns):
        points = [place(x, mean) for x, mean, _, _ in run]
        line.append(f"M{'L'.join(points)}" + ("h0" if len(points) == 1 else ""))
        over = [place(x, highest) for x, _, _, highest in run]
        under = [place(x, lowest) for x, _, lowest, _ in reversed(run)]
        band.append(f"M{'L'.join([*over, *under])}Z")
    marked = [_box((begin - first) * across, (end - first) * across, class_="held") for begin, end in bands]
    parts = [*marked, tag("path", class_="band", d=joined(band)), tag("path", class_="line", d=joined(line))]
    return Chart(_svg(*parts), low, high, first, last)


def _runs(columns: Sequence[tuple[float, float, float, float]]) -> Iterator[list[tuple[float, float, float, float]]]:
    """Yield columns that follow each other: without a gap, and not after a silence."""
    typical = median([after[0] - before[0] for before, after in pairwise(columns)] or [0.0])
    run: list[tuple[float, float, float, float]] = []
    for column in columns:
        if run and not (math.isfinite(column[1]) and column[0] - run[-1][0] <= MAX_SILENCE * typical):
            yield run
            run = []
        if math.isfinite(column[1]):
            run.append(column)
    if run:
        yield run


def _svg(*parts: str, **attributes: str | None) -> Html:
    box = f"0 0 {WIDTH} {HEIGHT}"
    return tag("svg", *parts, viewBox=box, preserveAspectRatio="none", **attributes)


def _box(begin: float, end: float, *inside: str, class_: str | None = None) -> Html:
    begin, end = max(0.0, begin), min(float(WIDTH), end)
    return tag("rect", *inside, class_=class_, x=begin, y=0, width=max(1.0, end - begin), height=HEIGHT)


# The timeline

MOST_LAYERS = 9  # phases with a layer of their own
MORE = "more phases"
MIN_REST = 0.005  # of a step: less time in no phase is rounding
MIN_NAMED = 0.01  # of a step, for a phase to be named where one points


@dataclass(frozen=True, slots=True)
class Stack:
    """The step time of a run by phase: mean seconds a step in buckets of `width` steps."""

    clock: str  # "GPU clock", "host clock"; empty where no GPU is used
    width: int
    end: int  # the last step
    names: list[str]  # in the order of a step
    buckets: dict[int, dict[str, float]]  # by the first step of each

    @property
    def first(self) -> int:
        return next(iter(self.buckets))


def stack(view: View) -> Stack | None:
    """Return the step time by phase; None where no step has a time."""
    by_device = any(row.clock == "cuda" for row in view.report.phases)
    steps, phases = view.host_step_seconds, view.host_phase_seconds
    if by_device:
        steps, phases = view.step_seconds, view.phase_seconds
    if not steps.x:
        return None
    width = max([steps.width, *(curve.width for curve in phases.values())])
    totals = _by_bucket(steps, width)
    parts = {name: _by_bucket(curve, width) for name, curve in phases.items()}
    weight = {name: sum(seconds for seconds, _ in part.values()) for name, part in parts.items()}
    kept = set(sorted(parts, key=lambda name: -weight[name])[:MOST_LAYERS])
    buckets: dict[int, dict[str, float]] = {}
    for first, (total, counted) in sorted(totals.items()):
        # The GPU's clock times some of the steps: those whose phases are known.
        timed = max((part[first][1] for part in parts.values() if first in part), default=0.0)
        among = (timed if by_device else counted) or 1.0
        bucket: dict[str, float] = {}
        for name, part in parts.items():
            if first in part:
                layer = name if name in kept else MORE
                bucket[layer] = bucket.get(layer, 0.0) + part[first][0] / among
        whole = total / counted if counted else 0.0
        rest = whole - sum(bucket.values())
        if rest > MIN_REST * whole:
            bucket[OTHER] = bucket.get(OTHER, 0.0) + rest
        buckets[max(1, first)] = bucket
    names = [name for name in parts if name in kept and name != OTHER]
    names += [name for name in (MORE, OTHER) if any(name in bucket for bucket in buckets.values())]
    clock = "" if view.report.device is None else "GPU clock" if by_device else "host clock"
    last = max(1, int(steps.end or steps.x[-1]))  # a program may call its only step 0
    return Stack(clock, width, last, names, buckets)


def _by_bucket(curve: Curve, width: int) -> dict[int, tuple[float, float]]:
    """Return seconds in all and values, by the first step of each bucket."""
    sums: dict[int, tuple[float, float]] = {}
    for x, mean, count in zip(curve.x, curve.mean, _counts(curve), strict=False):
        first = int(x) // width * width
        seconds, values = sums.get(first, (0.0, 0.0))
        if math.isfinite(mean):
            sums[first] = seconds + count * max(0.0, mean), values + count
    return sums


def timeline(shown: Stack, tones: PhaseTones, slow: Iterable[int], held: Iterable[tuple[int, int]]) -> Chart:
    """Return the stack as a picture: a tone a phase, a mark at each slow step, a line over throttled steps.

    Args:
        slow: steps.
        held: first and last steps.
    """
    totals = [sum(bucket.values()) for bucket in shown.buckets.values()]
    ordered = sorted(totals)
    typical, top = ordered[int(0.95 * (len(ordered) - 1))], ordered[-1]
    if len(ordered) >= MIN_VALUES and top > 2.0 * typical > 0.0:
        top = 1.5 * typical  # the first step does not flatten the others
    across = WIDTH / (shown.end + 1 - shown.first)

    def at(step: float) -> float:
        return min(float(WIDTH), max(0.0, (step - shown.first) * across))

    up = HEIGHT / (top or 1.0)
    layers, sums = [], dict.fromkeys(shown.buckets, 0.0)
    for name in shown.names:
        path, reached = [f"M0 {HEIGHT}"], 0.0
        for first, bucket in shown.buckets.items():
            sums[first] += bucket.get(name, 0.0)
            begin, end = at(first), at(first // shown.width * shown.width + shown.width)
            if begin > reached:  # no step between
                path.append(f"V{HEIGHT}H{begin:.5g}")
            path.append(f"V{max(0.0, HEIGHT - sums[first] * up):.4g}H{end:.5g}")
            reached = end
        layers.append(tag("path", class_=tones[name], d=joined([*path, f"V{HEIGHT}Z"])))
    marks = joined(f"M{at(step + 0.5):.5g} 0v14" for step in slow)
    over = joined(f"M{at(first):.5g} 2H{at(last + 1):.5g}" for first, last in held)
    points = [
        _box(at(first), at(first // shown.width * shown.width + shown.width), tag("title", _pointed(shown, first)))
        for first in shown.buckets
    ]
    parts = [*reversed(layers), tag("path", class_="slow", d=marks), tag("path", class_="over", d=over)]
    parts += [tag("rect", class_="chosen", x=0, y=0, width=0, height=HEIGHT), tag("g", *points, class_="points")]
    picture = _svg(*parts, id="timeline", data_first=str(shown.first), data_end=str(shown.end))
    return Chart(picture, 0.0, top, shown.first, shown.end)


def _pointed(shown: Stack, first: int) -> str:
    """Return `steps 201 to 208: 65 ms a step; forward 20 ms, backward 40 ms`."""
    bucket = shown.buckets[first]
    total = sum(bucket.values())
    last = min(shown.end, first // shown.width * shown.width + shown.width - 1)
    which = f"step {first:,}" if last <= first else f"steps {first:,} to {last:,}"
    named = [
        f"{clean(name, 24)} {duration(bucket[name])}"
        for name in shown.names
        if bucket.get(name, 0.0) >= MIN_NAMED * total
    ]
    return f"{which}: {duration(total)}{' a step' if last > first else ''}; {', '.join(named)}"
