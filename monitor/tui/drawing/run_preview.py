"""The preview of the run at the cursor, below the list where there is room. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from monitor import units
from monitor.diagnosis.answer import answer
from monitor.diagnosis.explain import gain_text
from monitor.model.report import Rates, Report
from monitor.model.steps.pace import SINCE
from monitor.runs.fleet import Row as RunRow
from monitor.runs.fleet import sampled_pace
from monitor.tui.drawing.answer_rows import SEVERITY
from monitor.tui.drawing.clock_lanes import clock, largest
from monitor.tui.drawing.curve_columns import top_limit
from monitor.tui.drawing.rows import (
    Row,
    Span,
    column,
    cut,
    fit,
    flow,
    printable,
    separated,
    skyline,
    spread,
    wrap,
)
from monitor.tui.panels.header import skipped, speeds, step_of_total

PREVIEW_LABEL_WIDTH = 13  # cells
MIN_PREVIEW_ROWS = 6  # of a preview: fewer would repeat the list
HIGH_PREVIEW_ROWS = 18  # rows from which the step times get three of them
MAX_PHASES = 8
DOT: Span = ("  ·  ", "faint")
MAX_OTHERS = 3  # findings besides the verdict


def preview(run: RunRow, width: int, height: int) -> list[Row]:
    """Return at most `height` rows about a run; none if there is too little room."""
    if height < MIN_PREVIEW_ROWS:
        return []
    rule: Span = ("─", "rule")
    rows: list[Row] = [[], spread([rule, (f" {fit(run.entry.name, 60)} ", "text bold")], [], width, rule)]
    for label, lines in _facts(run, max(1, width - PREVIEW_LABEL_WIDTH - 2), height >= HIGH_PREVIEW_ROWS):
        head = label
        for row in lines:
            rows.append(cut([(column(f" {head}", PREVIEW_LABEL_WIDTH), "muted"), *row], width))
            head = ""
    return rows[:height]


def _facts(run: RunRow, width: int, high: bool) -> Iterator[tuple[str, list[Row]]]:
    """Yield labels with their rows, the most important first, as a low screen has no room for all of them."""
    report = run.report
    if report is not None:
        if report.outcome.error:
            yield "error", wrap([(printable(report.outcome.error[:400]), "bad")], width, 0, 2)
        elif run.entry.state in ("failed", "killed"):
            yield "ended", [[(f"{run.entry.state}: {_how(run)}, no error reported", "bad")]]
        yield from _judged(run, width)
        yield "steps", _steps_row(report, width)
        yield "speed", flow(_speeds(report), width, DOT, 3) if high else [separated(_speeds(report), width)]
        if high and run.speed_ratio is not None:
            yield "against", [[(fit(_compared_with(run), width), "text")]]
        if len(run.pace) > 1:
            yield "step time", _step_times(run.pace, report.progress.steps_done, width, 3 if high else 1)
        yield "phases", _phases(report, width)
    elif run.entry.state in ("failed", "killed"):
        yield "ended", [[(f"{run.entry.state}: {_how(run)}", "bad")]]
    if run.entry.command:
        yield "command", wrap([(printable(" ".join(run.entry.command)[:600]), "text")], width, 2, 2)
    yield "run", [[(fit(run.entry.id, width), "text")]]
    if run.entry.host:
        yield "host", [[(fit(run.entry.host, width), "text")]]


def _how(run: RunRow) -> str:
    if run.entry.signal:
        return units.signal_name(run.entry.signal)
    return f"exit code {units.UNKNOWN if run.entry.exit_code is None else run.entry.exit_code}"


def _compared_with(run: RunRow) -> str:
    """Return what the share in the list refers to."""
    share = units.share(run.speed_ratio)
    if run.ratio_to == "median":
        return f"{share} of the median steps/s of finished runs of this command"
    return f"{share} of the expected tokens/s"


def _judged(run: RunRow, width: int) -> Iterator[tuple[str, list[Row]]]:
    verdict, report = run.verdict, run.report
    if verdict is None or report is None:
        return
    said = answer(report, verdict)
    possible_gain = gain_text(verdict.gain)
    words = printable(said.title[:400]) + (f"; {possible_gain} faster" if possible_gain else "")
    yield "verdict", wrap([(words, f"{SEVERITY.get(verdict.severity, 'accent')} bold")], width, 0, 2)
    if said.fix:
        yield "do this", wrap([(printable(said.to_do[0][:400]), "text")], width, 0, 2)
    if said.others:
        yield "also", [[(fit(finding.title, width), "text")] for finding in said.others[:MAX_OTHERS]]


def _steps_row(report: Report, width: int) -> list[Row]:
    """Return the progress, with the reasons of skipped steps if it fits into one row."""
    done: Row = [(step_of_total(report.progress), "text")]
    elapsed: Row = [(f"{units.age(report.progress.elapsed_seconds)} ", "text bold"), ("elapsed", "muted")]
    gap: Span = ("   ", "text")
    whole, brief = (flow([done, elapsed, skipped(report.progress, why)], width, gap) for why in (True, False))
    return whole if len(whole) == 1 else brief


def _speeds(report: Report) -> Iterator[Row]:
    """Yield the speed, now and since the first step where these differ, then the header's other figures."""
    whole = report.throughput
    now = whole.recent if report.outcome.state == "running" else Rates()
    for recent, mean in (
        (units.pace(now.steps_per_second), units.pace(whole.steps_per_second)),
        (units.rate(now.tokens_per_second, "tok/s"), units.rate(whole.tokens_per_second, "tok/s")),
    ):
        if recent not in (units.UNKNOWN, mean):
            yield [(recent, "text bold"), (f" now, {mean} {SINCE}", "muted")]
        elif mean != units.UNKNOWN:
            yield [(mean, "text bold"), (f" {SINCE}", "muted")]
    for value, _, label in speeds(report)[2:]:
        if label != "elapsed":
            yield [(f"{value} ", "text bold"), (label, "muted")]


def _step_times(pace: tuple[float, ...], steps: int, width: int, height: int) -> list[Row]:
    """Return a sparkline of the step times, oldest first, with the range of its means and the steps per bar."""
    ends = f"  means {units.duration(min(pace))} – {units.duration(max(pace))}"
    shown = sampled_pace(pace, max(1, width - len(ends)))
    drawn: list[Row] = [[(line, "accent")] for line in skyline(shown, height, top_limit(list(shown)))]
    drawn[-1].append((ends, "muted"))
    steps_per_bar = round(steps / len(shown))
    if len(drawn) > 1 and steps_per_bar > 1:
        drawn[-2].append((f"  bar = about {steps_per_bar:,} steps", "muted"))
    return drawn


def _phases(report: Report, width: int) -> list[Row]:
    shown = largest(report.phases, MAX_PHASES)
    parts: list[Row] = [[(f"{fit(phase.name, 24)} ", "muted"), (units.share(phase.share), "text")] for phase in shown]
    clock_name = clock(report, host=False)
    return flow([*parts, *([[(clock_name, "muted")]] if clock_name and parts else [])], width)
