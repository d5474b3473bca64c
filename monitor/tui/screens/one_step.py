"""One step, opened: its phases against the usual, metrics, GPUs, console lines of that moment, sampled stack. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from statistics import fmean

from monitor import units as fmt
from monitor.model.reasons import reasons_in_words
from monitor.model.report import Curve, View
from monitor.tui.lane import HOST_CLOCK
from monitor.tui.panels.base import Look
from monitor.tui.panels.console import elsewhere
from monitor.tui.panels.header import shown_rank
from monitor.tui.rows import Row, bar, column, fit, printable, text_width, wrap
from monitor.tui.screens.page import glued
from monitor.tui.screens.step_rows import StepLine
from trainhooks.events import Gpu, Number, Step

AROUND = 1.0  # seconds; GPUs are read once a second, and the console is looked at more often
MAX_LINES = 40  # of the console
MAX_METRICS = 40
NAME, FIGURE = 24, 12  # cells of a metric's name, and of a figure
USUAL = 14  # cells at least of the figures beside
_OF_THE_RUN = ("mean", "min", "max")
OTHER_SERIES = "  logged without a role"
_TOGETHER = "GPU clock: none of these steps was timed alone; together they took longer than usual"


def _head(text: str) -> Row:
    return [(f" {text}", "text bold")]


def _why_not(text: str, width: int) -> list[Row]:
    return wrap([(f"   {text}", "muted")], width - 1, 3)


def step_detail(line: StepLine, view: View, look: Look, width: int) -> list[Row]:
    rows: list[Row] = [*wrap(_title(line, view, width), width - 1, 1), []]
    if line.slow is not None and line.slow.steps > 1:
        rows += [*_why_not(_TOGETHER, width), []]
    rows += _phases(line, view, look, width)
    rows += [[], *_metrics(line, view, width)]
    rows += [[], _head("GPUs meanwhile"), *_gpus(line, view, width)]
    rows += [[], _head("Printed meanwhile"), *_console(line, view, look, width)]
    rows += [[], _head("Where the program stood, by phase"), *_stack(line, view, width)]
    return rows


def _value(value: Number | None) -> str:
    return fmt.UNKNOWN if value is None else fit(fmt.number(value), FIGURE - 2)


def _metrics(line: StepLine, view: View, width: int) -> list[Row]:
    """What the step logged, beside what the run's steps of its role have logged."""
    step = line.event
    if step is None:
        gone = "not kept: only the latest steps are kept one by one, the charts have the means"
        return [_head("Metrics"), *_why_not(gone, width)]
    if not step.metrics:
        return [_head("Metrics"), *_why_not("this step logged none", width)]
    beside = _OF_THE_RUN if width >= NAME + 4 + FIGURE * 4 else ()
    whose = "role's" if step.role else "run's"
    rows: list[Row] = [[(column(" Metrics", NAME + 4), "text bold")]]
    rows[0].append((column(_whose(line), FIGURE, right=True), "muted"))
    rows[0] += [(column(f"{whose} {name}", FIGURE, right=True), "muted") for name in beside]
    for name, value in list(step.metrics.items())[:MAX_METRICS]:
        row: Row = [(f"   {column(name, NAME)} ", "muted"), (column(_value(value), FIGURE, right=True), "text bold")]
        series = _series(step, name, value, view)
        whole = view.report.metrics.get(series)
        other = OTHER_SERIES if step.role and series == name else ""
        free = width - (NAME + 4 + FIGURE * (1 + len(beside)) + len(other))
        fits = free >= 0
        several = _one_of_several(view.metrics.get(series), step.index)
        for each in beside if whole is not None and fits else ():
            row.append((column(_value(getattr(whole, each)), FIGURE, right=True), "muted"))
        row.append((other if beside and fits else "", "muted"))
        rows.append([*row, (several if len(several) <= free else "", "muted")])
    return rows


def _series(step: Step, name: str, value: Number, view: View) -> str:
    """The name of the series that the value is of: what is logged after a step's end may have no role."""
    own = f"{step.role}/{name}" if step.role else name  # as the report names them
    return next((each for each in (own, name) if _holds(view.metrics.get(each), step.index, value)), own)


def _one_of_several(curve: Curve | None, step: int) -> str:
    """That this step's value is not the only one logged at it: a chart's last value may be another of them."""
    if curve is None or curve.width != 1:
        return ""
    place = bisect_left(curve.x, step)
    if place == len(curve.x) or curve.x[place] != step or not curve.low[place] < curve.high[place]:
        return ""
    return f"  one of several: {fmt.number(curve.low[place])} – {fmt.number(curve.high[place])}"


def _holds(curve: Curve | None, step: int, value: Number) -> bool:
    """Whether the series can have had this value at this step."""
    index = bisect_right(curve.x, step) - 1 if curve is not None else -1
    if curve is None or index < 0 or step >= curve.x[index] + curve.width or isinstance(value, str):
        return False
    slack = 1e-6 * abs(value)
    return curve.low[index] - slack <= value <= curve.high[index] + slack


def _title(line: StepLine, view: View, width: int) -> Row:
    row: Row = [(f" step {line.name}", "text bold"), (f"  {fmt.duration(line.seconds)}", "text bold")]
    if line.clock:
        row.append((f", {line.clock}", "muted"))
    if line.count > 1 and line.slow is not None:
        usual = fmt.brief(line.slow.baseline / line.slow.steps)
        row.append((f"  slow: the mean of {line.count:,} steps, usual {usual}", "bad bold"))
        return row
    if line.count > 1:
        row.append((f" a step, the mean of {line.count:,} steps: single ones this old are not kept", "muted"))
        return row
    if line.slow is not None:
        grew = f", {line.slow.culprit} grew most" if line.slow.culprit else ""
        # Of a run on a GPU it is slow by the GPU's clock: beside the host's times both figures are told.
        other = f"GPU clock {fmt.brief(line.slow.seconds)}, " if line.clock == HOST_CLOCK else ""
        usual = f"  slow: {other}usual {fmt.brief(line.slow.baseline)}{grew}"
        row.append((fit(usual, width), "bad bold"))
    elif line.status:
        row.append((f"  {fit(line.status, 80)}", "muted" if line.status == "ok" else "warning"))
    step = line.event
    if step is not None:
        row.append((f"  {of}", "muted") if (of := shown_rank(view.report)) else ("", "text"))
        for label, value in (("role", step.role), ("stage", step.stage), ("epoch", step.epoch)):
            row.append((f"  {label} {fit(str(value), 24)}", "muted") if value is not None else ("", "text"))
        told = (("tokens", step.tokens), ("with padding", step.padded_tokens), ("samples", step.samples))
        words = [f"{number:,} {label}" for label, number in told if number is not None]
        words += [f"{fmt.rate(line.rate, 'tok/s')} within the step"] if math.isfinite(line.rate) else []
        row += [(f"  {glued(each)}", "muted") for each in words]
    return row


def _phases(line: StepLine, view: View, look: Look, width: int) -> list[Row]:
    usual, words = _usual(line, view)
    longest = max(line.phases.values(), default=0.0)
    beside = max(USUAL, min(text_width(words) + 2, width - 1 - 22 - FIGURE))
    room = max(0, min(60, width - 26 - FIGURE - beside))
    title = f" Phases, {line.clock}" if line.clock else " Phases"
    rows: list[Row] = [[
        (column(title, 22 + room), "text bold"), (column(_whose(line), FIGURE, right=True), "muted"),
        (column(fit(words, beside - 2), beside, right=True), "muted"),
    ]]  # fmt: skip
    for name, seconds in sorted(line.phases.items(), key=lambda item: -item[1]):
        length = seconds / longest if longest > 0 else 0.0
        than = usual.get(name)
        tone = "bad bold" if line.slow is not None and name == line.slow.culprit else "text"
        rows.append([
            (f"   {column(name, 18)} ", tone), (column(bar(length, room), room), look.phases[name]),
            (column(fmt.duration(seconds), FIGURE, right=True), "text bold"),
            (column(fmt.duration(than), beside, right=True), "muted"),
        ])  # fmt: skip
    return rows


def _whose(line: StepLine) -> str:
    """Over the first figures: whose they are."""
    return "this step" if line.count == 1 else "mean step"


def _usual(line: StepLine, view: View) -> tuple[dict[str, float], str]:
    """What such a step usually takes, and whose habit that is."""
    if line.slow is not None and line.slow.usual_phases and line.clock != HOST_CLOCK:
        return line.slow.usual_phases, "usual then"
    if line.by_device:  # what is usual of a role or stage is known by the host's clock
        return {row.name: row.p50 for row in view.report.phases}, "median of the run"
    step = line.event
    for kind in view.details.kinds:
        if step is not None and (kind.role, kind.stage) == (step.role, step.stage):
            own = [name for name, value in (("role", kind.role), ("stage", kind.stage)) if value]
            return kind.phases, f"median of its {' and '.join(own)}" if own else "median of the latest steps"
    rows = view.report.host_phases or view.report.phases  # a step's own times are the host's
    return {row.name: row.p50 for row in rows}, "median of the run"


def _during(line: StepLine, t: float) -> bool:
    step = line.event
    return step is not None and step.start - AROUND <= t <= step.start + step.duration + AROUND


def _gpus(line: StepLine, view: View, width: int) -> list[Row]:
    if not view.details.gpus:
        return _why_not("no GPU has been seen", width)
    rows: list[Row] = []
    for detail in view.details.gpus.values():
        readings = [each for each in detail.readings if _during(line, each.t)]
        if readings:
            rows.append(_gpu(readings))
    return rows or _why_not("not kept: readings of single moments are kept for the last four minutes", width)


def _gpu(readings: list[Gpu]) -> Row:
    def mean(name: str) -> float | None:
        known = [value for each in readings if (value := getattr(each, name)) is not None]
        return fmean(known) if known else None

    clock, power, heat = mean("sm_clock"), mean("power"), mean("temperature")
    reasons = list(dict.fromkeys(word for each in readings for word in reasons_in_words(each.reasons)))
    parts = [
        f"GPU {readings[-1].index}", f"busy {fmt.percent(mean('utilization'))}",
        f"{fmt.UNKNOWN if clock is None else f'{clock:,.0f}'} MHz",
        f"{fmt.UNKNOWN if power is None else f'{power:.0f}'} W",
        f"{fmt.UNKNOWN if heat is None else f'{heat:.0f}'} °C", fmt.size(mean("memory_used")),
    ]  # fmt: skip
    return [("   " + "   ".join(parts), "text"), ("   " + ", ".join(reasons), "warning")]


def _console(line: StepLine, view: View, look: Look, width: int) -> list[Row]:
    pairs = zip(view.console_times, view.console, strict=False)
    lines = [text for t, text in pairs if math.isfinite(t) and _during(line, t)]
    if not lines:
        seen = [t for t in view.console_times if math.isfinite(t)]
        step = line.event
        if step is not None and seen and seen[0] <= step.start:
            return _why_not("nothing", width)
        unknown = "not known: line times are kept only while a dashboard is open, for the newest lines"
        return _why_not(elsewhere(view, look) or unknown, width)
    rows: list[Row] = [[("   " + fit(text, width - 4), "muted")] for text in lines[-MAX_LINES:]]
    return [*_why_not("seen from a second before to a second after", width), *rows]


def _stack(line: StepLine, view: View, width: int) -> list[Row]:
    """The places of each phase; those that had the same ones are told together."""
    names: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name in sorted(line.phases, key=lambda each: -line.phases[each]):
        places = view.details.frames.get(name, ())
        looks = sum(count for _, count in places)
        told = tuple((fmt.share(count / looks), place) for place, count in places[:3])
        names.setdefault(told, []).append(name)
    names.pop((), None)
    rows: list[Row] = []
    for told, those in names.items():
        rows += wrap([(f"   {', '.join(fit(name, 40) for name in those)}", "text")], width - 1, 3)
        for share, place in told:
            head = f"     {column(share, 6, right=True)} "
            rows += wrap([(head, "text bold"), (printable(place[:400]), "muted")], width - 1, 13, 2)
    if not view.details.frames:
        return _why_not("nobody has looked at the stack in this run so far", width)
    if not rows:
        return _why_not("no phase of this step lasted long enough to be looked into", width)
    return [*_why_not("of all steps so far, not of this one alone", width), *rows]
