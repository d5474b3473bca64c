"""The phases panel: a bar per phase and the account of the wall time; before the first step the start-up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from monitor import units
from monitor.model.cycle import PART_PHASES, phase_part, steps_text
from monitor.model.device import account_table
from monitor.model.device.device_report import Device
from monitor.model.report import RankRow, Report, Straggler, Wall, usual_shares
from monitor.model.view import View
from monitor.palettes import BETWEEN, STARTUP, STEPS, TEARDOWN
from monitor.tui.drawing.clock_lanes import GPU_CLOCK, clock, shown_phases, with_clock
from monitor.tui.drawing.rows import Row, column, cut, fit, flow, row_width, text_width, wrap
from monitor.tui.drawing.themes import FILL
from monitor.tui.drawing.timeline import MIN_VISIBLE_SHARE
from monitor.tui.panels.base import ScrollPanel, ViewOptions, on_board
from monitor.tui.panels.ranks_panel import of_rank, usual

_TITLE = " GPU time in steps"
_NUMBER = 11
_STATE = 6
_MIN_ACCOUNT_NAME, _MAX_ACCOUNT_NAME = 16, 48
_TONES = {"busy": "text", "copy": "text", "idle": "muted"}


def account_rows(device: Device, width: int) -> list[Row]:
    """Return the account of GPU time in steps: title, table, notes; empty if no steps were timed or it does not fit."""
    head, *parts = account_table.table_rows(device) or [[]]
    if not parts:
        return []
    longest = max(text_width(_TITLE) - 2, *(text_width(part[0]) for part in parts))
    names = min(_MAX_ACCOUNT_NAME, longest, width - _STATE - 2 * _NUMBER - 6)
    if names < _MIN_ACCOUNT_NAME:
        return []
    labels = f"{column(_TITLE, names + 3)}  {column(head[1], _STATE)}"
    numbers = "".join(column(title, _NUMBER, right=True) for title in head[2:])
    rows: list[Row] = [[], [(labels, "text bold"), (numbers, "muted")]]
    for name, state, *cells in parts:
        tone = _TONES.get(state, "text")
        figures = "".join(column(cell, _NUMBER, right=True) for cell in cells)
        rows.append([(f"   {column(fit(name, names), names)}  {column(state, _STATE)}", tone), (figures, "text")])
    for line in [*account_table.table_notes(device), *account_table.outside_lines(device)]:
        rows += wrap([(f"   {line}", "muted")], width - 1, 3)
    return [cut(row, width) for row in rows]


_MIN_PHASE_BAR = 5
_MIN_NAME = 6  # cells of a name before other words
_LEAST_CELLS = (6, 5, 6)  # cells of `1.23 s` and `<0.1%`, so that the bars rarely change their length
MIN_FREE_WIDTH = 30  # cells of a panel from which on the right end is left free
MIN_BETWEEN_SHARE = 0.01  # share of the time in steps: less time between steps is not shown in the GPU's lane
_ROUNDING_SECONDS = 1e-9  # seconds: rounding error of sums of thousands of times
MIN_ONCE_SHARE = 0.1  # of a phase's time in one-offs from which its share and its mean seem to disagree
_END = 2  # cells left free at the right, so that the labels of the title are above their columns


@dataclass(frozen=True)
class Line:
    """A row of the table: the bar is `length` of the longest; the cells are mean, share and p95."""

    name: str
    tone: str
    length: float
    cells: tuple[str, str, str]
    seldom: tuple[int, int] | None = None  # steps in which it occurs, and all steps; the mean is over the former
    once: float = 0.0  # seconds of one-offs, as a first step, which neither its share nor its mean has


def lines(report: Report, options: ViewOptions) -> list[Line]:
    """Return the phases in the order of the step, and the time between steps, which has no share of a step."""
    ordered = shown_phases(report, options.host)
    steps = report.progress.steps_done
    shares = usual_shares(ordered)
    largest = max(shares.values(), default=1.0) or 1.0
    table = [
        Line(
            phase.name, options.phases[phase.name], shares[phase.name] / largest,
            (units.duration(phase.usual_mean), units.share(shares[phase.name]), units.duration(phase.p95)),
            (phase.count, steps) if phase.is_seldom(steps) else None,
            phase.once if phase.once > MIN_ONCE_SHARE * phase.mean * phase.count else 0.0,
        )
        for phase in ordered
    ]  # fmt: skip
    wall = report.wall
    if steps and wall.steps > 0:
        between = wall.between_steps if wall.between_steps > _ROUNDING_SECONDS else 0.0
        beside = between / wall.steps
        device = clock(report, options.host) == GPU_CLOCK
        if device and beside < MIN_BETWEEN_SHARE:
            return table
        cells = (units.duration(between / steps), "", units.UNKNOWN)
        name = f"{BETWEEN} (host)" if device else BETWEEN  # no CUDA event measures it
        table.append(Line(name, "between", min(1.0, beside / largest), cells))
    return table


def _widths(table: list[Line]) -> list[int]:
    return [max(least, *(len(line.cells[index]) for line in table)) + 1 for index, least in enumerate(_LEAST_CELLS)]


def labels(table: list[Line]) -> Row:
    """Return `mean  share  p95`, as wide as the columns below."""
    cells = zip(("mean", "share", "p95"), _widths(table), strict=True)
    return [("".join(column(name, wide, right=True) for name, wide in cells), "muted")]


def _name_width(names: list[str], width: int) -> int:
    longest = max((text_width(name[:60]) for name in names), default=8)
    return max(8, min(longest, 24, max(12, width // 3)))


def _room(widths: list[int], shown: tuple[int, ...], width: int) -> int:
    """Return the cells that the numbers leave for name and bar."""
    return width - 1 - sum(widths[index] for index in shown) - (_END if width >= MIN_FREE_WIDTH else 0)


def phase_rows(table: list[Line], width: int) -> list[Row]:
    """Return rows of name, bar and numbers; without room for a bar it is the background of the name."""
    widths = _widths(table)
    shown = next((kept for kept in ((0, 1, 2), (0, 1)) if _room(widths, kept, width) >= 10), (1,))
    room = _room(widths, shown, width)
    names = _name_width([line.name for line in table], width)
    bars = room - names - 1
    rows: list[Row] = []
    longest = _longest_bar(table, bars)
    for line in table:
        row: Row = [(" ", "text")]
        if bars >= _MIN_PHASE_BAR:
            drawn = units.bar(line.length, longest)
            words = _seldom(line, bars - len(drawn))
            row += [(_name(line, names, bool(words)), "text"), (" ", "text")]
            row += [(drawn, line.tone + FILL), (column(words, bars - len(drawn)), "muted")]
        else:
            row += _name_on_bar(line, max(0, room))
        for index in shown:
            cell = column(line.cells[index], widths[index], right=True)
            row.append((cell, "text bold" if index == 1 else "text"))
        rows.append(row)
    return rows


def _longest_bar(table: list[Line], bars: int) -> int:
    """Return the length of the longest bar in `bars` cells that leaves room for the shortest words after the bars."""
    least = [(line.length, len(words[-1])) for line in table if (words := _wordings(line))]
    fits = (
        longest
        for longest in range(bars, _MIN_PHASE_BAR - 1, -1)
        if all(len(units.bar(length, longest)) + words <= bars for length, words in least)
    )
    return next(fits, bars)


def _wordings(line: Line) -> tuple[str, ...]:
    """Return what is said after a bar, ` in 12 of 200 steps` or ` 40.1 s once`, the shortest wording last."""
    if line.seldom is None:
        return (f" {units.duration(line.once)} once",) if line.once else ()
    count, steps = (f"{number:,}" for number in line.seldom)
    return f" in {count} of {steps} steps", f" in {count} of {steps}", f" {count} of {steps}", f" in {count}"


def _seldom(line: Line, room: int) -> str:
    """Return the longest wording that fits into `room` cells; empty if none does."""
    return next((words for words in _wordings(line) if len(words) <= room), "")


def _name(line: Line, width: int, has_count: bool = False) -> str:
    """Return the name, with the number of steps in which it occurs if no other cell has it."""
    words = f" in {line.seldom[0]:,}" if line.seldom is not None and not has_count else ""
    words = words if len(words) + _MIN_NAME <= width else ""
    return column(fit(line.name, width - len(words)) + words, width)


def _name_on_bar(line: Line, width: int) -> Row:
    name = _name(line, width)
    filled = max(1, round(line.length * width))
    if text_width(name) != len(name):  # a wide character could be cut in two, so a mark replaces the bar
        return [("▌", line.tone), (column(name, width - 1), "text")]
    front = "background" if line.tone.startswith("phase") else "text"
    return [(name[:filled], f"{front}/{line.tone}"), (name[filled:], "text")]


def _wall_parts(wall: Wall, options: ViewOptions) -> list[tuple[str, float, str]]:
    spans = [options.phases[name] for name, _ in wall.parts[2:-2]]
    tones = [STARTUP, STEPS, *spans, "between", TEARDOWN]
    return [(*part, tone) for part, tone in zip(wall.parts, tones, strict=True) if part[1] > _ROUNDING_SECONDS]


def _largest_remainder(shares: list[float], room: int) -> list[int]:
    """Return whole cells for shares of `room`; a larger share never gets fewer cells than a smaller one.

    A share that is worth a look has a cell, however short the bar: it takes one of the longest.
    """
    exact = [share * room for share in shares]
    cells = [int(cells) for cells in exact]
    left = min(room, round(sum(exact))) - sum(cells)
    for index in sorted(range(len(exact)), key=lambda index: cells[index] - exact[index])[: max(0, left)]:
        cells[index] += 1
    for index, share in enumerate(shares):
        if share >= MIN_VISIBLE_SHARE and not cells[index] and max(cells) > 1:
            cells[cells.index(max(cells))] -= 1
            cells[index] = 1
    return cells


def wall_account(wall: Wall, options: ViewOptions, width: int, lines: int = 2) -> list[Row]:
    """Return the wall time as one bar and its parts in at most `lines` rows; empty if unknown or too narrow."""
    parts = _wall_parts(wall, options)
    total = wall.total or sum(seconds for _, seconds, _ in parts)
    if not parts or total <= 0 or width < 20:
        return []
    room = width - 1 - _END
    cells: Row = [(" ", "text")]
    whole = max(total, sum(seconds for _, seconds, _ in parts))
    shares = [seconds / whole for _, seconds, _ in parts]
    for (_, _, tone), wide in zip(parts, _largest_remainder(shares, room), strict=True):
        cells += [("▄" * wide, tone + FILL)] if wide else []
    title: Row = [(" wall time ", "muted"), (units.age(total), "text")]
    return [title, cells, *([(" ", "text"), *row] for row in _legend(parts, total, room, lines))]


def iteration_rows(report: Report, options: ViewOptions, width: int) -> list[Row]:
    """Return the iteration of reinforcement learning as a bar for each role; empty if there is none, or no room."""
    found = report.cycle
    if found is None or width < 20:
        return []
    room = width - 1 - _END
    rows: list[Row] = [
        [
            (" iteration ", "muted"),
            (units.duration(found.seconds), "text"),
            (f", {steps_text(found.steps)}" + ("" if report.device is None else ", host clock"), "muted"),
        ]
    ]
    if found.staleness is not None:
        rows[0] += [(", staleness ", "muted"), (steps_text(found.staleness), "text")]
    for role in found.roles:
        name = role.label if len(found.roles) > 1 else ""
        parts = [(part.name, part.seconds, _part_tone(part.name, report, options)) for part in role.parts]
        before = [] if role.is_concurrent else found.roles[: found.roles.index(role)]
        offset = sum(other.seconds for other in before) / found.seconds  # they take turns: each waits for those before
        shares = [offset, *(part.share for part in role.parts)]
        skipped, *wide = _largest_remainder(shares, room)
        cells: Row = [(" " * (1 + skipped), "text")]
        cells += [("▄" * cells_, tone + FILL) for (_, _, tone), cells_ in zip(parts, wide, strict=True) if cells_]
        rows.append(cells)
        label: Row = [(f"{fit(name, 24)} ", "text")] if name else []
        legend = _legend(parts, found.seconds, room - row_width(label), 1)
        rows += [[(" ", "text"), *label, *row] for row in legend]
    return rows


def colored_names(view: View) -> Iterator[str]:
    """Yield the phases, spans and parts of an iteration that have colors of their own."""
    report = view.report
    yield from view.phase_seconds
    yield from (row.name for row in (*report.phases, *report.host_phases))
    yield from report.wall.spans
    for role in report.cycle.roles if report.cycle is not None else ():
        yield from (part.name for part in role.parts if role.is_concurrent and part.name in PART_PHASES)


def _part_tone(name: str, report: Report, options: ViewOptions) -> str:
    """Return the color of the largest phase of a part, or of its span."""
    phases = sorted(report.host_phases or report.phases, key=lambda phase: -phase.share)
    names = [*(phase.name for phase in phases), *report.wall.spans]
    own = options.phases[name] if name in PART_PHASES else "between"  # of another thread: no phase of the steps
    return next((options.phases[phase] for phase in names if phase_part(phase) == name), own)


def _legend(parts: list[tuple[str, float, str]], total: float, room: int, lines: int) -> list[Row]:
    """Return the parts in the order of the bar; if not all fit, the largest and how many are left out."""
    rows: list[Row] = []
    for most in range(len(parts), 0, -1):
        least = sorted((part[1] for part in parts), reverse=True)[most - 1]
        words: list[Row] = [
            [("■ ", tone), (f"{fit(name, 24)} ", "muted"), (units.share(seconds / total), "text")]
            for name, seconds, tone in parts
            if seconds >= least
        ]
        words += [[(f"{len(parts) - len(words)} more", "muted")]] if len(words) < len(parts) else []
        rows = flow(words, room, limit=len(words))
        if len(rows) <= lines:
            break
    return rows[:lines]


def startup_bars(report: Report, view: View, width: int) -> list[Row]:
    """Return the parts of the start-up so far; a part that still runs has an ellipsis."""
    running = {name for name, _ in view.open.spans}
    rows = [(part.name, part.seconds, part.name in running) for part in report.startup]
    if not rows:
        return [[("  no step finished yet", "muted")]]
    names = _name_width([name for name, _, _ in rows], width)
    bars = max(0, width - names - 14)
    largest = max(seconds for _, seconds, _ in rows) or 1.0
    drawn: list[Row] = [[(" start-up", "muted")]]
    for name, seconds, open_now in rows:
        tone = "accent" if open_now else "muted"
        text = units.age(seconds) + " …" if open_now else units.duration(seconds)
        line: Row = [(" ", "text"), (column(name, names), "text"), (" ", "text")]
        line.append((column(units.bar(seconds / largest, bars), bars), tone))
        drawn.append([*line, (column(text, 12, right=True), "text")])
    return drawn


def rank_line(ranks: list[RankRow], straggler: Straggler | None) -> Row:
    """Return the straggler if there is one, else the range of the ranks' usual steps; empty below two ranks."""
    known = [rank.step_seconds for rank in ranks if rank.step_seconds is not None]
    if len(known) < 2:
        return []
    row: Row = [(f" {len(ranks)} ranks: ", "muted")]
    if straggler is not None:
        row += [(f"rank {straggler.rank} slowest", "text bold"), (", others wait ", "muted")]
        return [*row, (units.share(straggler.share), "text bold"), (" of the time", "muted")]
    low, high = units.duration(min(known)), units.duration(max(known))
    row += [(f"{usual(ranks)} step ", "muted"), (low if low == high else f"{low} – {high}", "text")]
    return row


def breakdown(view: View, options: ViewOptions, width: int, height: int) -> list[Row]:
    """Return all rows, arranged for `height`; they may be more than that."""
    report = view.report
    if not report.phases:
        return startup_bars(report, view, width)
    rows = phase_rows(lines(report, options), width)
    free = height - len(rows) - 4  # a gap, the title, the bar, and a line of words
    account = wall_account(report.wall, options, width, max(2, free))
    in_verdict = view.verdict.code == "straggler"  # the verdict says the same
    ranks = [] if in_verdict else rank_line(report.ranks, report.straggler)
    if ranks and row_width(ranks) <= width:
        rows.append(ranks)
    gap: list[Row] = [] if len(rows) + 3 == height else [[]]  # drop the gap if it is one row too many
    rows = [*rows, *gap, *account] if account else rows
    cycle = iteration_rows(report, options, width)
    return [*rows, [], *cycle] if cycle and len(rows) + 1 + len(cycle) <= height else rows


@on_board("phases", 2, "Where the time goes", wide=(0, 2), middle=(0, 1), narrow=0)
class Phases(ScrollPanel):
    short = "Time"

    def data(self, view: View, options: ViewOptions) -> object:
        report = view.report
        opened = () if report.phases else view.open.spans
        ranks = report.ranks, report.straggler, view.verdict.code
        shown = options.host, report.phases, report.host_phases, report.device
        return shown, report.cycle, report.wall, report.startup, ranks, report.progress.steps_done, opened

    def heading(self, view: View, options: ViewOptions) -> str:
        self.short = with_clock(Phases.short, view.report, options.host)
        return of_rank(with_clock("Where the time goes", view.report, options.host), view.report)

    def aside(self, view: View, options: ViewOptions) -> Row:
        return labels(lines(view.report, options)) if view.report.phases else []

    def position(self, view: View, rows: list[Row]) -> int:
        return 0  # new rows appear anywhere: a scrolled panel keeps its position

    def everything(self, view: View, options: ViewOptions, width: int) -> list[Row]:
        room = self.size.height - 1
        rows = breakdown(view, options, width, room)
        # The arrow needs room if the right end is not left free.
        return rows if len(rows) <= room or width >= MIN_FREE_WIDTH else breakdown(view, options, width - _END, room)
