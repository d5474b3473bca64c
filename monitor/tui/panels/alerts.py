"""Alerts, the newest first: slow steps with their culprit and breakdown, and everything else worth a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from monitor import units as fmt
from monitor.model.held_back import HeldBack
from monitor.model.report import Alert, Curve, Finding, Report, SlowStep, View
from monitor.tui.cursor import at
from monitor.tui.panels.base import Look, ScrollPanel
from monitor.tui.panels.header import SEVERITY
from monitor.tui.rows import Row, printable, wrap

OTHER_USUAL = 0.1  # of the usual step: what it moves by less is chance
A_HABIT = 4  # slow steps in a row: fewer do not say that the next ones are like them
LIKE = 0.9  # of the shortest of them


def slow_step(slow: SlowStep, look: Look, when: str = "") -> Row:
    """`Slow step 214 (65.3 s): generation 45.2 s, ...; usual 18.0 s`, with the culprit in its colour."""
    role = "".join(f" {printable(part[:60])}" for part in (slow.role, slow.stage) if part)
    role += f" on rank {slow.rank}" if slow.rank else ""
    row: Row = [("▲ ", "bad bold"), (when, "muted"), (f"Slow {slow.which}{role}", "text bold")]
    row.append((f" ({fmt.brief(slow.seconds)})" + (": " if slow.phases else ""), "text"))
    for index, (name, seconds) in enumerate(list(slow.breakdown().items())[:16]):
        row += [(", ", "muted")] if index else []
        text = f"{printable(name[:80])} {fmt.brief(seconds)}"
        row.append((text, f"{look.phases[name]} bold" if name == slow.culprit else "muted"))
    return [*row, ("; ", "muted"), (f"usual {fmt.brief(slow.baseline)}", "text")]


@dataclass(frozen=True)
class Entry:
    time: float  # Unix time
    row: Row
    critical: bool = False  # its finding is


def in_a_row(slow: Sequence[SlowStep]) -> list[list[SlowStep]]:
    """Slow steps in stretches: one usual step between two ends none."""
    stretches: list[list[SlowStep]] = []
    for each in slow:
        if stretches and 0 <= each.step - _last(stretches[-1][-1]) <= 2:
            stretches[-1].append(each)
        else:
            stretches.append([each])
    return stretches


def _last(slow: SlowStep) -> int:
    return slow.step + slow.steps - 1


def of_them(alerts: int, slow: Sequence[SlowStep]) -> str:
    """Behind `4 alerts` how many of these tell of slow steps, so that nobody adds them up: `, 3 of them slow steps`."""
    if not slow:
        return ""
    stretches, together = len(in_a_row(slow)), sum(each.steps for each in slow)
    if together == stretches:
        steps = "a slow step" if stretches == 1 else "slow steps"
        one, every = "one of them ", "all " if stretches > 1 else ""
    else:
        steps = f"of {together:,} slow steps"
        one, every = "one ", ""
    if alerts == stretches:
        return f", {every}{steps}"
    return f", {one if stretches == 1 else f'{stretches:,} of them '}{steps}"


def slow_stretch(slow: Sequence[SlowStep], look: Look, when: str = "", since: int | None = None) -> Row:
    """One row for slow steps in a row, with the breakdown of the longest; a single one is told as it is.

    Args:
        since: the step from which on such steps are the usual ones.
    """
    if len(slow) == 1:
        return slow_step(slow[0], look, when)
    if any(each.steps > 1 for each in slow):
        return _on_the_gpu(slow, when)
    longest = max(slow, key=lambda each: each.seconds)
    tail = slow_step(longest, look)[3:]  # without its sign, time and name
    row: Row = [("▲ ", "bad bold"), (when, "muted")]
    row += [(f"Steps {slow[0].step}–{slow[-1].step}, {len(slow)} slow steps", "text bold")]
    row += [(f", longest {longest.step}", "text"), *tail]
    before, after = slow[0].baseline, slow[-1].baseline
    if abs(after - before) > OTHER_USUAL * before:
        row.append((f" ({fmt.brief(before)} at first, {fmt.brief(after)} in the end)", "text"))
    return [*row, (f"; from step {since} on such steps count as usual", "warning")] if since is not None else row


def _on_the_gpu(slow: Sequence[SlowStep], when: str) -> Row:
    """Stretches that the GPU's clock tells only as wholes: their steps by the mean of each stretch."""
    slowest = max(each.seconds / each.steps for each in slow)
    usual = min(each.baseline / each.steps for each in slow)
    row: Row = [("▲ ", "bad bold"), (when, "muted")]
    row.append((f"Slow steps {slow[0].step} to {_last(slow[-1])}", "text bold"))
    return [*row, (f": up to {fmt.brief(slowest)} a step; usual {fmt.brief(usual)}", "text")]


def usual_since(slow: Sequence[SlowStep], steps: Curve) -> int | None:
    """The first step after these, if it and those after it are as long and yet told as slow no more."""
    if len(slow) < A_HABIT or any(each.role or each.stage for each in slow):
        return None  # of one role a usual step may be as long as a slow one of another
    first, least = _last(slow[-1]) + 1, min(each.seconds / each.steps for each in slow)
    places = (first + steps.width - 1, first + steps.width + A_HABIT - 2)  # in buckets behind theirs
    for place in places:
        moment = at(steps, place)
        if moment is None or moment.first < first or moment.last < place or moment.value < LIKE * least:
            return None
    return first


def told(view: View, look: Look) -> list[Entry]:
    """What happened, the newest first: a stretch of slow steps, one in which a GPU was held back, anything else."""
    report, offset = view.report, view.details.wall_offset
    critical = {finding.code for finding in report.findings if finding.severity == "critical"}
    held_back = view.details.held_back if offset is not None else ()
    passed_over = {each.code for each in held_back}
    times = {alert.text: alert.time or 0.0 for alert in report.alerts}
    slow_ones = {str(each): each for each in report.slow_steps}
    found, older = [], []
    for slow in in_a_row(list(slow_ones.values())):
        begin, end = times.get(str(slow[0]), 0.0), times.get(str(slow[-1]), 0.0)
        when = _when(report, begin, end if len(slow) > 1 else None)
        found.append(Entry(begin, slow_stretch(slow, look, when, usual_since(slow, view.step_seconds))))
    for alert in report.alerts:
        if alert.text in slow_ones or alert.code in passed_over:
            continue
        if alert.code == "slow-steps":  # of which only this line is kept
            older.append(alert)
            continue
        row: Row = [("● ", "bad bold" if alert.code in critical else "warning"), (_when(report, alert.time), "muted")]
        found.append(Entry(alert.time or 0.0, [*row, (printable(alert.text[:600]), "text")], alert.code in critical))
    for each in held_back:
        row = _stretch(report, each, offset or 0.0)
        found.append(Entry(each.start + (offset or 0.0), row, each.code in critical))
    return [*sorted(found, key=lambda entry: -entry.time), *([_older(report, older)] if older else [])]


def _older(report: Report, alerts: Sequence[Alert]) -> Entry:
    first, last = alerts[0], alerts[-1]
    row: Row = [("▲ ", "muted"), (_when(report, first.time, last.time), "muted")]
    text = fmt.plural(len(alerts), "slow step before these", "slow steps before these")
    return Entry(last.time or 0.0, [*row, (f"{text}: the last was {printable(last.text[:300])}", "muted")])


def entries(view: View, look: Look) -> list[Row]:
    """One row an entry, the newest first. What was lost comes before them."""
    return [*before_all(view), *(entry.row for entry in told(view, look))]


def before_all(view: View) -> list[Row]:
    return [*losses(view.report), *([("· ", "accent"), (printable(note[:600]), "muted")] for note in view.notes)]


def _stretch(report: Report, held: HeldBack, offset: float) -> Row:
    """`■ at 25 s until 49 s  GPU 1 HW thermal, 1980 -> 1318 MHz, steps +54 %`; while it goes on how long so far."""
    last = held.let_go if held.end is None else held.end
    when = _when(report, held.start + offset, None if last is None else last + offset)
    if when and last is None and held.seconds >= 1:
        when = f"{when.rstrip()}, seen for {fmt.age(held.seconds)}  "
    return [("■ ", "bad bold"), (when, "muted"), (printable(held.line()[:600]), "text")]


def _since(report: Report, time: float | None) -> str:
    started = report.run.started
    return fmt.age(time - started) if started is not None and time is not None and time >= started else ""


def _when(report: Report, time: float | None, end: float | None = None) -> str:
    """`at 25 s until 49 s`; nothing where it is not known."""
    begin, last = _since(report, time), _since(report, end) if end else ""
    until = f" until {last}" if last and last != begin else ""
    return f"at {begin}{until}  " if begin else ""


def losses(report: Report) -> list[Row]:
    dropped = report.dropped
    lost = [f"{dropped.events:,} events dropped by the training"] if dropped.events else []
    lost += [f"{dropped.lines:,} lines unreadable or missing"] if dropped.lines else []
    lost += [f"{dropped.broken_off:,} journals break off: their last moment is missing"] if dropped.broken_off else []
    return [[("! ", "warning bold"), ("; ".join(lost), "warning")]] if lost else []


def others(view: View) -> list[Finding]:
    """What was found beside the verdict, which stands in the head."""
    return [finding for finding in view.report.findings if finding.code != view.verdict.code]


def finding_rows(findings: Sequence[Finding]) -> list[Row]:
    """What else was found: `w` has the evidence, and all of the advice."""
    rows: list[Row] = []
    for finding in findings:
        said: Row = [("  → ", "accent"), (printable(finding.advice[:300]), "muted")] if finding.advice else []
        tone = "text" if finding.severity == "info" else SEVERITY.get(finding.severity, "text")
        rows.append([("▌ ", tone), (printable(finding.title[:300]), tone), *said])
    return rows


def ideas(view: View) -> list[Row]:
    """What may help."""
    rows: list[Row] = []
    for idea in view.report.to_try:
        because = f"  {printable(idea.because[:200])}" if idea.because else ""
        rows.append([("  to try  ", "accent"), (printable(idea.text[:300]), "text"), (because, "muted")])
    return rows


class Alerts(ScrollPanel):
    number = 5

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._told: list[Entry] = []  # of what is drawn

    def data(self, view: View, look: Look) -> object:
        report = view.report
        events = report.alerts, report.slow_steps, view.details.held_back, report.dropped, view.notes
        return events, report.findings, view.verdict, report.to_try

    def heading(self, view: View, look: Look) -> str:
        return "Alerts"

    def aside(self, view: View, look: Look) -> Row:
        if not self._told:
            return []
        words = fmt.plural(len(self._told), "alert", "alerts")
        among = of_them(len(self._told), view.report.slow_steps)
        beside = len(f"─ {self.number} {self.heading(view, look)} {words}") + 4
        return [(words + (among if beside + len(among) <= self.size.width else ""), "muted")]

    def everything(self, view: View, look: Look, width: int) -> list[Row]:
        """The gravest first; of like gravity alerts, the newest first, and then what else was found."""
        self._told = told(view, look)
        grave = [entry.row for entry in self._told if entry.critical]
        others_ = [entry.row for entry in self._told if not entry.critical]
        findings = others(view)
        also = "; found beside the verdict above:" if findings else ""
        nothing: list[Row] = [[(f"  no alerts{also}", "muted")]] if not self._told and not before_all(view) else []
        urgent = [each for each in findings if each.severity == "critical"]
        rest = [each for each in findings if each.severity != "critical"]
        shown = [*before_all(view), *nothing, *finding_rows(urgent), *grave, *others_, *finding_rows(rest)]
        return [row for each in [*shown, *ideas(view)] for row in wrap(each, width - 2)]
