"""Where the time goes: a bar a phase, and the account of the whole run; the start-up while there is nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from monitor import units as fmt
from monitor.model.report import RankRow, Report, Straggler, View, Wall
from monitor.tui.ink import FILL
from monitor.tui.lane import GPU_CLOCK, clock, shown_phases, with_clock
from monitor.tui.panels.base import Look, ScrollPanel
from monitor.tui.panels.ranks import of_rank
from monitor.tui.rows import Row, bar, column, fit, flow, row_width, text_width
from monitor.tui.themes import BETWEEN, STARTUP, STEPS, TEARDOWN

_LEAST_BAR = 5
_LEAST_NAME = 6  # cells of a name that stand before other words
_LEAST_CELLS = (6, 6, 6)  # as wide as `1.23 s` and `<0.1 %`: so the bars beside seldom change their length
MOST_STEPS = 0.9  # of all: a phase that occurs in fewer of them says in how many
FREE_FROM = 30  # cells of a panel from which on some are left free at the right
WORTH = 0.01  # of the time in steps: less time between them is no part of the GPU's lane
_DUST = 1e-9  # seconds: what is left of a sum of thousands of times from which all were taken again
_END = 2  # cells left free at the right, where the title's rule ends too: so its labels stand above their columns


@dataclass(frozen=True)
class Line:
    """A row of the table: the bar is `length` of the longest; the cells are mean, share and p95."""

    name: str
    tone: str
    length: float
    cells: tuple[str, str, str]
    seldom: tuple[int, int] | None = None  # in how many steps it occurs, and of how many: its mean is that of these


def lines(report: Report, look: Look) -> list[Line]:
    """The phases, the largest first, and the time between steps: no part of a step, so it has no share of one."""
    ordered = sorted(shown_phases(report, look.host), key=lambda phase: -phase.share)
    steps = report.progress.steps_done
    largest = max((phase.share for phase in ordered), default=1.0) or 1.0
    table = [
        Line(
            phase.name, look.phases[phase.name], phase.share / largest,
            (fmt.duration(phase.mean), fmt.share(phase.share), fmt.duration(phase.p95)),
            (phase.count, steps) if 0 < phase.count < MOST_STEPS * steps else None,
        )
        for phase in ordered
    ]  # fmt: skip
    wall = report.wall
    if steps and wall.steps > 0:
        between = wall.between_steps if wall.between_steps > _DUST else 0.0
        beside = between / wall.steps
        device = clock(report, look.host) == GPU_CLOCK
        if device and beside < WORTH:
            return table
        cells = (fmt.duration(between / steps), "", fmt.UNKNOWN)
        name = f"{BETWEEN} (host)" if device else BETWEEN  # no event tells it
        table.append(Line(name, "between", min(1.0, beside / largest), cells))
    return table


def _widths(table: list[Line]) -> list[int]:
    return [max(least, *(len(line.cells[index]) for line in table)) + 1 for index, least in enumerate(_LEAST_CELLS)]


def labels(table: list[Line]) -> Row:
    """`mean  share  p95`, as wide as the columns below them."""
    cells = zip(("mean", "share", "p95"), _widths(table), strict=True)
    return [("".join(column(name, wide, right=True) for name, wide in cells), "muted")]


def _name_width(names: list[str], width: int) -> int:
    longest = max((text_width(name[:60]) for name in names), default=8)
    return max(8, min(longest, 24, max(12, width // 3)))


def _room(widths: list[int], shown: tuple[int, ...], width: int) -> int:
    """What the numbers leave for name and bar."""
    return width - 1 - sum(widths[index] for index in shown) - (_END if width >= FREE_FROM else 0)


def phase_rows(table: list[Line], width: int) -> list[Row]:
    """Name, bar and numbers. Where there is no room for a bar, it lies behind the name."""
    widths = _widths(table)
    shown = next((kept for kept in ((0, 1, 2), (0, 1)) if _room(widths, kept, width) >= 10), (1,))
    room = _room(widths, shown, width)
    names = _name_width([line.name for line in table], width)
    bars = room - names - 1
    rows: list[Row] = []
    longest = _longest_bar(table, bars)
    for line in table:
        row: Row = [(" ", "text")]
        if bars >= _LEAST_BAR:
            drawn = bar(line.length, longest)
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
    """How long a bar may be in `bars` cells: behind that of a phase of few steps their number has a place."""
    least = [(line.length, len(f" in {line.seldom[0]:,}")) for line in table if line.seldom is not None]
    fits = (
        longest
        for longest in range(bars, _LEAST_BAR - 1, -1)
        if all(len(bar(length, longest)) + words <= bars for length, words in least)
    )
    return next(fits, bars)


def _seldom(line: Line, room: int) -> str:
    """` in 12 of 200 steps`, in as many words as there is room for behind the bar."""
    if line.seldom is None:
        return ""
    count, steps = (f"{number:,}" for number in line.seldom)
    words = (f" in {count} of {steps} steps", f" in {count} of {steps}", f" {count} of {steps}", f" in {count}")
    return next((each for each in words if len(each) <= room), "")


def _name(line: Line, width: int, told: bool = False) -> str:
    """Its name, and in how many steps it occurs where that is not told yet: its mean is that of these."""
    words = f" in {line.seldom[0]:,}" if line.seldom is not None and not told else ""
    words = words if len(words) + _LEAST_NAME <= width else ""
    return column(fit(line.name, width - len(words)) + words, width)


def _name_on_bar(line: Line, width: int) -> Row:
    name = _name(line, width)
    filled = max(1, round(line.length * width))
    if text_width(name) != len(name):  # a wide character could be cut in two: a mark instead of a bar
        return [("▌", line.tone), (column(name, width - 1), "text")]
    front = "background" if line.tone.startswith("phase") else "text"
    return [(name[:filled], f"{front}/{line.tone}"), (name[filled:], "text")]


def _wall_parts(wall: Wall, look: Look) -> list[tuple[str, float, str]]:
    parts = [("start-up", wall.startup or 0.0, STARTUP), ("steps", wall.steps, STEPS)]
    spans = sorted(wall.spans.items(), key=lambda item: -item[1])
    parts += [(name, seconds, look.phases[name]) for name, seconds in spans]
    parts += [(BETWEEN, wall.between_steps, "between"), ("teardown", wall.teardown, TEARDOWN)]
    return [part for part in parts if part[1] > _DUST]


def _largest_remainder(shares: list[float], room: int) -> list[int]:
    """Whole cells for shares of `room`: of two parts the larger never gets fewer."""
    exact = [share * room for share in shares]
    cells = [int(each) for each in exact]
    left = min(room, round(sum(exact))) - sum(cells)
    for index in sorted(range(len(exact)), key=lambda index: cells[index] - exact[index])[: max(0, left)]:
        cells[index] += 1
    return cells


def wall_account(wall: Wall, look: Look, width: int, lines: int = 2) -> list[Row]:
    """One bar for all the time there was, and its parts in words, in so many lines of them."""
    parts = _wall_parts(wall, look)
    total = wall.total or sum(seconds for _, seconds, _ in parts)
    if not parts or total <= 0 or width < 20:
        return []
    room = width - 1 - _END
    cells: Row = [(" ", "text")]
    whole = max(total, sum(seconds for _, seconds, _ in parts))
    shares = [seconds / whole for _, seconds, _ in parts]
    for (_, _, tone), wide in zip(parts, _largest_remainder(shares, room), strict=True):
        cells += [("▄" * wide, tone + FILL)] if wide else []
    title: Row = [(" whole run ", "muted"), (fmt.age(total), "text")]
    title += [(", summed up", "muted")] if row_width(title) + 11 <= width else []  # it looks like a course of time
    return [title, cells, *([(" ", "text"), *row] for row in _legend(parts, total, room, lines))]


def _legend(parts: list[tuple[str, float, str]], total: float, room: int, lines: int) -> list[Row]:
    """The parts in the order of the bar; where not all have a place, the largest, and how many are left out."""
    rows: list[Row] = []
    for most in range(len(parts), 0, -1):
        least = sorted((part[1] for part in parts), reverse=True)[most - 1]
        words: list[Row] = [
            [("■ ", tone), (f"{fit(name, 24)} ", "muted"), (fmt.share(seconds / total), "text")]
            for name, seconds, tone in parts
            if seconds >= least
        ]
        words += [[(f"{len(parts) - len(words)} more", "muted")]] if len(words) < len(parts) else []
        rows = flow(words, room, limit=len(words))
        if len(rows) <= lines:
            break
    return rows[:lines]


def startup_bars(report: Report, view: View, width: int) -> list[Row]:
    """What the start-up consists of so far; the part that still runs has an ellipsis."""
    running = {name for name, _ in view.open.spans}
    rows = [(part.name, part.seconds, part.name in running) for part in report.startup]
    if not rows:
        return [[("  no step has finished yet", "muted")]]
    names = _name_width([name for name, _, _ in rows], width)
    bars = max(0, width - names - 14)
    largest = max(seconds for _, seconds, _ in rows) or 1.0
    drawn: list[Row] = [[(" start-up", "muted")]]
    for name, seconds, open_now in rows:
        tone = "accent" if open_now else "muted"
        text = fmt.age(seconds) + " …" if open_now else fmt.duration(seconds)
        line: Row = [(" ", "text"), (column(name, names), "text"), (" ", "text")]
        line.append((column(bar(seconds / largest, bars), bars), tone))
        drawn.append([*line, (column(text, 12, right=True), "text")])
    return drawn


def rank_line(ranks: list[RankRow], straggler: Straggler | None) -> Row:
    """Who waits for whom, where there are several ranks and that is clear; else how far their steps are apart."""
    known = [rank.step_seconds for rank in ranks if rank.step_seconds is not None]
    if len(known) < 2:
        return []
    row: Row = [(f" {len(ranks)} ranks: ", "muted")]
    if straggler is not None:
        row += [(f"rank {straggler.rank} is slowest", "text bold"), (", others wait ", "muted")]
        return [*row, (fmt.share(straggler.share), "text bold"), (" of the time", "muted")]
    low, high = fmt.duration(min(known)), fmt.duration(max(known))
    row += [("a step takes ", "muted"), (low if low == high else f"{low} – {high}", "text")]
    return [*row, (" in the median", "muted")]


def breakdown(view: View, look: Look, width: int, height: int) -> list[Row]:
    """All there is to say, arranged for `height` rows; it may need more of them."""
    report = view.report
    if not report.phases:
        return startup_bars(report, view, width)
    rows = phase_rows(lines(report, look), width)
    free = height - len(rows) - 4  # a gap, the title, the bar, and a line of words
    account = wall_account(report.wall, look, width, max(2, free))
    told = view.verdict.code == "straggler"  # in the same words, above
    ranks = [] if told else rank_line(report.ranks, report.straggler)
    if ranks and row_width(ranks) <= width:
        rows.append(ranks)
    gap: list[Row] = [] if len(rows) + 3 == height else [[]]  # the account without its gap, where only that has no room
    return [*rows, *gap, *account] if account else rows


class Phases(ScrollPanel):
    number = 2
    short = "Time"

    def data(self, view: View, look: Look) -> object:
        report = view.report
        opened = () if report.phases else view.open.spans
        ranks = report.ranks, report.straggler, view.verdict.code
        shown = look.host, report.phases, report.host_phases, report.device
        return shown, report.wall, report.startup, ranks, report.progress.steps_done, opened

    def heading(self, view: View, look: Look) -> str:
        self.short = with_clock(Phases.short, view.report, look.host)
        return of_rank(with_clock("Where the time goes", view.report, look.host), view.report)

    def aside(self, view: View, look: Look) -> Row:
        return labels(lines(view.report, look)) if view.report.phases else []

    def position(self, view: View, rows: list[Row]) -> int:
        return 0  # new rows come anywhere: a scrolled panel stays at its row

    def everything(self, view: View, look: Look, width: int) -> list[Row]:
        room = self.size.height - 1
        rows = breakdown(view, look, width, room)
        # Where nothing is left free at the right the arrow needs a place.
        return rows if len(rows) <= room or width >= FREE_FROM else breakdown(view, look, width - _END, room)
