"""The header of every screen: state, progress, speed, time left, current activity and the verdict."""

from __future__ import annotations

from monitor import units
from monitor.diagnosis.explain import gain_text, shorten_advice
from monitor.keymap import RESTORE
from monitor.model import group
from monitor.model.report import Outcome, Progress, Rates, Report
from monitor.model.steps.pace import SINCE, recent_over
from monitor.model.view import OpenWork, View
from monitor.model.wall_time import STOPPED_BY_RULE, STOPPED_BY_YOU, TIME_LIMIT
from monitor.tui.drawing.rows import Row, column, fit, meter, printable, row_width, separated, spread, text_width, wrap
from monitor.tui.drawing.themes import FILL
from monitor.tui.panels.base import Rows, ViewOptions
from trainhooks.protocol.start_waits import IMPORT

LONG_STEP = 2.0  # seconds open before a step gets a bar: its phases are reported once a second


def with_open_step(view: View, options: ViewOptions, row: Row, width: int) -> Row:
    """Return `row` followed by a bar of the open step, phase by phase, as long as a typical step."""
    work = view.open
    if not work.parts or work.step_seconds is None or work.step_seconds < LONG_STEP:
        return row
    totals: dict[str | None, float] = {}
    for name, seconds in work.parts:
        totals[name] = totals.get(name, 0.0) + seconds
    done = [
        f"{fit(name, 24)} {units.age(seconds)}"
        for name, seconds in totals.items()
        if name not in (None, work.phase) and seconds >= 1
    ]
    so_far: Row = [(f"  so far {', '.join(done[:6])}", "muted")] if done else []
    so_long = f" {units.age(work.step_seconds)}" + (f", typical {units.duration(work.typical)}" if work.typical else "")
    slow = work.limit is not None and work.step_seconds > work.limit
    tail: Row = [(so_long + " ", "warning bold" if slow else "muted")]
    room = min(48, width - row_width(row) - row_width(tail) - 4)
    if row_width(so_far) + 20 <= room:
        room -= row_width(so_far)
    else:
        so_far = []
    if room < 12:
        return row
    return spread([*row, *so_far], [*_open_step_bar(view, options, room), *tail], width)


def _open_step_bar(view: View, options: ViewOptions, room: int) -> Row:
    """Return the bar: blocks are reported phases, gaps are time without one, a line is the time to come."""
    work = view.open
    whole = max(work.step_seconds or 0.0, work.typical or 0.0)
    cells: Row = [("▕", "rule")]
    at, filled = 0.0, 0
    for name, seconds in work.parts:
        at += seconds
        end = min(room, round(at / whole * room))
        sign, tone = (" ", "text") if name is None else ("█", options.phases[name] + FILL)
        cells.append((sign * (end - filled), tone))
        filled = max(filled, end)
    return [*cells, ("─" * (room - filled), "rule"), ("▏", "rule")]


MIN_NAME_WIDTH = 6  # cells
ETA = "ETA "
SINCE_FIRST_STEP = " since 1st step)"  # the end of a label that may be left out of its tile
MIN_ADVICE_WIDTH = 24  # cells; shorter advice is not understood
PULSE_SECONDS = 1.0  # seconds between two pulses
SILENT_AFTER = 10.0  # seconds; a busy machine may miss a few pulses

_STATES = {
    "running": ("● RUNNING", "good"),
    "finished": ("✔ FINISHED", "good"),
    "failed": ("✖ FAILED", "bad"),
    "killed": ("✖ KILLED", "bad"),
    "lost": ("? LOST", "warning"),
}
_NO_ACTIVITY = "current activity unknown (console output only)"
_STOPS = (STOPPED_BY_YOU, TIME_LIMIT)
_EXIT_UNKNOWN = "exited; exit code unknown"
SEVERITY = {"info": "accent", "warning": "warning", "critical": "bad"}


def state(outcome: Outcome) -> tuple[str, str]:
    """Return the outcome in two or three words, and its tone."""
    words, tone = _STATES.get(outcome.state, (f"? {fit(outcome.state, 20).upper()}", "warning"))
    if outcome.error == STOPPED_BY_YOU:
        return "■ STOPPED by you", "warning"
    if (outcome.error or "").startswith(STOPPED_BY_RULE):
        return "■ STOPPED by --stop-on", "warning"
    if outcome.error == TIME_LIMIT:
        return "■ STOPPED by a time limit", "warning"
    if outcome.state == "killed":
        words += f" by {units.signal_name(outcome.signal)}"
    elif outcome.state == "failed":
        words += f", exit {outcome.exit_code}" if outcome.exit_code is not None else ""
    elif outcome.state == "finished" and outcome.exit_code is None:
        return "? FINISHED, exit code unknown", "warning"  # it may have failed
    return words, tone


def ended_log(report: Report) -> bool:
    """Return whether this is an imported log, which does not say how its program ended."""
    return report.run.imported and report.outcome.state == "lost"


def now(view: View) -> Row:
    """Return what the training is doing now; after its end, the outcome."""
    outcome, work = view.report.outcome, view.open
    if view.loading is not None:
        return [(f"loading history {units.share(view.loading)}", "accent")]
    if ended_log(view.report):
        return [("end of log; outcome unknown", "muted")]
    if outcome.state != "running":
        # An exception without a message ends in a colon.
        message = printable((outcome.error or "")[:400]).rstrip(": ") if outcome.error not in _STOPS else ""
        error = [(": ", "muted"), (message, "text")] if message else []
        return [(_ending(outcome), state(outcome)[1]), *error]
    row: Row = []
    again: Row = [(f"no step since the restart ({units.age(work.restarting)})", "warning"), (" › ", "faint")]
    role = "".join(f" {printable(part[:60])}" for part in (work.role, work.stage) if part)
    if work.step is not None and work.step_seconds is None:
        after = _after(work.step, view.report)
        row = [(after, "muted")] if after else []
    elif work.step is not None:
        row = [(f"step {work.step:,}{role}: ", "muted")]
        if work.phase is not None:
            # A pulse says where Python is, nothing of the GPU's queue.
            row += [("host in ", "muted")] if view.report.device is not None else []
            row += [(printable(work.phase[:80]), "text bold"), (_for(work.phase_seconds), "text")]
        else:
            row += [(f"open{_for(work.step_seconds)}", "text")]
    elif work.spans:
        row = [] if view.report.progress.steps_done else [("starting: ", "muted")]
        for index, (name, seconds) in enumerate(work.spans[:3]):
            row += [(" › ", "faint")] if index else []
            row += [(printable(name[:80]), "text bold"), (f" for {units.age(seconds)}", "text")]
    elif work.restarting is not None:
        again.pop()
    elif view.report.progress.steps_done == 0:
        row = [("waiting for the first step" if work.start is None else "starting: ", "muted")]
    else:
        row = [(_NO_ACTIVITY if view.report.run.source == "console" else "between steps", "muted")]
    row += _start(work, is_first=not work.spans and work.step is None)
    if view.typical_startup is not None and not view.report.progress.steps_done:
        row.append((f"; typical time to first step {units.age(view.typical_startup)}", "muted"))
    if work.restarting is not None:
        row = [*again, *row]
    if work.silent_for is not None and work.silent_for >= SILENT_AFTER:
        silence = f"no heartbeat for {units.age(work.silent_for)}"
        ended = work.step is not None and work.step_seconds is None
        last: Row = [(f"after step {work.step:,}", "muted")] if ended else [("in ", "muted"), *row]
        row = [(silence, "warning bold"), ("  ·  ", "faint"), ("last seen ", "muted"), *last]
    return row


def _start(work: OpenWork, is_first: bool) -> Row:
    """Return what a run without a step waits for; nothing where that is an import that is shown already."""
    start = work.start
    if start is None or (start.what == IMPORT and not is_first):
        return []
    where: Row = [(f", {printable(start.place)}", "muted")] if start.place else []
    return [
        *([] if is_first else [(" › ", "faint")]),
        (printable(start.text), "text bold"),
        (_for(start.seconds), "text"),
        *where,
    ]


def _after(step: int, report: Report) -> str:
    """Return the words for the time after a step while nothing later is known; none where the line above says it."""
    is_quick = (report.throughput.recent.steps_per_second or 0.0) > 1 / PULSE_SECONDS
    is_shown_above = report.progress.steps_done - step in (0, 1)  # steps are counted from 0 or from 1
    return "" if is_quick or is_shown_above else f"step {step:,} ended"


def _for(seconds: float | None) -> str:
    """Return ` for 12 s`; empty below one second or if unknown."""
    return f" for {units.age(seconds)}" if seconds is not None and seconds >= 1 else ""


def _ending(outcome: Outcome) -> str:
    if outcome.error in _STOPS:
        return outcome.error
    return {
        "finished": "training finished" if outcome.exit_code is not None else _EXIT_UNKNOWN,
        "failed": "training failed",
        "killed": f"killed by {units.signal_name(outcome.signal)}",
        "lost": "process gone; outcome unknown",
    }.get(outcome.state, "training ended")


def step_of_total(progress: Progress) -> str:
    if progress.steps_total is None:
        return f"step {progress.steps_done:,}"
    return f"step {progress.steps_done:,} of {progress.steps_total:,}"


def skipped(progress: Progress, reasons: bool = True) -> Row:
    """Return `37 ok, 3 skipped (empty code 2, no tests 1)`; empty if no step was skipped."""
    if not progress.steps_skipped:
        return []
    ranked = sorted(progress.skipped.items(), key=lambda item: -item[1])[: 4 * reasons]
    alone = len(progress.skipped) == 1  # its number is the total
    named = ", ".join(printable(reason[:80]) + ("" if alone else f" {number:,}") for reason, number in ranked)
    row: Row = [(f"{progress.steps_ok:,} ok, ", "muted"), (f"{progress.steps_skipped:,} skipped", "warning")]
    return [*row, (f" ({named})", "muted")] if named else row


Fact = tuple[str, str, str]  # value, short label before it, long label below it


def speeds(report: Report) -> list[Fact]:
    """Return the facts for the header, the most important first."""
    whole, progress, rank = report.throughput, report.progress, shown_rank(report)
    of = f"{rank}: " if rank else ""  # so that it is not read as the sum of all ranks
    running = report.outcome.state == "running"
    recent = whole.recent if running else Rates()  # after the end only the whole run counts
    lately = recent_over(whole)
    value, label = _rate(units.pace(recent.steps_per_second), units.pace(whole.steps_per_second), "it/s", lately)
    facts: list[Fact] = [(value, f"{lately} " if lately and lately in label else "", label)]
    current, mean = (units.rate(rates.tokens_per_second, "tok/s") for rates in (recent, whole))
    value, label = _rate(current, mean, "tok/s", lately)
    facts.append((of + value, "", label))
    if running:
        known = progress.steps_total is not None
        facts.append((_eta(progress), ETA, "remaining (ETA)" if known else "ETA (total unknown)"))
    facts.append((units.age(progress.elapsed_seconds), "elapsed ", "elapsed"))
    if progress.cost is not None:
        # After the end the cost so far is the total.
        total = units.money(progress.cost_total) if running else units.UNKNOWN
        facts.append((units.money(progress.cost), "cost ", "cost" if total == units.UNKNOWN else f"of about {total}"))
    if whole.samples_per_second is not None:
        current, mean = (units.rate(rates.samples_per_second, "samples/s") for rates in (recent, whole))
        value, label = _rate(current, mean, "samples/s", lately)
        facts.append((of + value, "", label))
    for collected, unit in (
        (whole.collected.env_steps_per_second, "env steps/s"),
        (whole.collected.completions_per_second, "completions/s"),
    ):
        if collected is not None:
            facts.append((units.rate(collected, unit), "", SINCE))
    if whole.mfu is not None:
        value, label = _rate(units.share(recent.mfu), units.share(whole.mfu), "MFU", lately)
        facts.append((value, "MFU ", f"MFU, {label}"))
    return facts


def _remaining(view: View) -> Row:
    """Return the time left; empty if the run has ended or it is unknown."""
    known = next((fact for fact in speeds(view.report) if fact[1] == ETA and fact[0] != units.UNKNOWN), None)
    return [(ETA, "muted"), (known[0], "text bold")] if known is not None else []


def _within(part: Row, row: Row) -> bool:
    """Return whether `row` contains `part`."""
    return any(row[at : at + len(part)] == part for at in range(len(row)))


def shown_rank(report: Report) -> str:
    """Return `rank 0` if there are several: speeds are those of the lowest rank, not sums. Empty for a single rank."""
    shown = min((row.rank for row in report.ranks), default=0) if report.run.rank is None else report.run.rank
    return f"rank {shown}" if len(report.ranks) > 1 else ""


def _rate(recent: str, whole: str, unit: str, over: str) -> tuple[str, str]:
    """Return the recent rate and its label: the period, and the rate since the first step if it differs."""
    if whole == units.UNKNOWN and recent == units.UNKNOWN:
        return f"{units.UNKNOWN} {unit}", "unknown"
    if recent in (units.UNKNOWN, whole):
        return whole, SINCE
    number, _, its = whole.rpartition(" ")
    mean = number if recent.endswith(f" {its}") and its != "%" else whole
    return recent, f"{over or 'lately'} ({mean}{SINCE_FIRST_STEP}"


def _eta(progress: Progress) -> str:
    """Return the time left as a range in whole seconds: more digits would only flicker."""
    low, high = units.age(progress.eta_low), units.age(progress.eta_high)
    if units.UNKNOWN in (low, high):
        one = units.age(progress.eta_seconds)
        return one if one == units.UNKNOWN else f"about {one}"
    return low if low == high else f"{low} – {high}"


def source(report: Report) -> str:
    """Return where the figures come from; empty if they were measured inside the program."""
    if report.run.source != "console":
        return ""
    return "read from a log" if report.run.imported else "read from the console"


def badges(view: View, options: ViewOptions, brief: bool = False) -> Row:
    row: Row = []
    origin = source(view.report)
    if origin:
        row += [(f" {origin} ", "warning"), (" ", "text")]
    if view.label:
        row += [(f" {fit(view.label, 40)} ", "background/warning bold"), (" ", "text")]
    if options.cursor is not None:
        way_out = "" if brief else f", {RESTORE.shown} to leave"
        row += [(f" CURSOR step {options.cursor:,}{way_out} ", "background/accent bold"), (" ", "text")]
    if options.mouse_given:
        way_out = "" if brief else f", {options.key('mouse')} to leave"
        row += [(f" MOUSE SELECTS TEXT{way_out} ", "background/accent bold"), (" ", "text")]
    if (rank := view.report.run.rank) is not None:
        way_out = "" if brief else f" · {RESTORE.shown} for all"
        row += [(f" RANK {rank}{way_out} ", "background/accent bold"), (" ", "text")]
    if options.paused:
        row += [(" PAUSED ", "background/accent bold"), (" ", "text")]
    return row


def _first(view: View, options: ViewOptions, width: int, brief: bool) -> tuple[Row, bool]:
    """Return the first row (state, name, badges; with `brief` also the step), and whether the step had room."""
    words, tone = ("≡ IMPORTED LOG", "accent") if ended_log(view.report) else state(view.report.outcome)
    name = fit(view.report.run.name or options.title, 40 if width >= 100 else 24 if width >= 70 else 16)
    left: Row = [(f" {words}", f"{tone} bold"), ("  ", "text"), (name, "text bold")]
    if brief:
        progress = view.report.progress
        part = f" ({units.share(progress.fraction)})" if progress.fraction is not None else ""
        step: Row = [("  ", "text"), (step_of_total(progress), "text"), (part, "muted")]
        marks = badges(view, options, width < 100)
        room = width - row_width(marks) - 1 - row_width(left) + text_width(name)  # the name gives way before the step
        fits = not marks or room >= min(MIN_NAME_WIDTH, text_width(name)) + row_width(step)
        left[2] = (fit(name, max(MIN_NAME_WIDTH, room - row_width(step) if fits else room)), "text bold")
        return spread([*left, *(step if fits else [])], marks, width), fits
    run = view.report.run
    several = view.report.group
    where = [group.place(several)] if several is not None else []
    where += [fit(run.host, 24)] if run.host else []
    where += [f"{run.ranks} ranks"] if run.ranks > 1 else []
    return spread(left, [(" · ".join(where) + "  ", "muted"), *badges(view, options)], width), True


def _progress(view: View, width: int) -> Row:
    """Return `step 214 of 600 ━━━━━╺──── 36%   211 ok, 3 skipped (...)`."""
    progress = view.report.progress
    left: Row = [(f" {step_of_total(progress)}  ", "text")]
    tail: Row = []
    if progress.fraction is not None:
        tail += [(f"  {units.share(progress.fraction)}", "text bold")]
    if (place := progress.place()) and view.report.outcome.state == "running":
        tail += [("    ", "text"), (place, "text")]
    notes = skipped(progress)
    if notes:
        tail += [("    ", "text"), *notes]
    room = width - row_width(left) - row_width(tail) - 1
    if progress.fraction is None or room < 8:
        return [*left, *tail]
    room = min(room, 72)
    return [*left, *meter(progress.fraction, room), *tail]


def _tiles(view: View, width: int) -> list[Row]:
    """Return the facts above their labels; labels after the first drop the mean if that makes room for one more."""
    full = [(value, label) for value, _, label in speeds(view.report)]
    brief = [(value, label.partition(" (")[0] if label.endswith(SINCE_FIRST_STEP) else label) for value, label in full]
    if _tiled([*full[:1], *brief[1:3]]) <= width:  # the time left matters more than any mean
        brief[0] = full[0]
    most = next((number for number in range(len(full), 0, -1) if _tiled(brief[:number]) <= width), 0)
    wordings = [[*full[:whole], *brief[whole:most]] for whole in range(most, -1, -1)]
    shown = next((facts for facts in wordings if _tiled(facts) <= width), [])
    wide = [_tile(fact) for fact in shown]
    return [
        [(" ", "text"), *((column(value, cells), "text bold") for (value, _), cells in zip(shown, wide, strict=True))],
        [(" ", "text"), *((column(label, cells), "muted") for (_, label), cells in zip(shown, wide, strict=True))],
    ]


def _tile(fact: tuple[str, str]) -> int:
    return max(map(text_width, fact)) + 4


def _tiled(facts: list[tuple[str, str]]) -> int:
    """Return the cells that these tiles need."""
    return sum(map(_tile, facts)) - 2


def verdict(view: View, width: int, whole: bool = False) -> Row:
    """Return the verdict in one row.

    Args:
        whole: add the advice to the row, as far as there is room.
    """
    finding = view.verdict
    tone = SEVERITY.get(finding.severity, "accent")
    most = gain_text(finding.gain)
    right: Row = [(f"{most} faster ", f"{tone} bold")] if most and width >= 50 else []
    left: Row = [("▌", tone), (fit(finding.title, width), f"{tone} bold")]
    room = width - row_width(left) - row_width(right) - 5
    if whole and room >= MIN_ADVICE_WIDTH and (advice := shorten_advice(to_do(view), room, text_width)):
        left += [("  → ", "accent"), (advice, "text")]
    return spread(left, right, width)


def to_do(view: View) -> str:
    """Return what to do first: the finding's advice, else the first thing to try; empty where nothing is known."""
    tries = (each.text for each in view.report.to_try)
    return printable(view.verdict.advice or next(tries, ""))


def in_two(view: View, width: int) -> list[Row]:
    """Return the verdict in two rows: all of its title if one row is too short, else title and advice."""
    finding = view.verdict
    whole: Row = [("▌", ""), (finding.title, "")]
    most = gain_text(finding.gain)
    if row_width(whole) + (text_width(most) + 9 if most else 0) <= width:
        return [verdict(view, width), reason(view, width)]
    tone = SEVERITY.get(finding.severity, "accent")
    right: Row = [(f"{most} faster ", f"{tone} bold")] if most else []
    first, *more = wrap([("▌", tone), (printable(finding.title[:400]), f"{tone} bold")], width - 1, 0, 2)
    second = [("▌", tone), *more[0]] if more else reason(view, width)  # without `more` only the gain had no room
    return [first, spread(second or [("▌", tone)], right, width)]


def reason(view: View, width: int) -> Row:
    """Return the advice, with the evidence if both fit; the findings screen shows all of it."""
    finding = view.verdict
    edge: Row = [("▌", SEVERITY.get(finding.severity, "accent"))]
    evidence = fit("; ".join(finding.evidence[:2]), width)
    advice = shorten_advice(to_do(view), width - 3, text_width) or fit(to_do(view), width)
    if not advice:
        return [*edge, (evidence, "muted")] if evidence else []
    advised: Row = [("→ ", "accent"), (advice, "text")]
    both: Row = [*edge, *advised, ("   ", "text"), (evidence, "muted")]
    return both if evidence and row_width(both) <= width else [*edge, *advised]


def header(view: View, options: ViewOptions, width: int, height: int, reasons: bool = True) -> list[Row]:
    if height >= 6:
        rows = [_first(view, options, width, False)[0], _progress(view, width), *_tiles(view, width)]
        rows.append(with_open_step(view, options, [(" ", "text"), *now(view)], width))
        if height >= 8:
            rows += [[], verdict(view, width), reason(view, width)]
        else:
            rows.append(verdict(view, width, whole=True))
        return rows
    first, has_step = _first(view, options, width, True)
    step: Row = [] if has_step else [(step_of_total(view.report.progress), "text")]
    notes = [note] if (note := skipped(view.report.progress, reasons)) else []
    line, doing = _in_brief(view, width, step, notes) if height >= 3 else ([], _in_one(view, width, step, notes))
    doing = with_open_step(view, options, doing, width)
    return {
        1: [first],
        2: [first, doing],
        3: [first, line, doing],
        4: [first, line, doing, verdict(view, width, whole=True)],
    }.get(height, [first, line, doing, *in_two(view, width)])


def _in_one(view: View, width: int, step: Row, notes: list[Row]) -> Row:
    """Return the current activity in one row, after the step if that is not shown above."""
    doing = now(view)
    if step and row_width(step) + row_width(doing) + 7 <= width:
        doing = [*step, *([("  ·  ", "faint")] if doing else []), *doing]
    return _with([(" ", "text"), *doing], notes, width)


def _in_brief(view: View, width: int, step: Row, notes: list[Row]) -> tuple[Row, Row]:
    """Return the row of numbers and that of the current activity; one of them has the time left, if there is room."""
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
    """Return `row` followed by those parts that have room."""
    for part in parts:
        if row_width(row) + row_width(part) + 5 < width:
            row = [*row, *([("  ·  ", "faint")] if row_width(row) > 1 else []), *part]  # after more than its margin
    return row


class Header(Rows):
    def data(self, view: View, options: ViewOptions) -> object:
        report = view.report
        return (
            report.outcome, report.progress, report.throughput, report.run.name, report.run.host, report.run.ranks,
            report.run.source, report.run.imported, view.verdict, view.open, view.label, view.loading,
            view.typical_startup, options.title, options.paused, options.cursor, options.mouse_given,
        )  # fmt: skip

    def rows(self, view: View, options: ViewOptions, width: int, height: int) -> list[Row]:
        return header(view, options, width, height)

    def hit(self, view: View, options: ViewOptions, x: int, y: int) -> str:
        """Return the action that opens the page of the verdict, whose rows begin with a bar."""
        rows = self.rows(view, options, *self.size)
        return f"open('findings', {view.verdict.code!r})" if rows[y:] and rows[y][:1] and rows[y][0][0] == "▌" else ""
