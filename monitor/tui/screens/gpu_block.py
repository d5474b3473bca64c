"""One GPU as a block of rows: its figures, as many as there is room for. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from monitor import units
from monitor.gpu_lines import BITS, POWER_CAP, reasons_in_words
from monitor.model.device.throttle_events import CAPPED, MIN_BUSY_PERCENT, MIN_FULL_LOAD
from monitor.model.device.throttle_watch import NO_THROTTLE, ThrottleEvent
from monitor.model.report import GpuRow
from monitor.model.view import GpuDetail, figure_values
from monitor.tui.drawing.rows import (
    Row,
    column,
    cut,
    fit,
    merged,
    meter,
    printable,
    row_width,
    separated,
    side_by_side,
    sparkline,
    spread,
    text_width,
)
from monitor.tui.panels.machine_panel import gpu_line, limits
from trainhooks.protocol.events import Gpu

LABEL_WIDTH = 10
MAX_BRIEF_ROWS = 3  # rows of a GPU up to which its figures share one row
MIN_PAIRED_WIDTH = 110  # cells from which on figures share rows in pairs if there are too few rows
MAX_PROCESS_ROWS = 24
LEAST_BARS, DEFAULT_BARS, MOST_BARS = 8, 40, 80  # cells of a bar chart, one reading each; the most if there is room
FACTS_WIDTH = 74  # cells of the facts beside a bar chart, at most
MAX_USER_WIDTH = 18  # cells of the user of a process
FULL_MEMORY = 0.9  # share from which the next larger batch may not fit
NEAR_SLOWDOWN = 3.0  # degrees Celsius below the slowdown: what a sensor and a fan's control vary by
HELD_CLOCK = CAPPED  # of the typical clock under load: where less is a throttle event without a reason
MIN_NAME_WIDTH = 12  # cells of a model's name: less is not recognized
SIMULATED = "  SIMULATED"
NORMAL_WHEN_BUSY = " (normal on a busy GPU)"  # after a power cap


def label(text: str) -> Row:
    return [(column(f"   {text}", LABEL_WIDTH), "muted")]


def throttle_now(gpu: GpuRow, detail: GpuDetail, episodes: Sequence[ThrottleEvent], running: bool) -> Row:
    """Return what throttles the GPU now, by its newest reading and its open throttle events.

    Args:
        episodes: the throttle events of this GPU. An open one may already be over: it closes after a delay.
    """
    if gpu.reasons:
        reasons = ", ".join(fit(reason, 30) for reason in gpu.reasons)
        return [(reasons if running else f"{reasons} at the end", "warning" if limits(gpu) else "muted")]
    without_bit = [
        episode.short
        for episode in episodes
        if episode.end is None and episode.reason not in (*NO_THROTTLE, *REASONS_WITH_BIT)
    ]
    if without_bit:
        return [(", ".join(without_bit), "warning")]
    if not detail.readings or detail.readings[-1].reasons is None:
        return [("throttle reason unavailable", "muted")]
    ended = [episode.reason for episode in episodes if episode.end is None and episode.reason in REASONS_WITH_BIT]
    if ended:
        return [(f"{', '.join(ended)} {until(detail, ended)}", "warning")]
    return [("no throttling" if running or not episodes else "no throttling at the end", "muted")]


def until(detail: GpuDetail, reasons: Collection[str]) -> str:
    """Return `until 9 s ago`, by the newest reading that shows one of the reasons."""
    times = [reading.t for reading in detail.readings if set(reasons) & set(reasons_in_words(reading.reasons))]
    return f"until {units.age(detail.readings[-1].t - times[-1])} ago" if times else "until a moment ago"


REASONS_WITH_BIT = frozenset(reason.name for reason in BITS.values())  # reasons with a bit in each reading


def model_room(gpu: GpuRow, right: Row, width: int) -> int:
    """Return the cells for the model in a title, after throttle reasons and the mark of a simulated GPU."""
    return width - len(f"  GPU {gpu.index}  " + (SIMULATED if gpu.simulated else "")) - row_width(right) - 2


def title(gpu: GpuRow, right: Row, chosen: bool, width: int, model: bool = True) -> Row:
    whose = {True: "used by this run", False: "not used by this run", None: ""}[gpu.ours]
    left: Row = [("▶ " if chosen else "  ", "accent bold"), (f"GPU {gpu.index}", "text bold")]
    name = fit(gpu.name or "unknown model", min(40, model_room(gpu, right, width))) if model else ""
    left.append((f"  {name}" if name else "", "text"))
    left += [(SIMULATED, "warning bold")] if gpu.simulated else []
    if whose and row_width(left) + row_width(right) + len(whose) + 6 <= width:
        left.append((f"  {whose}", "muted"))
    if gpu.reasons == [POWER_CAP] and row_width(left) + row_width(right) + len(NORMAL_WHEN_BUSY) + 4 <= width:
        right = [*right, (NORMAL_WHEN_BUSY, "muted")]
    return spread(left, [*right, (" ", "text")], width)


def load_tone(percent: float) -> str:
    """Return the color of a load: a GPU is there to be busy."""
    return "good" if percent >= MIN_FULL_LOAD else "accent" if percent >= MIN_BUSY_PERCENT else "muted"


def _is_held(reading: Gpu, usual: int | None) -> bool:
    """Return whether a busy GPU's clock is below its typical one under load."""
    if usual is None or reading.sm_clock is None or reading.utilization is None:
        return False
    return reading.utilization >= MIN_BUSY_PERCENT and reading.sm_clock < HELD_CLOCK * usual


def _colored(values: Sequence[float], room: int, top: float, tones: Sequence[str]) -> Row:
    """Return the last readings as blocks, each in its color."""
    drawn = sparkline(values, room, top)
    shown = min(len(values), max(0, room))
    signs = zip(drawn[len(drawn) - shown :], tones[len(tones) - shown :], strict=True)
    return merged([(drawn[: len(drawn) - shown], "text"), *signs])


def busy(gpu: GpuRow, detail: GpuDetail, room: int) -> Row:
    busy_shares = figure_values(detail.readings, "utilization")
    return [
        *label("busy"), *_colored(busy_shares, room, 100.0, list(map(load_tone, busy_shares))),
        (column(units.percent(gpu.utilization), 7, right=True), "text bold"), ("  of the time in kernels", "muted"),
    ]  # fmt: skip


def clock(gpu: GpuRow, detail: GpuDetail, room: int, width: int) -> Row:
    top = float(gpu.sm_clock_max or detail.reference or 0)
    tones = ["warning" if _is_held(reading, detail.reference) else "accent" for reading in detail.readings]
    row: Row = [*label("clock"), *_colored(figure_values(detail.readings, "sm_clock"), room, top, tones)]
    now = units.UNKNOWN if gpu.sm_clock is None else f"{gpu.sm_clock:,}"
    row += [(column(now, 7, right=True), "text bold"), (" MHz", "text")]
    left = width - row_width(row) - 2
    parts: list[Row] = []
    if detail.reference is not None:
        typical = f"typical under load {detail.reference:,}"
        share = f" ({100 * gpu.sm_clock / detail.reference:.0f}% of it)" if gpu.sm_clock is not None else ""
        parts.append([(typical + share if len(typical + share) <= left else typical, "muted")])
    parts += [[(f"max {gpu.sm_clock_max:,}", "muted")]] if gpu.sm_clock_max else []
    return [*row, ("  ", "text"), *separated(parts, left, ("  ", "text"))] if parts and left > 0 else row


def power(gpu: GpuRow, detail: GpuDetail, room: int, width: int) -> Row:
    drawn = figure_values(detail.readings, "power")
    row: Row = [*label("power"), (sparkline(drawn, room, gpu.power_limit or 0.0), "accent")]
    row.append((column(units.UNKNOWN if gpu.power is None else f"{gpu.power:.0f}", 7, right=True), "text bold"))
    row.append((f" W of {gpu.power_limit:.0f}" if gpu.power_limit is not None else " W, limit unknown", "text"))
    heat = units.UNKNOWN if gpu.temperature is None else f"{gpu.temperature:.0f} °C"
    limit = detail.known("temperature_max") or detail.known("temperature_limit")
    hot = limit is not None and gpu.temperature is not None and gpu.temperature >= limit - NEAR_SLOWDOWN
    row += [("   ", "text"), (heat, "warning bold" if hot else "text bold")]
    slows = f", slowdown at {limit:.0f}" if limit else ""
    return [*row, (slows, "muted")] if row_width(row) + len(slows) <= width else row


def memory(gpu: GpuRow, detail: GpuDetail, room: int, width: int) -> Row:
    share = gpu.memory_used / gpu.memory_total if gpu.memory_used is not None and gpu.memory_total else None
    full = share is not None and share >= FULL_MEMORY
    row: Row = [
        *label("memory"),
        *((text, "warning" if full and tone == "accent" else tone) for text, tone in meter(share, room)),
    ]
    row.append((f"  {units.size_of(gpu.memory_used, gpu.memory_total)}", "text bold"))
    parts: list[Row] = [[(f"{label} ", "muted"), (units.size(size), "text")] for label, size in split(detail)]
    left = width - row_width(row) - 3
    fitting = [part for part in parts if row_width(part) <= left]  # a cut number would be misread
    return [*row, ("   ", "text"), *separated(fitting, left, ("   ", "text"))] if fitting else row


def split(detail: GpuDetail) -> list[tuple[str, float]]:
    """Return the memory by owner in bytes, as far as the driver reports processes; empty if unknown."""
    found = detail.processes
    if found is None:
        return []
    sums: dict[str, float] = {}
    for (_, _, size, mine), _ in found:
        if size is not None:
            label = {True: "this run", False: "others", None: "owner unknown"}[mine]
            sums[label] = sums.get(label, 0.0) + size
    reserved = detail.readings[-1].memory_reserved
    if reserved is not None:
        sums["driver"] = float(reserved)
    return list(sums.items())


def link(detail: GpuDetail, width: int) -> Row:
    gen, most, lanes, most_lanes = detail.link
    row: Row = [*label("link")]
    if gen is None and lanes is None:
        row.append((units.UNKNOWN, "text"))
    else:
        now = f"PCIe {gen if gen is not None else units.UNKNOWN} x{lanes if lanes is not None else units.UNKNOWN}"
        low = (gen is not None and most is not None and gen < most) or (
            lanes is not None and most_lanes is not None and lanes < most_lanes
        )
        row.append((now, "warning" if low else "text"))
        if low:
            row.append((f" of PCIe {most or units.UNKNOWN} x{most_lanes or units.UNKNOWN}", "warning"))
            row.append((" (may be lower while idle)", "muted"))
    newest = detail.readings[-1] if detail.readings else None
    if newest is not None:
        flows = (
            ("in", newest.pcie_rx),
            ("out", newest.pcie_tx),
            ("NVLink in", newest.nvlink_rx),
            ("out", newest.nvlink_tx),
        )
        parts: list[Row] = [[(f"{name} {units.flow(value)}", "muted")] for name, value in flows if value is not None]
        row += (
            [("   ", "text"), *separated(parts, max(1, width - row_width(row) - 3), ("   ", "text"))] if parts else []
        )
    return cut(row, width)


def throttled(gpu: GpuRow, width: int) -> Row:
    """Return the total throttled time by reason; empty without any."""
    if not gpu.throttle:
        return []
    parts: list[Row] = [
        [(fit(name, 30), "warning"), (f" {units.duration(seconds)}", "text")] for name, seconds in gpu.throttle.items()
    ]
    return [*label("limit"), *separated(parts, max(1, width - LABEL_WIDTH))]


def block(
    gpu: GpuRow, detail: GpuDetail, held: Row, chosen: bool, width: int, height: int, names: int, model: bool = True
) -> list[Row]:
    """Return a GPU in at most `height` rows, the most important first; two figures per row if that shows more.

    Args:
        held: the active throttle reasons, for the title.
        names: cells of the name column in a single row.
        model: whether the title has the model.
    """
    if height <= 1:
        return [cut([("▶" if chosen else " ", "accent bold"), *gpu_line(gpu, width - 1, names)], width)]
    head = title(gpu, held, chosen, width, model)
    if height <= MAX_BRIEF_ROWS:
        facts: Row = [("   ", "text"), *gpu_line(replace(gpu, reasons=[]), width - 1, names)[1:]]
        return [head, cut(facts, width)]
    rows = _figures(gpu, detail, width)
    if _in_two(rows, width, height):
        rows = _abreast(_figures(gpu, detail, (width - 2) // 2), rows[-1], (width - 2) // 2)
    return [head, *(cut(row, width) for row in rows[: height - 1])]


def _in_two(figures: list[Row], width: int, height: int) -> bool:
    return len(figures) >= height and width >= MIN_PAIRED_WIDTH


def bars(gpu: GpuRow, detail: GpuDetail, width: int, height: int) -> int:
    """Return how many readings a block of this size shows as bars."""
    return _room((width - 2) // 2 if _in_two(_figures(gpu, detail, width), width, height) else width)


def _room(width: int) -> int:
    return max(
        LEAST_BARS, min(DEFAULT_BARS, width - LABEL_WIDTH - 54), min(MOST_BARS, width - LABEL_WIDTH - FACTS_WIDTH)
    )


def _abreast(figures: list[Row], last: Row, half: int) -> list[Row]:
    """Return two figures per row, `half` cells each; an odd last one is `last`, as wide as the row."""
    rows = side_by_side([figures[::2], figures[1::2]], half, 2)
    return [*rows[:-1], last] if len(figures) % 2 else rows


def _figures(gpu: GpuRow, detail: GpuDetail, width: int) -> list[Row]:
    room = min(_room(width), max(LEAST_BARS, len(detail.readings)))  # empty bars would look like readings of 0
    rows = [
        busy(gpu, detail, room), memory(gpu, detail, room, width), clock(gpu, detail, room, width),
        power(gpu, detail, room, width), throttled(gpu, width), link(detail, width),
    ]  # fmt: skip
    return [row for row in rows if row]


def processes(detail: GpuDetail, width: int) -> list[Row]:
    """Return the processes on the GPU: pid, whose, user, memory and name."""
    found = detail.processes
    if found is None:
        return [[("   not reported by the driver", "muted")]]
    wide = min(MAX_USER_WIDTH, max((text_width(user) + 2 for _, user in found if user), default=0))
    rows: list[Row] = []
    for (pid, name, size, mine), user in found[:MAX_PROCESS_ROWS]:
        whose = {True: "this run", False: "other", None: "owner unknown"}[mine]
        row: Row = [(f"   {column(str(pid), 9)}", "text"), (column(whose, 15), "text" if mine else "warning")]
        row += [(column(fit(user or units.UNKNOWN, wide - 2), wide), "text")] if wide else []
        row += [(column(units.size(size), 10, right=True), "text bold"), (f"  {printable(name)}", "muted")]
        rows.append(cut(row, width))
    return rows or [[("   none", "muted")]]
