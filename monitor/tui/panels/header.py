"""The head of every screen: is it running, how far, how fast, until when, what is it doing now, and the verdict."""

from __future__ import annotations

from monitor import units as fmt
from monitor.diagnosis.gain import gain
from monitor.diagnosis.shortened import shortened
from monitor.model.pace import SINCE, recent_over
from monitor.model.report import Outcome, Progress, Rates, Report, View
from monitor.tui.panels.base import Look, Rows
from monitor.tui.panels.filling import filling
from monitor.tui.rows import Row, column, fit, meter, printable, row_width, separated, spread, text_width, wrap

LEAST_NAME = 6  # cells
ETA = "ETA "
SINCE_BRIEF = " since 1st step)"  # the end of a label, which is as wide as its tile
LEAST_ADVICE = 24  # cells; a shorter piece of advice says nothing
PULSE = 1.0  # seconds from one to the next
SILENT_AFTER = 10.0  # seconds; a busy box may swallow a few pulses

_STATES = {
    "running": ("● RUNNING", "good"),
    "finished": ("✔ FINISHED", "good"),
    "failed": ("✖ FAILED", "bad"),
    "killed": ("✖ KILLED", "bad"),
    "lost": ("? LOST", "warning"),
}
_UNTOLD = "its output does not tell what it is doing now"
_UNSEEN = "the program has ended by itself; with which exit code, nobody saw"
SEVERITY = {"info": "accent", "warning": "warning", "critical": "bad"}


def state(outcome: Outcome) -> tuple[str, str]:
    """The outcome in two or three words, and its tone."""
    words, tone = _STATES.get(outcome.state, (f"? {fit(outcome.state, 20).upper()}", "warning"))
    if outcome.state == "killed":
        words += f" by {fmt.signal_name(outcome.signal)}"
    elif outcome.state == "failed":
        words += f", exit {outcome.exit_code}" if outcome.exit_code is not None else ""
    elif outcome.state == "finished" and outcome.exit_code is None:
        return "? FINISHED, exit code unknown", "warning"  # nobody saw whether that was a success
    return words, tone


def ended_log(report: Report) -> bool:
    """Whether this is a log that was imported, which does not tell how its program ended."""
    return report.run.imported and report.outcome.state == "lost"


def now(view: View) -> Row:
    """What the training is in the middle of; what became of it, once it has ended."""
    outcome, work = view.report.outcome, view.open
    if view.loading is not None:
        return [(f"loading history {fmt.share(view.loading)}", "accent")]
    if ended_log(view.report):
        return [("the log ends here, and does not tell how the training did", "muted")]
    if outcome.state != "running":
        told = printable((outcome.error or "")[:400]).rstrip(": ")  # an exception without a message ends in a colon
        error = [(": ", "muted"), (told, "text")] if told else []
        return [(_ending(outcome), state(outcome)[1]), *error]
    row: Row = []
    again: Row = [(f"no step since the restart, {fmt.age(work.restarting)}", "warning"), (" › ", "faint")]
    role = "".join(f" {printable(part[:60])}" for part in (work.role, work.stage) if part)
    if work.step is not None and work.step_seconds is None:
        row = [(_after(work.step, view.report), "muted")]
    elif work.step is not None:
        row = [(f"step {work.step:,}{role}: ", "muted")]
        if work.phase is not None:
            # Where Python is: of a GPU's queue no pulse tells.
            row += [("host in ", "muted")] if view.report.device is not None else []
            row += [(printable(work.phase[:80]), "text bold"), (_for(work.phase_seconds), "text")]
        else:
            row += [(f"open{_for(work.step_seconds)}", "text")]
    elif work.spans:
        row = [] if view.report.progress.steps_done else [("starting: ", "muted")]
        for index, (name, seconds) in enumerate(work.spans[:3]):
            row += [(" › ", "faint")] if index else []
            row += [(printable(name[:80]), "text bold"), (f" for {fmt.age(seconds)}", "text")]
    elif work.restarting is not None:
        again.pop()
    elif view.report.progress.steps_done == 0:
        row = [("waiting for the first step", "muted")]
    else:
        row = [(_UNTOLD if view.report.run.source == "console" else "between steps", "muted")]
    if view.usual_startup is not None and not view.report.progress.steps_done:
        row.append((f"; the first step usually begins after {fmt.age(view.usual_startup)}", "muted"))
    if work.restarting is not None:
        row = [*again, *row]
    if work.silent_for is not None and work.silent_for >= SILENT_AFTER:
        silence = f"silent for {fmt.age(work.silent_for)}"
        ended = work.step is not None and work.step_seconds is None
        last: Row = [(f"after step {work.step:,}", "muted")] if ended else [("in ", "muted"), *row]
        row = [(silence, "warning bold"), ("  ·  ", "faint"), ("last seen ", "muted"), *last]
    return row


def _after(step: int, report: Report) -> str:
    """What is to be said once a step has ended and nothing is known yet of what came after it."""
    if (report.throughput.recent.steps_per_second or 0.0) > 1 / PULSE:
        return "steps are too short to be watched one by one"
    told_above = report.progress.steps_done - step in (0, 1)  # steps are counted from 0 or from 1
    return "a step has just ended" if told_above else f"step {step:,} has ended"


def _for(seconds: float | None) -> str:
    """` for 12 s`; of what has begun within this second nothing."""
    return f" for {fmt.age(seconds)}" if seconds is not None and seconds >= 1 else ""


def _ending(outcome: Outcome) -> str:
    return {
        "finished": "the training has finished" if outcome.exit_code is not None else _UNSEEN,
        "failed": "the training ended with an error",
        "killed": f"the training was killed by {fmt.signal_name(outcome.signal)}",
        "lost": "the process is gone, and nobody saw how it ended",
    }.get(outcome.state, "the training has ended")


def step_of_total(progress: Progress) -> str:
    if progress.steps_total is None:
        return f"step {progress.steps_done:,}"
    return f"step {progress.steps_done:,} of {progress.steps_total:,}"


def skipped(progress: Progress, reasons: bool = True) -> Row:
    """`37 ok, 3 skipped (empty code 2, no tests 1)`, or without the reasons; nothing where no step was skipped."""
    if not progress.steps_skipped:
        return []
    told = sorted(progress.skipped.items(), key=lambda item: -item[1])[: 4 * reasons]
    alone = len(progress.skipped) == 1  # its number has been said
    named = ", ".join(printable(reason[:80]) + ("" if alone else f" {number:,}") for reason, number in told)
    row: Row = [(f"{progress.steps_ok:,} ok, ", "muted"), (f"{progress.steps_skipped:,} skipped", "warning")]
    return [*row, (f" ({named})", "muted")] if named else row


Fact = tuple[str, str, str]  # value, short label before it, long label below it


def speeds(report: Report) -> list[Fact]:
    """Everything that has a place in the head; the most important first."""
    whole, progress, rank = report.throughput, report.progress, shown_rank(report)
    of = f"{rank}: " if rank else ""  # before the number, which would be taken for that of all
    running = report.outcome.state == "running"
    recent = whole.recent if running else Rates()  # of a run that has ended its last half minute is no news
    lately = recent_over(whole)
    value, label = _rate(fmt.pace(recent.steps_per_second), fmt.pace(whole.steps_per_second), "it/s", lately)
    facts: list[Fact] = [(value, f"{lately} " if lately and lately in label else "", label)]
    now_, mean = (fmt.rate(each.tokens_per_second, "tok/s") for each in (recent, whole))
    value, label = _rate(now_, mean, "tok/s", lately)
    facts.append((of + value, "", label))
    if running:
        known = progress.steps_total is not None
        facts.append((_eta(progress), ETA, "remaining (ETA)" if known else "ETA: total unknown"))
    facts.append((fmt.age(progress.elapsed_seconds), "elapsed ", "elapsed"))
    if progress.cost is not None:
        # Of a run that has ended what it has cost is the whole.
        total = fmt.money(progress.cost_total) if running else fmt.UNKNOWN
        facts.append((fmt.money(progress.cost), "cost ", "cost" if total == fmt.UNKNOWN else f"of about {total}"))
    if whole.samples_per_second is not None:
        now_, mean = (fmt.rate(each.samples_per_second, "samples/s") for each in (recent, whole))
        value, label = _rate(now_, mean, "samples/s", lately)
        facts.append((of + value, "", label))
    if whole.mfu is not None:
        value, label = _rate(fmt.share(recent.mfu), fmt.share(whole.mfu), "MFU", lately)
        facts.append((value, "MFU ", f"MFU, {label}"))
    return facts


def _remaining(view: View) -> Row:
    """The time that is left, where the training runs and that is known."""
    known = next((fact for fact in speeds(view.report) if fact[1] == ETA and fact[0] != fmt.UNKNOWN), None)
    return [(ETA, "muted"), (known[0], "text bold")] if known is not None else []


def _within(part: Row, row: Row) -> bool:
    return any(row[at : at + len(part)] == part for at in range(len(row)))


def shown_rank(report: Report) -> str:
    """`rank 0`, where there are others: figures of speed are those of the lowest, and no sum of all."""
    return f"rank {min(each.rank for each in report.ranks)}" if len(report.ranks) > 1 else ""


def _rate(recent: str, whole: str, unit: str, over: str) -> tuple[str, str]:
    """The recent rate, and a label: what it is over, and the one since the first step where that is another figure."""
    if whole == fmt.UNKNOWN and recent == fmt.UNKNOWN:
        return f"{fmt.UNKNOWN} {unit}", "not known"
    if recent in (fmt.UNKNOWN, whole):
        return whole, SINCE
    number, _, its = whole.rpartition(" ")
    mean = number if recent.endswith(f" {its}") and its != "%" else whole
    return recent, f"{over or 'lately'} ({mean}{SINCE_BRIEF}"


def _eta(progress: Progress) -> str:
    """A range in whole seconds: more digits than it has would flicker."""
    low, high = fmt.age(progress.eta_low), fmt.age(progress.eta_high)
    if fmt.UNKNOWN in (low, high):
        one = fmt.age(progress.eta_seconds)
        return one if one == fmt.UNKNOWN else f"about {one}"
    return low if low == high else f"{low} – {high}"


def source(report: Report) -> str:
    """Said wherever the figures were not measured inside the program."""
    if report.run.source != "console":
        return ""
    return "read from a log" if report.run.imported else "read from the console"


def badges(view: View, look: Look, brief: bool = False) -> Row:
    row: Row = []
    told = source(view.report)
    if told:
        row += [(f" {told} ", "warning"), (" ", "text")]
    if view.label:
        row += [(f" {fit(view.label, 40)} ", "background/warning bold"), (" ", "text")]
    if look.cursor is not None:
        way_out = "" if brief else ", Esc ends it"
        row += [(f" CURSOR step {look.cursor:,}{way_out} ", "background/accent bold"), (" ", "text")]
    if look.paused:
        row += [(" PAUSED ", "background/accent bold"), (" ", "text")]
    return row


def _first(view: View, look: Look, width: int, brief: bool) -> tuple[Row, bool]:
    """State, name, and badges; in brief the step, too. And whether there was room for the step."""
    words, tone = ("≡ IMPORTED LOG", "accent") if ended_log(view.report) else state(view.report.outcome)
    name = fit(view.report.run.name or look.title, 40 if width >= 100 else 24 if width >= 70 else 16)
    left: Row = [(f" {words}", f"{tone} bold"), ("  ", "text"), (name, "text bold")]
    if brief:
        progress = view.report.progress
        part = f" ({fmt.share(progress.fraction)})" if progress.fraction is not None else ""
        step: Row = [("  ", "text"), (step_of_total(progress), "text"), (part, "muted")]
        marks = badges(view, look, width < 100)
        room = width - row_width(marks) - 1 - row_width(left) + text_width(name)  # the name gives way before the step
        fits = not marks or room >= min(LEAST_NAME, text_width(name)) + row_width(step)
        left[2] = (fit(name, max(LEAST_NAME, room - row_width(step) if fits else room)), "text bold")
        return spread([*left, *(step if fits else [])], marks, width), fits
    run = view.report.run
    where = [fit(run.host, 24)] if run.host else []
    where += [f"{run.ranks} ranks"] if run.ranks > 1 else []
    return spread(left, [(" · ".join(where) + "  ", "muted"), *badges(view, look)], width), True


def _progress(view: View, width: int) -> Row:
    """`step 214 of 600 ━━━━━╺──── 36 %   211 ok, 3 skipped (...)`."""
    progress = view.report.progress
    left: Row = [(f" {step_of_total(progress)}  ", "text")]
    tail: Row = []
    if progress.fraction is not None:
        tail += [(f"  {fmt.share(progress.fraction)}", "text bold")]
    notes = skipped(progress)
    if notes:
        tail += [("    ", "text"), *notes]
    room = width - row_width(left) - row_width(tail) - 1
    if progress.fraction is None or room < 8:
        return [*left, *tail]
    room = min(room, 72)
    return [*left, *meter(progress.fraction, room), *tail]


def _tiles(view: View, width: int) -> list[Row]:
    """The facts above their labels, of which all but the first leave out the mean where one more has room then."""
    told = [(value, label) for value, _, label in speeds(view.report)]
    brief = [(value, label.partition(" (")[0] if label.endswith(SINCE_BRIEF) else label) for value, label in told]
    if _tiled([*told[:1], *brief[1:3]]) <= width:  # the time left is worth more than any mean
        brief[0] = told[0]
    most = next((number for number in range(len(told), 0, -1) if _tiled(brief[:number]) <= width), 0)
    wordings = [[*told[:whole], *brief[whole:most]] for whole in range(most, -1, -1)]
    shown = next((facts for facts in wordings if _tiled(facts) <= width), [])
    wide = [_tile(fact) for fact in shown]
    return [
        [(" ", "text"), *((column(value, each), "text bold") for (value, _), each in zip(shown, wide, strict=True))],
        [(" ", "text"), *((column(label, each), "muted") for (_, label), each in zip(shown, wide, strict=True))],
    ]


def _tile(fact: tuple[str, str]) -> int:
    return max(map(text_width, fact)) + 4


def _tiled(facts: list[tuple[str, str]]) -> int:
    """Cells of so many tiles."""
    return sum(map(_tile, facts)) - 2


def verdict(view: View, width: int, whole: bool = False) -> Row:
    """The one line that says it.

    Args:
        whole: with the advice in the same line, as far as there is room.
    """
    finding = view.verdict
    tone = SEVERITY.get(finding.severity, "accent")
    most = gain(finding.recoverable)
    right: Row = [(f"{most} faster ", f"{tone} bold")] if most and width >= 50 else []
    left: Row = [("▌", tone), (fit(finding.title, width), f"{tone} bold")]
    room = width - row_width(left) - row_width(right) - 5
    if whole and room >= LEAST_ADVICE and (advice := shortened(printable(finding.advice), room, text_width)):
        left += [("  → ", "accent"), (advice, "text")]
    return spread(left, right, width)


def in_two(view: View, width: int) -> list[Row]:
    """The verdict in two rows: all of it where one is too short, else with what to do about it."""
    finding = view.verdict
    whole: Row = [("▌", ""), (finding.title, "")]
    most = gain(finding.recoverable)
    if row_width(whole) + (text_width(most) + 9 if most else 0) <= width:
        return [verdict(view, width), reason(view, width)]
    tone = SEVERITY.get(finding.severity, "accent")
    right: Row = [(f"{most} faster ", f"{tone} bold")] if most else []
    first, *more = wrap([("▌", tone), (printable(finding.title[:400]), f"{tone} bold")], width - 1, 0, 2)
    second = [("▌", tone), *more[0]] if more else reason(view, width)  # more: else only the gain had no room beside it
    return [first, spread(second or [("▌", tone)], right, width)]


def reason(view: View, width: int) -> Row:
    """What to do about it, and the evidence where both fit: `w` shows all of it."""
    finding = view.verdict
    edge: Row = [("▌", SEVERITY.get(finding.severity, "accent"))]
    evidence = fit("; ".join(finding.evidence[:2]), width)
    advice = shortened(printable(finding.advice), width - 3, text_width) or fit(finding.advice, width)
    if not advice:
        return [*edge, (evidence, "muted")] if evidence else []
    advised: Row = [("→ ", "accent"), (advice, "text")]
    both: Row = [*edge, *advised, ("   ", "text"), (evidence, "muted")]
    return both if evidence and row_width(both) <= width else [*edge, *advised]


def header(view: View, look: Look, width: int, height: int, reasons: bool = True) -> list[Row]:
    if height >= 6:
        rows = [_first(view, look, width, False)[0], _progress(view, width), *_tiles(view, width)]
        rows.append(filling(view, look, [(" ", "text"), *now(view)], width))
        if height >= 8:
            rows += [[], verdict(view, width), reason(view, width)]
        else:
            rows.append(verdict(view, width, whole=True))
        return rows
    first, step_told = _first(view, look, width, True)
    step: Row = [] if step_told else [(step_of_total(view.report.progress), "text")]
    notes = [told] if (told := skipped(view.report.progress, reasons)) else []
    line, doing = _in_brief(view, width, step, notes) if height >= 3 else ([], _in_one(view, width, step, notes))
    doing = filling(view, look, doing, width)
    return {
        1: [first],
        2: [first, doing],
        3: [first, line, doing],
        4: [first, line, doing, verdict(view, width, whole=True)],
    }.get(height, [first, line, doing, *in_two(view, width)])


def _in_one(view: View, width: int, step: Row, notes: list[Row]) -> Row:
    """What it does now, behind the step where that has no place above."""
    doing = now(view)
    if step and row_width(step) + row_width(doing) + 7 <= width:
        doing = [*step, ("  ·  ", "faint"), *doing]
    return _with([(" ", "text"), *doing], notes, width)


def _in_brief(view: View, width: int, step: Row, notes: list[Row]) -> tuple[Row, Row]:
    """The numbers, and what it does now; where it has room, one of them tells what people ask first: the time left."""
    numbers: list[Row] = [[(prefix, "muted"), (value, "text bold")] for value, prefix, _ in speeds(view.report)]
    head, left = [step] if step else [], _remaining(view)
    line, doing = _numbers([*head, *numbers], width), [(" ", "text"), *now(view)]
    if not left or _within(left, line):
        return line, _with(doing, notes, width)
    doing = _with(doing, [left, *notes], width)
    if not _within(left, doing):
        line = _numbers([*head, numbers[0], left, *numbers[1:]], width)
    return line, doing


def _numbers(parts: list[Row], width: int) -> Row:
    return [(" ", "text"), *separated(parts, width - 2)]


def _with(row: Row, parts: list[Row], width: int) -> Row:
    """`row`, and behind it those parts that have room."""
    for part in parts:
        if row_width(row) + row_width(part) + 5 < width:
            row = [*row, ("  ·  ", "faint"), *part]
    return row


class Header(Rows):
    def data(self, view: View, look: Look) -> object:
        report = view.report
        return (
            report.outcome, report.progress, report.throughput, report.run.name, report.run.host, report.run.ranks,
            report.run.source, report.run.imported, view.verdict, view.open, view.label, view.loading,
            view.usual_startup, look.title, look.paused, look.cursor,
        )  # fmt: skip

    def rows(self, view: View, look: Look, width: int, height: int) -> list[Row]:
        return header(view, look, width, height)
