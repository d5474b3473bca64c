"""Below the list of runs, where there is room: what is known of the chosen one. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from monitor import units as fmt
from monitor.diagnosis.gain import gain
from monitor.model.pace import SINCE
from monitor.model.report import Rates, Report
from monitor.runs.fleet import Row as RunRow
from monitor.runs.fleet import outline
from monitor.tui.columns import top_limit
from monitor.tui.lane import clock
from monitor.tui.panels.header import SEVERITY, skipped, speeds, step_of_total
from monitor.tui.rows import Row, Span, column, cut, fit, flow, printable, separated, skyline, spread, wrap

LABEL = 13
LEAST = 6  # rows: fewer say less than the list
HIGH = 18  # rows from which on the step times are drawn higher
PHASES = 8
DOT: Span = ("  ·  ", "faint")
OTHERS = 3  # findings beside the verdict


def preview(run: RunRow, width: int, height: int) -> list[Row]:
    """At most `height` rows, and none where they would say less than the list does."""
    if height < LEAST:
        return []
    rule: Span = ("─", "rule")
    rows: list[Row] = [[], spread([rule, (f" {fit(run.entry.name, 60)} ", "text bold")], [], width, rule)]
    for label, told in _facts(run, max(1, width - LABEL - 2), height >= HIGH):
        head = label
        for row in told:
            rows.append(cut([(column(f" {head}", LABEL), "muted"), *row], width))
            head = ""
    return rows[:height]


def _facts(run: RunRow, width: int, high: bool) -> Iterator[tuple[str, list[Row]]]:
    """What people ask first comes first: a low screen has no place for all of it."""
    report = run.report
    if report is not None:
        if report.outcome.error:
            yield "error", wrap([(printable(report.outcome.error[:400]), "bad")], width, 0, 2)
        elif run.entry.state in ("failed", "killed"):
            yield "ended", [[(f"{run.entry.state}: {_how(run)}, and no error was told", "bad")]]
        yield from _judged(run, width)
        yield "steps", _steps(report, width)
        yield "speed", flow(_speeds(report), width, DOT, 3) if high else [separated(_speeds(report), width)]
        if high and run.speed_ratio is not None:
            yield "against", [[(fit(_against(run), width), "text")]]
        if len(run.pace) > 1:
            yield "step time", _course(run.pace, report.progress.steps_done, width, 3 if high else 1)
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
        return fmt.signal_name(run.entry.signal)
    return f"exit code {fmt.UNKNOWN if run.entry.exit_code is None else run.entry.exit_code}"


def _against(run: RunRow) -> str:
    """What the share in the list is of."""
    share = fmt.share(run.speed_ratio)
    if run.ratio_to == "usual":
        return f"{share} of the steps a second that finished runs of this command have done (their median)"
    return f"{share} of the tokens a second that were expected"


def _judged(run: RunRow, width: int) -> Iterator[tuple[str, list[Row]]]:
    verdict = run.verdict
    if verdict is None:
        return
    most = gain(verdict.recoverable)
    words = printable(verdict.title[:400]) + (f"; {most} faster" if most else "")
    yield "verdict", wrap([(words, f"{SEVERITY.get(verdict.severity, 'accent')} bold")], width, 0, 2)
    if verdict.advice:
        yield "what to do", wrap([(printable(verdict.advice[:400]), "text")], width, 0, 2)
    findings = run.report.findings if run.report is not None else []
    others = [each for each in findings if each.code != verdict.code]
    if others:
        yield "also", [[(fit(each.title, width), "text")] for each in others[:OTHERS]]


def _steps(report: Report, width: int) -> list[Row]:
    """How far it is; the reasons of skipped steps where all of it fits into a row."""
    done: Row = [(step_of_total(report.progress), "text")]
    elapsed: Row = [(f"{fmt.age(report.progress.elapsed_seconds)} ", "text bold"), ("elapsed", "muted")]
    gap: Span = ("   ", "text")
    whole, brief = (flow([done, elapsed, skipped(report.progress, why)], width, gap) for why in (True, False))
    return whole if len(whole) == 1 else brief


def _speeds(report: Report) -> Iterator[Row]:
    """The speed now, and since the first step where that is another; then what else the head of its screen has."""
    whole = report.throughput
    now = whole.recent if report.outcome.state == "running" else Rates()
    for recent, mean in (
        (fmt.pace(now.steps_per_second), fmt.pace(whole.steps_per_second)),
        (fmt.rate(now.tokens_per_second, "tok/s"), fmt.rate(whole.tokens_per_second, "tok/s")),
    ):
        if recent not in (fmt.UNKNOWN, mean):
            yield [(recent, "text bold"), (f" now, {mean} {SINCE}", "muted")]
        elif mean != fmt.UNKNOWN:
            yield [(mean, "text bold"), (f" {SINCE}", "muted")]
    for value, _, label in speeds(report)[2:]:
        if label != "elapsed":
            yield [(f"{value} ", "text bold"), (label, "muted")]


def _course(pace: tuple[float, ...], steps: int, width: int, height: int) -> list[Row]:
    """The step times from the first step to the newest, between which means they lie, and of how many steps each is."""
    ends = f"  means {fmt.duration(min(pace))} – {fmt.duration(max(pace))}"
    shown = outline(pace, max(1, width - len(ends)))
    drawn: list[Row] = [[(line, "accent")] for line in skyline(shown, height, top_limit(list(shown)))]
    drawn[-1].append((ends, "muted"))
    each = round(steps / len(shown))
    if len(drawn) > 1 and each > 1:
        drawn[-2].append((f"  a bar: about {each:,} steps", "muted"))
    return drawn


def _phases(report: Report, width: int) -> list[Row]:
    largest = sorted(report.phases, key=lambda phase: -phase.share)[:PHASES]
    parts: list[Row] = [[(f"{fit(each.name, 24)} ", "muted"), (fmt.share(each.share), "text")] for each in largest]
    told = clock(report, host=False)
    return flow([*parts, *([[(told, "muted")]] if told and parts else [])], width)
