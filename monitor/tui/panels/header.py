"""The header of every screen: state, progress, speed, time left, current activity and the verdict."""

from __future__ import annotations

from monitor import units
from monitor.keymap import RESTORE
from monitor.model import group
from monitor.model.report import Outcome, Progress, Rates, Report
from monitor.model.steps.pace import SINCE, recent_over
from monitor.model.view import OpenWork, View
from monitor.model.wall_time import STOPPED_BY_RULE, STOPPED_BY_YOU, TIME_LIMIT
from monitor.tui.drawing.answer_rows import WIDE, answered
from monitor.tui.drawing.rows import Row, column, fit, meter, printable, row_width, separated, spread, text_width
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
ETA, ELAPSED, COST = "ETA ", "elapsed ", "cost"
MEAN = ", mean "  # the part of a label that may be left out of its tile: the rate since the first step
MAX_ANSWER = 4  # rows
MAX_TOLD_SIGNALS = 2  # metrics
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
    is_shown_above = report.progress.steps_done - step in (0, 1)  # steps are counted from 0 or from 1
    return "" if _is_quick(report) or is_shown_above else f"step {step:,} ended"


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
    whole, progress = report.throughput, report.progress
    running = report.outcome.state == "running"
    recent = whole.recent if running else Rates()  # after the end only the whole run counts
    lately = recent_over(whole)
    value, label = _rate(units.pace(recent.steps_per_second), units.pace(whole.steps_per_second), "it/s", lately)
    facts: list[Fact] = [(value, f"{lately} " if lately and lately in label else "", label)]
    facts.append(_counted(report, recent, "tokens_per_second", "tok/s", lately))
    if running:
        known = progress.steps_total is not None
        facts.append((_eta(progress), ETA, "remaining (ETA)" if known else "ETA (total unknown)"))
    facts.append((units.age(progress.elapsed_seconds), ELAPSED, "elapsed"))
    if progress.cost is not None:
        # After the end the cost so far is the total.
        total = units.money(progress.cost_total) if running else units.UNKNOWN
        label = COST if total == units.UNKNOWN else f"of about {total}"
        facts.append((units.money(progress.cost), f"{COST} ", label))
    if whole.samples_per_second is not None:
        facts.append(_counted(report, recent, "samples_per_second", "samples/s", lately))
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


def _counted(report: Report, recent: Rates, name: str, unit: str, lately: str) -> Fact:
    """Return a rate of all ranks together where it is known that they add up, else of the one shown."""
    whole, job = report.throughput, report.throughput.job
    mean, now, total = getattr(whole, name), getattr(recent, name), getattr(job, name, None)
    of = f"{rank}: " if (rank := shown_rank(report)) else ""  # so that it is not read as the sum of all ranks
    if mean and total:
        # Ranks that add up take their steps together: what they do lately is in the same ratio.
        of, mean, now = f"{len(report.ranks)} ranks: ", total, None if now is None else now * total / mean
    value, label = _rate(units.rate(now, unit), units.rate(mean, unit), unit, lately)
    return of + value, "", label


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
    """Return the recent rate and its label: the period, and the mean since the first step if it differs."""
    if whole == units.UNKNOWN and recent == units.UNKNOWN:
        return f"{units.UNKNOWN} {unit}", "unknown"
    if recent in (units.UNKNOWN, whole):
        return whole, SINCE
    number, _, its = whole.rpartition(" ")
    mean = number if recent.endswith(f" {its}") and its != "%" else whole
    return recent, f"{over or 'lately'}{MEAN}{mean}"


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
    # What all tiles have in common is said once.
    full[1:] = [(value, "mean" if label == SINCE else label) for value, label in full[1:]]
    brief = [(value, label.partition(MEAN)[0]) for value, label in full]
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


def standing(view: View) -> list[Row]:
    """Return better or worse than the last run, what the training learns by, and how busy and hot its GPUs are."""
    rows: list[Row] = []
    before = view.previous_run
    if view.against and before is not None and before.standing is not None:
        tone = "good" if before.standing.high < 1.0 else "warning" if before.standing.low > 1.0 else "text"
        words, than, when = view.against.partition(" than " if " than " in view.against else " as the ")
        rows.append([(words, f"{tone} bold"), (than + when, "muted")])
    learnt: list[Row] = []
    for signal in view.signals[:MAX_TOLD_SIGNALS]:
        value, comma, trend = printable(str(signal)).partition(",")
        learnt.append([(value, "text"), (comma + trend, "muted")])
    machine = _machine(view.report)
    return [*rows, *learnt[:1], *([[(machine, "text")]] if machine else []), *learnt[1:]]


def _machine(report: Report) -> str:
    """Return `8 GPUs 90% to 97% busy, 71 °C`, the hottest one's; without GPUs the cores that the training uses."""
    gpus = [gpu for gpu in report.gpus if gpu.ours is not False]
    if not gpus:
        cores, used = report.host.cores, report.host.tree_cpu
        return f"CPU {used / 100:.1f} of {cores} cores" if used is not None and cores else ""
    busy = sorted(gpu.utilization for gpu in gpus if gpu.utilization is not None)
    heat = [gpu.temperature for gpu in gpus if gpu.temperature is not None]
    facts = []
    if busy:
        low, high = units.percent(busy[0]), units.percent(busy[-1])
        facts.append(f"{low if low == high else f'{low} to {high}'} busy")
    facts += [f"{max(heat):.0f} °C"] if heat else []
    return f"{units.plural(len(gpus), 'GPU', 'GPUs').removeprefix('1 ')} {', '.join(facts)}" if facts else ""


def header(view: View, options: ViewOptions, width: int, height: int, reasons: bool = True) -> list[Row]:
    """Return the state, the numbers, how it goes and what it does now; from four rows on the verdict with its fix."""
    notes = [note] if height < 7 and (note := skipped(view.report.progress, reasons)) else []
    first, has_step = _first(view, options, width, height < 7)
    step: Row = [] if has_step else [(step_of_total(view.report.progress), "text")]
    if height < 4:
        line, doing = _in_brief(view, width, step, notes) if height > 2 else ([], _in_one(view, width, step, notes))
        doing = with_open_step(view, options, doing, width)
        return [first, line, doing] if height == 3 else [first, doing][:height]
    facts, told = [first], standing(view) if height > 4 else []
    if height >= 7:
        facts.append(_progress(view, width))
    if height >= 8 and view.report.progress.steps_done:
        facts += _tiles(view, width)
    elif height > 4 or not _is_news(view):
        numbers, rest = _known_numbers(view, width, step)
        facts += [numbers] if row_width(numbers) > 1 else []
        told += rest
    doing = [] if height == 4 and len(facts) > 1 else _doing(view)
    if told and height > 5:
        facts.append(_numbers(told, width))
        told = []
    doing = _with([(" ", "text"), *doing], [*told, *notes] if height > 4 else [], width)
    if row_width(doing) > 1:
        facts.append(with_open_step(view, options, doing, width))
    return [*facts, *answered(view, width, min(MAX_ANSWER, height - len(facts)))]


def _known_numbers(view: View, width: int, step: Row) -> tuple[Row, list[Row]]:
    """Return the known facts that fit into one row, the time left among them, and those that do not fit."""
    facts = [fact for fact in speeds(view.report) if not fact[0].startswith(units.UNKNOWN)]
    if width < WIDE and facts:  # the number itself needs the room
        facts[0] = (facts[0][0], "", facts[0][2])
    facts.sort(key=lambda fact: fact[1] == ELAPSED)  # what has passed is the least news
    numbers = [*([step] if step else []), *map(_number, facts)]
    line, left = _numbers(numbers, width), _remaining(view)
    if left and not _within(left, line):
        line = _numbers([numbers[0], left, *numbers[1:]], width)
    return line, [number for number in numbers if not _within(number, line)]


def _doing(view: View) -> Row:
    """Return what the run does now, as long as it lasts: else the rows below would move up and down with each step."""
    report, work = view.report, view.open
    if view.loading is None and report.outcome.state == "finished" and report.outcome.exit_code == 0:
        return []  # its state says it
    if report.outcome.state != "running" or _is_news(view):
        return now(view)
    if not work.spans and _is_quick(report) and (work.step_seconds or 0.0) < LONG_STEP:
        return []
    if work.step is None and not work.spans and report.run.source == "console":
        return []  # it is never known
    return now(view) or [("between steps", "muted")]


def _is_quick(report: Report) -> bool:
    """Return whether steps take less time than passes between two pulses."""
    return (report.throughput.recent.steps_per_second or 0.0) > 1 / PULSE_SECONDS


def _is_news(view: View) -> bool:
    """Return whether what the run does now matters more than its numbers: it is no step of many."""
    work, outcome = view.open, view.report.outcome
    silent = work.silent_for is not None and work.silent_for >= SILENT_AFTER
    odd = silent or view.loading is not None or work.restarting is not None
    return odd or outcome.state == "lost" or bool(outcome.error) or not view.report.progress.steps_done


def _in_one(view: View, width: int, step: Row, notes: list[Row]) -> Row:
    """Return the current activity in one row, after the step if that is not shown above."""
    doing = now(view)
    if step and row_width(step) + row_width(doing) + 7 <= width:
        doing = [*step, *([("  ·  ", "faint")] if doing else []), *doing]
    return _with([(" ", "text"), *doing], notes, width)


def _in_brief(view: View, width: int, step: Row, notes: list[Row]) -> tuple[Row, Row]:
    """Return the row of numbers and that of the current activity; one of them has the time left, if there is room."""
    numbers = [_number(fact) for fact in speeds(view.report)]
    head, left = [step] if step else [], _remaining(view)
    line, doing = _numbers([*head, *numbers], width), [(" ", "text"), *now(view)]
    if not left or _within(left, line):
        return line, _with(doing, notes, width)
    doing = _with(doing, [left, *notes], width)
    if not _within(left, doing):
        line = _numbers([*head, numbers[0], left, *numbers[1:]], width)
    return line, doing


def _number(fact: Fact) -> Row:
    value, prefix, label = fact
    if prefix.startswith(COST) and label != COST:  # `$2.75 of ~$7.57`
        return [(value, "text bold"), (f" {label.replace('about ', '~')}", "muted")]
    return [(prefix, "muted"), (value, "text bold")]


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
            report.to_try, view.previous_run, view.signals, _machine(report), view.typical_startup,
            options.title, options.paused, options.cursor, options.mouse_given,
        )  # fmt: skip

    def rows(self, view: View, options: ViewOptions, width: int, height: int) -> list[Row]:
        return header(view, options, width, height)

    def hit(self, view: View, options: ViewOptions, x: int, y: int) -> str:
        """Return the action that opens the page of the verdict, whose rows begin with a bar."""
        rows = self.rows(view, options, *self.size)
        return f"open('findings', {view.verdict.code!r})" if rows[y:] and rows[y][:1] and rows[y][0][0] == "▌" else ""
