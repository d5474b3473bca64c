"""The GPUs: as much of each as there is room for, from one to sixteen on one screen."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import ClassVar

from textual.binding import BindingType

from monitor import units as fmt
from monitor.model.detail_rows import GpuDetail, figure_of
from monitor.model.held_back import QUIET, HeldBack
from monitor.model.reasons import BITS, BY_NAME, POWER_CAP, reasons_in_words
from monitor.model.report import GpuRow, View
from monitor.model.throttle import NO_THROTTLE
from monitor.tui.actions import screen_bindings
from monitor.tui.panels.base import Look
from monitor.tui.panels.machine import fewer_seen, gpu_line, limits, names_width
from monitor.tui.rows import Row, column, cut, fit, meter, printable, row_width, separated, sparkline, spread, wrap
from monitor.tui.screens.gpu_past import past
from monitor.tui.screens.page import ListBody, PageScreen
from trainhooks.events import Gpu

LABEL = 10
LOW = 3  # rows of a GPU below which its figures stand in one row
ABREAST = 110  # cells from which on a GPU's figures stand two in a row where there are not enough rows
MAX_PROCESSES = 24
LEAST_BARS, USUAL_BARS, MOST_BARS = 8, 40, 80  # cells of a bar, a reading each; the most where nothing has to give way
ALL_TOLD = 74  # cells of the most that is told beside a bar
LEAST_NAME = 12  # cells of a model's name: less tells none
SIMULATED = "  SIMULATED"
NORMAL = " (normal on a busy GPU)"  # a power cap is


def _label(text: str) -> Row:
    return [(column(f"   {text}", LABEL), "muted")]


def held_now(gpu: GpuRow, detail: GpuDetail, episodes: Sequence[HeldBack], running: bool) -> Row:
    """What holds it back: by its newest reading, and by what no bit of a reading tells.

    Args:
        episodes: those of this GPU. One that is open may have let go a moment ago: it is over when it stays away.
    """
    if gpu.reasons:
        reasons = ", ".join(fit(reason, 30) for reason in gpu.reasons)
        return [(reasons if running else f"{reasons} at the end", "warning" if limits(gpu) else "muted")]
    untold = [each.short for each in episodes if each.end is None and each.reason not in (*NO_THROTTLE, *_BIT)]
    if untold:
        return [(", ".join(untold), "warning")]
    if not detail.readings or detail.readings[-1].reasons is None:
        return [("what holds it back is not told", "muted")]
    let_go = [each.reason for each in episodes if each.end is None and each.reason in _BIT]
    if let_go:
        return [(f"{', '.join(let_go)} {until(detail, let_go)}", "warning")]
    return [("nothing holds it back" if running else "nothing held it back at the end", "muted")]


def until(detail: GpuDetail, reasons: Collection[str]) -> str:
    """`until 9 s ago`, by the newest reading that shows one of the reasons."""
    held = [each.t for each in detail.readings if set(reasons) & set(reasons_in_words(each.reasons))]
    return f"until {fmt.age(detail.readings[-1].t - held[-1])} ago" if held else "until a moment ago"


_BIT = frozenset(reason.name for reason in BITS.values())  # reasons of which each reading tells


def model_room(gpu: GpuRow, right: Row, width: int) -> int:
    """Cells for the model in its title: it gives way to what holds it back, and to what says that nothing is real."""
    return width - len(f"  GPU {gpu.index}  " + (SIMULATED if gpu.simulated else "")) - row_width(right) - 2


def title(gpu: GpuRow, right: Row, chosen: bool, width: int, model: bool = True) -> Row:
    whose = {True: "used by this run", False: "not used by this run", None: ""}[gpu.ours]
    left: Row = [("▶ " if chosen else "  ", "accent bold"), (f"GPU {gpu.index}", "text bold")]
    name = fit(gpu.name or "unknown model", min(40, model_room(gpu, right, width))) if model else ""
    left.append((f"  {name}" if name else "", "text"))
    left += [(SIMULATED, "warning bold")] if gpu.simulated else []
    if whose and row_width(left) + row_width(right) + len(whose) + 6 <= width:
        left.append((f"  {whose}", "muted"))
    if gpu.reasons == [POWER_CAP] and row_width(left) + row_width(right) + len(NORMAL) + 4 <= width:
        right = [*right, (NORMAL, "muted")]
    return spread(left, [*right, (" ", "text")], width)


def busy(gpu: GpuRow, detail: GpuDetail, room: int) -> Row:
    return [
        *_label("busy"), (sparkline(figure_of(detail.readings, "utilization"), room, 100.0), "accent"),
        (column(fmt.percent(gpu.utilization), 7, right=True), "text bold"), ("  of the time a kernel ran", "muted"),
    ]  # fmt: skip


def clock(gpu: GpuRow, detail: GpuDetail, room: int, width: int) -> Row:
    top = float(gpu.sm_clock_max or detail.reference or 0)
    row: Row = [*_label("clock"), (sparkline(figure_of(detail.readings, "sm_clock"), room, top), "accent")]
    now = fmt.UNKNOWN if gpu.sm_clock is None else f"{gpu.sm_clock:,}"
    row += [(column(now, 7, right=True), "text bold"), (" MHz", "text")]
    left = width - row_width(row) - 2
    told: list[Row] = []
    if detail.reference is not None:
        usual = f"under load usually {detail.reference:,}"
        share = f" ({100 * gpu.sm_clock / detail.reference:.0f} % of it)" if gpu.sm_clock is not None else ""
        told.append([(usual + share if len(usual + share) <= left else usual, "muted")])
    told += [[(f"at most {gpu.sm_clock_max:,}", "muted")]] if gpu.sm_clock_max else []
    return [*row, ("  ", "text"), *separated(told, left, ("  ", "text"))] if told and left > 0 else row


def power(gpu: GpuRow, detail: GpuDetail, room: int, width: int) -> Row:
    drawn = figure_of(detail.readings, "power")
    row: Row = [*_label("power"), (sparkline(drawn, room, gpu.power_limit or 0.0), "accent")]
    row.append((column(fmt.UNKNOWN if gpu.power is None else f"{gpu.power:.0f}", 7, right=True), "text bold"))
    row.append((f" W of {gpu.power_limit:.0f}" if gpu.power_limit is not None else " W, limit unknown", "text"))
    heat = fmt.UNKNOWN if gpu.temperature is None else f"{gpu.temperature:.0f} °C"
    newest = detail.readings[-1] if detail.readings else None
    limit = newest.temperature_max or newest.temperature_limit if newest is not None else None
    row += [("   ", "text"), (heat, "text bold")]
    slows = f", slows down at {limit:.0f}" if limit else ""
    return [*row, (slows, "muted")] if row_width(row) + len(slows) <= width else row


def memory(gpu: GpuRow, detail: GpuDetail, room: int, width: int) -> Row:
    share = gpu.memory_used / gpu.memory_total if gpu.memory_used is not None and gpu.memory_total else None
    row: Row = [*_label("memory"), *meter(share, room)]
    row.append((f"  {fmt.size_of(gpu.memory_used, gpu.memory_total)}", "text bold"))
    newest = detail.readings[-1] if detail.readings else None
    parts: list[Row] = [[(f"{label} ", "muted"), (fmt.size(size), "text")] for label, size in split(newest)]
    left = width - row_width(row) - 3
    fitting = [part for part in parts if row_width(part) <= left]  # a number that was cut would be another one
    return [*row, ("   ", "text"), *separated(fitting, left, ("   ", "text"))] if fitting else row


def split(newest: Gpu | None) -> list[tuple[str, float]]:
    """Whose memory it is, as far as the driver tells of single processes."""
    if newest is None or newest.processes is None:
        return []
    sums: dict[str, float] = {}
    for _, _, size, mine in newest.processes:
        if size is not None:
            label = {True: "this run", False: "others", None: "unknown whose"}[mine]
            sums[label] = sums.get(label, 0.0) + size
    if newest.memory_reserved is not None:
        sums["driver"] = float(newest.memory_reserved)
    return list(sums.items())


def link(detail: GpuDetail, width: int) -> Row:
    gen, most, lanes, most_lanes = detail.link
    row: Row = [*_label("link")]
    if gen is None and lanes is None:
        row.append((fmt.UNKNOWN, "text"))
    else:
        now = f"PCIe {gen if gen is not None else fmt.UNKNOWN} x{lanes if lanes is not None else fmt.UNKNOWN}"
        low = (gen is not None and most is not None and gen < most) or (
            lanes is not None and most_lanes is not None and lanes < most_lanes
        )
        row.append((now, "warning" if low else "text"))
        if low:
            row.append((f" of PCIe {most or fmt.UNKNOWN} x{most_lanes or fmt.UNKNOWN}", "warning"))
            row.append((" (may rest while idle)", "muted"))
    newest = detail.readings[-1] if detail.readings else None
    if newest is not None:
        flows = (
            ("in", newest.pcie_rx),
            ("out", newest.pcie_tx),
            ("NVLink in", newest.nvlink_rx),
            ("out", newest.nvlink_tx),
        )
        told: list[Row] = [[(f"{name} {fmt.flow(value)}", "muted")] for name, value in flows if value is not None]
        row += [("   ", "text"), *separated(told, max(1, width - row_width(row) - 3), ("   ", "text"))] if told else []
    return cut(row, width)


def throttled(gpu: GpuRow, width: int) -> Row:
    """How long it has been held back in all, by reason."""
    if not gpu.throttle:
        return []
    parts: list[Row] = [
        [(fit(name, 30), "warning"), (f" {fmt.duration(seconds)}", "text")] for name, seconds in gpu.throttle.items()
    ]
    return [*_label("held"), *separated(parts, max(1, width - LABEL))]


def block(
    gpu: GpuRow, detail: GpuDetail, held: Row, chosen: bool, width: int, height: int, names: int, model: bool = True
) -> list[Row]:
    """A GPU in `height` rows at most: the most important first, and two figures a row where that shows more.

    Args:
        names: cells of its name where it stands in a single row, as wide as those of all.
        model: whether the title has the model.
    """
    if height <= 1:
        return [cut([("▶" if chosen else " ", "accent bold"), *gpu_line(gpu, width - 1, names)], width)]
    head = title(gpu, held, chosen, width, model)
    if height <= LOW:
        facts: Row = [("   ", "text"), *gpu_line(replace(gpu, reasons=[]), width - 1, names)[1:]]
        return [head, cut(facts, width)]
    rows = _figures(gpu, detail, width)
    if _in_two(rows, width, height):
        rows = _abreast(_figures(gpu, detail, (width - 2) // 2), rows[-1], (width - 2) // 2)
    return [head, *(cut(row, width) for row in rows[: height - 1])]


def _in_two(figures: list[Row], width: int, height: int) -> bool:
    return len(figures) >= height and width >= ABREAST


def bars(gpu: GpuRow, detail: GpuDetail, width: int, height: int) -> int:
    """How many readings a block of this size shows as bars."""
    return _room((width - 2) // 2 if _in_two(_figures(gpu, detail, width), width, height) else width)


def _room(width: int) -> int:
    return max(LEAST_BARS, min(USUAL_BARS, width - LABEL - 54), min(MOST_BARS, width - LABEL - ALL_TOLD))


def _abreast(figures: list[Row], last: Row, each: int) -> list[Row]:
    """Two figures a row, each in so many cells; `last` is the last one as wide as the row, where it stands alone."""
    halves = [cut(row, each) for row in figures]
    rows: list[Row] = [
        [*left, (" " * (each + 2 - row_width(left)), "text"), *right]
        for left, right in zip(halves[::2], halves[1::2], strict=False)
    ]
    return [*rows, last] if len(halves) % 2 else rows


def _figures(gpu: GpuRow, detail: GpuDetail, width: int) -> list[Row]:
    room = min(_room(width), max(LEAST_BARS, len(detail.readings)))  # bars of nothing would look like readings of 0
    told = [
        busy(gpu, detail, room), memory(gpu, detail, room, width), clock(gpu, detail, room, width),
        power(gpu, detail, room, width), throttled(gpu, width), link(detail, width),
    ]  # fmt: skip
    return [row for row in told if row]


def gravest(view: View) -> str | None:
    """The GPU to begin at: one with an error or held back now, else the one held back longest, else the first."""

    def gravity(gpu: GpuRow) -> tuple[bool, bool, float]:
        readings = view.details.gpus.get(gpu.uuid, GpuDetail()).readings
        held = [each for each in view.details.held_back if each.uuid == gpu.uuid and each.code not in QUIET]
        now = bool(limits(gpu)) or any(each.end is None for each in held)
        return any(each.xid for each in readings), now, sum(each.seconds for each in held)

    first = max(view.report.gpus, key=lambda gpu: (gravity(gpu), -gpu.index), default=None)
    return first.uuid if first is not None else None


class Gpus(ListBody):
    screen_name = "gpus"
    title = "GPUs"
    about = (
        "Each GPU with as many rows as there is room for; Enter shows all of one. Its clock stands beside the clock it"
        " has under load when nothing holds it back, as this run itself has shown it. Reasons are the driver's: idle,"
        " application clocks and sync boost cost nothing, and a power cap is normal on a busy GPU.",
        "busy is the share of time in which any kernel ran: a GPU can be busy and slow. Processes are told apart by the"
        " run's process tree; inside a container the driver may not tell whose they are. Where more ranks train than"
        " GPUs are seen, the others' are on hosts where no trainmon watches, or several ranks share one.",
    )

    def data(self, view: View, look: Look) -> object:
        told = view.report.gpus, view.details.gpus, view.details.held_back, view.report.outcome.state
        return told, self.selected, self.opened, self._away

    def aside(self, view: View, look: Look) -> Row:
        gpus = view.report.gpus
        if self.opened:
            return [*self._legend(view, look), ("Enter or Esc", "accent"), (" back to all", "muted")]
        told = fewer_seen(view) or fmt.plural(len(gpus), "GPU", "GPUs")
        return [*self._legend(view, look), (told, "muted")] if gpus else []

    def _legend(self, view: View, look: Look) -> Row:
        """What the bars of this size mean, and over what time."""
        width, height = self.size.width, self.size.height if self.opened else self._each(view)
        if height <= LOW:
            return [("━", "accent"), (" busy, ", "muted")]
        keys = self.keys(view, look)
        gpu, detail, _ = _of(keys[self.choice(keys)] if self.opened else keys[0], view)
        readings = detail.readings[-bars(gpu, detail, width, height) :]
        return [(f"bars: the last {fmt.age(readings[-1].t - readings[0].t)}, ", "muted")] if len(readings) > 1 else []

    def _each(self, view: View) -> int:
        """Rows a GPU."""
        return max(1, (self.size.height - 1) // max(1, len(view.report.gpus)))

    def keys(self, view: View, look: Look) -> list[object]:
        return [gpu.uuid for gpu in sorted(view.report.gpus, key=lambda gpu: gpu.index)]

    def choice(self, keys: list[object]) -> int:
        if self.selected is None and self._view is not None:  # once: who looks on is not led elsewhere
            self.selected = gravest(self._view)
        return super().choice(keys)

    def nothing(self, view: View, look: Look, width: int) -> list[Row]:
        note = view.report.host.note or "no GPU has been seen"
        rows = wrap([("  ", "text"), (printable(note[:400]), "muted")], width - 2)
        more = "`trainmon doctor` says what works on this machine."
        return [*rows, [], *wrap([("  ", "text"), (more, "muted")], width - 2)]

    def body(self, view: View, look: Look, width: int, height: int) -> list[Row]:
        """The list, and where few GPUs leave room, the past of the chosen one below them."""
        rows = super().body(view, look, width, height)
        keys = self.keys(view, look)
        if self.opened or not keys:
            return rows
        while rows and not rows[-1]:
            rows.pop()
        gpu, detail, _ = _of(keys[self.choice(keys)], view)
        return [*rows, *past(gpu, detail, width, height - len(rows))]

    def entry(self, key: object, view: View, look: Look, width: int, chosen: bool) -> list[Row]:
        each = self._each(view)
        rows = block(*_of(key, view), chosen, width, each, names_width(view.report.gpus), self._models(view, width))
        return [*rows, []] if len(rows) < each else rows

    def _models(self, view: View, width: int) -> bool:
        """Whether each title has room for the model: one that is missing in some would look like another one."""
        gpus = view.report.gpus
        least = {gpu.uuid: min(LEAST_NAME, len(gpu.name or "")) for gpu in gpus}
        return all(model_room(gpu, _of(gpu.uuid, view)[2], width) >= least[gpu.uuid] for gpu in gpus)

    def opened_rows(self, key: object, view: View, look: Look, width: int) -> list[Row]:
        gpu, detail, held = _of(key, view)
        episodes = [each for each in view.details.held_back if each.uuid == gpu.uuid]
        shown = replace(gpu, throttle={}) if episodes else gpu  # which are told below
        named = model_room(gpu, held, width) >= len(gpu.name or "")
        rows = block(shown, detail, held, False, width, 99, names_width([gpu]), named)
        rows[1:1] = [] if named else [[*_label("model"), (printable(gpu.name or ""), "text")]]
        rows += [[]] if gpu.reasons else []
        for reason in gpu.reasons:
            meaning = BY_NAME[reason].meaning if reason in BY_NAME else "this version has no word for it"
            rows += wrap([(f"   {fit(reason, 30)}", "warning"), (f"  {meaning}", "muted")], width - 1)
        rows += [[], [(" Held back", "text bold")]]
        for episode in reversed(episodes):
            over = "" if episode.end is not None else "goes on: "
            over = over if not over or _shows(gpu, episode) else f"{until(detail, [episode.reason])}: "
            text = f"{over}{fmt.duration(episode.seconds)}  {episode.line()}"
            rows += wrap([("   ", "text"), (printable(text[:600]), "text")], width - 1, 5)
        rows += [] if episodes else [[("   never for long, as far as it was watched", "muted")]]
        rows += [[], [(" Processes", "text bold")], *processes(detail, width)]
        return [*rows, *past(gpu, detail, width, self.size.height - 1 - len(rows))]


def _of(key: object, view: View) -> tuple[GpuRow, GpuDetail, Row]:
    """The GPU with this UUID, and what holds it back."""
    gpu = next(each for each in view.report.gpus if each.uuid == key)
    detail = view.details.gpus.get(gpu.uuid, GpuDetail())
    episodes = [each for each in view.details.held_back if each.uuid == gpu.uuid]
    return gpu, detail, held_now(gpu, detail, episodes, view.report.outcome.state == "running")


def _shows(gpu: GpuRow, episode: HeldBack) -> bool:
    """Whether the newest reading shows an open episode; of what no bit tells nothing else is known."""
    return episode.reason in gpu.reasons or episode.reason not in _BIT


def processes(detail: GpuDetail, width: int) -> list[Row]:
    newest = detail.readings[-1].processes if detail.readings else None
    if newest is None:
        return [[("   the driver does not tell which use this GPU", "muted")]]
    rows: list[Row] = []
    for pid, name, size, mine in newest[:MAX_PROCESSES]:
        whose = {True: "this run", False: "another's", None: "unknown whose"}[mine]
        row: Row = [(f"   {column(str(pid), 9)}", "text"), (column(whose, 15), "text" if mine else "warning")]
        rows.append(
            cut([*row, (column(fmt.size(size), 10, right=True), "text bold"), (f"  {printable(name)}", "muted")], width)
        )
    return rows or [[("   none", "muted")]]


class GpusScreen(PageScreen):
    BINDINGS: ClassVar[list[BindingType]] = [*screen_bindings("gpus")]

    def __init__(self) -> None:
        super().__init__(Gpus())
