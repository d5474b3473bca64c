"""The alerts panel: slow steps with their breakdown, throttle events and other alerts, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from monitor import units
from monitor.model.device.throttle_watch import ThrottleEvent
from monitor.model.report import Alert, Finding, Report, SlowStep
from monitor.model.steps.series import Curve
from monitor.model.view import View
from monitor.tui.drawing.answer_rows import SEVERITY
from monitor.tui.drawing.rows import Row, printable, wrap
from monitor.tui.drawing.time_cursor import value_at
from monitor.tui.panels.base import ScrollPanel, ViewOptions, on_board

MIN_BASELINE_SHIFT = 0.1  # share of the baseline: a smaller shift is noise
MIN_ADAPTED_STEPS = 4  # slow steps in a row: fewer do not show a lasting change
MIN_LIKENESS = 0.9  # share of the shortest slow step: later steps as long belong to the same change


def slow_step(slow: SlowStep, options: ViewOptions, when: str = "") -> Row:
    """Return `Slow step 214 (65.3 s): generation 45.2 s, ...; typical 18.0 s`, with the culprit in its color."""
    role = "".join(f" {printable(part[:60])}" for part in (slow.role, slow.stage) if part)
    role += f" on rank {slow.rank}" if slow.rank else ""
    row: Row = [("▲ ", "bad bold"), (when, "muted"), (f"Slow {slow.which}{role}", "text bold")]
    row.append((f" ({units.brief(slow.seconds)})" + (": " if slow.phases else ""), "text"))
    for index, (name, seconds) in enumerate(list(slow.breakdown().items())[:16]):
        row += [(", ", "muted")] if index else []
        text = f"{printable(name[:80])} {units.brief(seconds)}"
        row.append((text, f"{options.phases[name]} bold" if name == slow.culprit else "muted"))
    return [*row, ("; ", "muted"), (f"typical {units.brief(slow.baseline)}", "text")]


@dataclass(frozen=True)
class Entry:
    time: float  # Unix time
    row: Row
    critical: bool = False  # severity of its finding
    steps: tuple[int, int] | None = None  # that it is about: the first one and their number


def in_a_row(slow: Sequence[SlowStep]) -> list[list[SlowStep]]:
    """Group slow steps into runs of neighbors; a single normal step between two does not end a run."""
    stretches: list[list[SlowStep]] = []
    for step in slow:
        if stretches and 0 <= step.step - _last(stretches[-1][-1]) <= 2:
            stretches[-1].append(step)
        else:
            stretches.append([step])
    return stretches


def _last(slow: SlowStep) -> int:
    """Return the last step of a slow step or stretch."""
    return slow.step + slow.steps - 1


def alerts_of_steps(alerts: int, slow: Sequence[SlowStep]) -> str:
    """Return the words after `4 alerts` that say how many are slow steps, as in `, 3 of them slow steps`."""
    if not slow:
        return ""
    stretches, together = len(in_a_row(slow)), sum(step.steps for step in slow)
    if together == stretches:
        steps = "a slow step" if stretches == 1 else "slow steps"
        one, every = "one of them ", "all " if stretches > 1 else ""
    else:
        steps = f"of {together:,} slow steps"
        one, every = "one ", ""
    if alerts == stretches:
        return f", {every}{steps}"
    return f", {one if stretches == 1 else f'{stretches:,} of them '}{steps}"


def slow_stretch(slow: Sequence[SlowStep], options: ViewOptions, when: str = "", since: int | None = None) -> Row:
    """Return one row for a run of slow steps, with the breakdown of the longest; a single step gets its own row.

    Args:
        since: the step from which on such steps are typical.
    """
    if len(slow) == 1:
        return slow_step(slow[0], options, when)
    if any(step.steps > 1 for step in slow):
        return _on_the_gpu(slow, when)
    longest = max(slow, key=lambda step: step.seconds)
    tail = slow_step(longest, options)[3:]  # without its sign, time and name
    row: Row = [("▲ ", "bad bold"), (when, "muted")]
    row += [(f"Steps {slow[0].step}–{slow[-1].step}, {len(slow)} slow steps", "text bold")]
    row += [(f", longest {longest.step}", "text"), *tail]
    before, after = slow[0].baseline, slow[-1].baseline
    if abs(after - before) > MIN_BASELINE_SHIFT * before:
        row.append((f" ({units.brief(before)} at the start, {units.brief(after)} at the end)", "text"))
    return [*row, (f"; typical from step {since} on", "warning")] if since is not None else row


def _on_the_gpu(slow: Sequence[SlowStep], when: str) -> Row:
    """Return the row of stretches that the GPU's clock measured as wholes, by the mean step of each."""
    slowest = max(step.seconds / step.steps for step in slow)
    typical = min(step.baseline / step.steps for step in slow)
    row: Row = [("▲ ", "bad bold"), (when, "muted")]
    row.append((f"Slow steps {slow[0].step} to {_last(slow[-1])}", "text bold"))
    return [*row, (f": up to {units.brief(slowest)} a step; typical {units.brief(typical)}", "text")]


def adapted_at(slow: Sequence[SlowStep], steps: Curve) -> int | None:
    """Return the first step after these, if it and later ones are as long and no longer counted as slow; else None."""
    if len(slow) < MIN_ADAPTED_STEPS or any(step.role or step.stage for step in slow):
        return None  # a typical step of one role may be as long as a slow one of another
    first, least = _last(slow[-1]) + 1, min(step.seconds / step.steps for step in slow)
    places = (first + steps.width - 1, first + steps.width + MIN_ADAPTED_STEPS - 2)  # in the buckets after theirs
    for place in places:
        moment = value_at(steps, place)
        if moment is None or moment.first < first or moment.last < place or moment.value < MIN_LIKENESS * least:
            return None
    return first


def alert_entries(view: View, options: ViewOptions) -> list[Entry]:
    """Return all alerts, newest first: runs of slow steps, throttle events, anything else."""
    report, offset = view.report, view.details.wall_offset
    critical = {finding.code for finding in report.findings if finding.severity == "critical"}
    throttled = view.details.throttle_events if offset is not None else ()
    shown_codes = {event.code for event in throttled}  # their alerts would repeat the events
    times = {(alert.slow_step, alert.rank): alert.time or 0.0 for alert in report.alerts}
    shown_steps = {(step.step, step.rank) for step in report.slow_steps}
    listed, older = [], []
    for slow in in_a_row(report.slow_steps):
        begin, end = (times.get((step.step, step.rank), 0.0) for step in (slow[0], slow[-1]))
        when = _when(report, begin, end if len(slow) > 1 else None)
        row = slow_stretch(slow, options, when, adapted_at(slow, view.step_seconds))
        steps = slow[0].step, _last(slow[-1]) - slow[0].step + 1
        listed.append(Entry(begin, row, steps=steps))
    for alert in report.alerts:
        if alert.code in shown_codes:
            continue
        if alert.slow_step is not None:
            if (alert.slow_step, alert.rank) not in shown_steps:  # its breakdown is no longer kept
                older.append(alert)
            continue
        row = [("● ", "bad bold" if alert.code in critical else "warning"), (_when(report, alert.time), "muted")]
        listed.append(Entry(alert.time or 0.0, [*row, (printable(alert.text[:600]), "text")], alert.code in critical))
    for event in throttled:
        row = _throttle_row(report, event, offset or 0.0)
        listed.append(Entry(event.start + (offset or 0.0), row, event.code in critical))
    return [*sorted(listed, key=lambda entry: -entry.time), *([_older(report, older)] if older else [])]


def _older(report: Report, alerts: Sequence[Alert]) -> Entry:
    first, last = alerts[0], alerts[-1]
    row: Row = [("▲ ", "muted"), (_when(report, first.time, last.time), "muted")]
    text = units.plural(len(alerts), "earlier slow step", "earlier slow steps")
    return Entry(last.time or 0.0, [*row, (f"{text}, last: {printable(last.text[:300])}", "muted")])


def entries(view: View, options: ViewOptions) -> list[Row]:
    """Return one row per alert, newest first, after the losses and notes."""
    return [*losses_and_notes(view), *(entry.row for entry in alert_entries(view, options))]


def losses_and_notes(view: View) -> list[Row]:
    return [*losses(view.report), *([("· ", "accent"), (printable(note[:600]), "muted")] for note in view.notes)]


def _throttle_row(report: Report, event: ThrottleEvent, offset: float) -> Row:
    """Return `■ 25 s to 49 s  GPU 1 HW thermal, 1980 -> 1318 MHz, steps +54%`; of an open event how long so far."""
    last = event.last_seen if event.end is None else event.end
    when = _when(report, event.start + offset, None if last is None else last + offset)
    if when and last is None and event.seconds >= 1:
        when = f"{when.rstrip()}, observed {units.age(event.seconds)}  "
    return [("■ ", "bad bold"), (when, "muted"), (printable(event.line()[:600]), "text")]


def _since(report: Report, time: float | None) -> str:
    started = report.run.started
    return units.age(time - started) if started is not None and time is not None and time >= started else ""


def _when(report: Report, time: float | None, end: float | None = None) -> str:
    """Return `at 25 s` or `25 s to 49 s` since the start of the run; empty if unknown."""
    begin, last = _since(report, time), _since(report, end) if end else ""
    if not begin:
        return ""
    return f"{begin} to {last}  " if last and last != begin else f"at {begin}  "


def losses(report: Report) -> list[Row]:
    dropped = report.dropped
    events, lines = units.plural(dropped.events, "event", "events"), units.plural(dropped.lines, "line", "lines")
    lost = [f"{events} dropped by the training process"] if dropped.events else []
    lost += [f"{lines} unreadable or missing"] if dropped.lines else []
    lost += (
        [
            units.plural(
                dropped.broken_off,
                "journal truncated (last events missing)",
                "journals truncated (last events missing)",
            )
        ]
        if dropped.broken_off
        else []
    )
    return [[("! ", "warning bold"), ("; ".join(lost), "warning")]] if lost else []


def other_findings(view: View) -> list[Finding]:
    """Return the findings other than the verdict, which the header shows."""
    return [finding for finding in view.report.findings if finding.code != view.verdict.code]


def finding_rows(findings: Sequence[Finding]) -> list[Row]:
    """Return one row per finding with its advice, shortened; the findings screen has the rest."""
    rows: list[Row] = []
    for finding in findings:
        advice: Row = [("  → ", "accent"), (printable(finding.advice[:300]), "muted")] if finding.advice else []
        tone = "text" if finding.severity == "info" else SEVERITY.get(finding.severity, "text")
        rows.append([("▌ ", tone), (printable(finding.title[:300]), tone), *advice])
    return rows


def suggestion_rows(view: View) -> list[Row]:
    """Return one row per suggestion of what to try."""
    rows: list[Row] = []
    for idea in view.report.to_try:
        because = f"  {printable(idea.because[:200])}" if idea.because else ""
        rows.append([("  to try  ", "accent"), (printable(idea.text[:300]), "text"), (because, "muted")])
    return rows


@on_board("alerts", 5, "Alerts", wide=(2, 3), middle=(2, 1), narrow=2)
class Alerts(ScrollPanel):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._entries: list[Entry] = []  # as drawn

    def data(self, view: View, options: ViewOptions) -> object:
        report = view.report
        events = report.alerts, report.slow_steps, view.details.throttle_events, report.dropped, view.notes
        return events, report.findings, view.verdict, report.to_try

    def heading(self, view: View, options: ViewOptions) -> str:
        return "Alerts"

    def aside(self, view: View, options: ViewOptions) -> Row:
        if not self._entries:
            return []
        words = units.plural(len(self._entries), "alert", "alerts")
        among = alerts_of_steps(len(self._entries), view.report.slow_steps)
        beside = len(f"─ {self.number} {self.heading(view, options)} {words}") + 4
        return [(words + (among if beside + len(among) <= self.size.width else ""), "muted")]

    def everything(self, view: View, options: ViewOptions, width: int) -> list[Row]:
        """Return all rows: critical findings and alerts, other alerts newest first, other findings, suggestions."""
        return [row for row, _ in self._with_actions(view, options, width)]

    def _with_actions(self, view: View, options: ViewOptions, width: int) -> list[tuple[Row, str]]:
        """Return all rows, each with the action that opens its step or its page on the findings screen."""
        self._entries = alert_entries(view, options)
        first = losses_and_notes(view)
        alerts = [
            (entry, ("steps", entry.steps) if entry.steps else ("findings", ("alert", len(first) + place)))
            for place, entry in enumerate(self._entries)
        ]
        findings = other_findings(view)
        also = "; other findings:" if findings else ""
        nothing: list[Row] = [] if alerts or first else [[(f"  no alerts{also}", "muted")]]
        urgent = [finding for finding in findings if finding.severity == "critical"]
        rest = [finding for finding in findings if finding.severity != "critical"]
        shown: list[tuple[Row, tuple[str, object] | None]] = [
            *((row, ("findings", ("alert", place))) for place, row in enumerate(first)),
            *((row, None) for row in nothing),
            *((row, ("findings", finding.code)) for row, finding in zip(finding_rows(urgent), urgent, strict=True)),
            *((entry.row, opened) for entry, opened in alerts if entry.critical),
            *((entry.row, opened) for entry, opened in alerts if not entry.critical),
            *((row, ("findings", finding.code)) for row, finding in zip(finding_rows(rest), rest, strict=True)),
            *((row, ("findings", ("try", place))) for place, row in enumerate(suggestion_rows(view))),
        ]
        return [(row, f"open{opened}" if opened else "") for entry, opened in shown for row in wrap(entry, width - 2)]

    def hit(self, view: View, options: ViewOptions, x: int, y: int) -> str:
        rows = self._with_actions(view, options, self.size.width)
        shown = rows[self._start(len(rows), self.size.height - 1) :]
        return shown[y - 1][1] if 0 < y <= len(shown) else ""
