"""The machine panel: the GPUs, or one line if there are none, and the host."""

from __future__ import annotations

import math
from collections.abc import Sequence

from monitor import units
from monitor.gpu_lines import BY_NAME, HARDWARE_SLOWDOWN, HARDWARE_THERMAL, POWER_BRAKE, POWER_CAP
from monitor.model.report import GpuRow, HostRow
from monitor.model.view import View, figure_values
from monitor.tui.drawing.rows import (
    Row,
    Span,
    column,
    cut,
    fit,
    meter,
    printable,
    row_width,
    separated,
    sparkline,
    spread,
    wrap,
)
from monitor.tui.panels.base import ScrollPanel, ViewOptions, on_board

HOST_ROWS = 4
MIN_METER_WIDTH, MAX_METER_WIDTH = 3, 20  # cells
MIN_PICTURE_WIDTH, MAX_PICTURE_WIDTH = 8, 24  # cells of a meter beside a figure of the host
_BUSY = " busy"
_HOT = 85.0  # degrees Celsius; most data-center GPUs begin to slow down between 83 and 90


def _fraction(used: float | None, total: float | None) -> float | None:
    return used / total if used is not None and total else None


def _temperature(gpu: GpuRow) -> Span:
    if gpu.temperature is None:
        return units.UNKNOWN, "text"
    return f"{gpu.temperature:.0f} °C", "bad bold" if gpu.temperature >= _HOT else "text"


def _power(gpu: GpuRow, separator: str) -> str:
    power = units.UNKNOWN if gpu.power is None else f"{gpu.power:.0f}"
    return f"{power} W" if gpu.power_limit is None else f"{power}{separator}{gpu.power_limit:.0f} W"


def _clock(gpu: GpuRow) -> str:
    return units.UNKNOWN if gpu.sm_clock is None else f"{gpu.sm_clock:,} MHz"


def limits(gpu: GpuRow) -> str:
    """Return the active throttle reasons, in short; without a power cap, which is normal, and harmless reasons."""
    has_cause = HARDWARE_THERMAL in gpu.reasons or POWER_BRAKE in gpu.reasons
    reasons = [reason for reason in gpu.reasons if not (has_cause and reason == HARDWARE_SLOWDOWN)]
    known = [BY_NAME[reason] for reason in reasons if reason in BY_NAME]
    words = [reason.short for reason in known if reason.code is not None and reason.name != POWER_CAP]
    return ", ".join([*words, *(fit(reason, 30) for reason in reasons if reason not in BY_NAME)])


def names_width(gpus: Sequence[GpuRow]) -> int:
    """Return the cells of the longest name (` GPU 10 `), so that the columns of a list are aligned."""
    return max((len(f" GPU {gpu.index} ") for gpu in gpus), default=0)


def _meter_room(free: int) -> int:
    """Return the cells of a meter, the same in all rows; leaves room for `power cap` unless the meter gets short."""
    return min(MAX_METER_WIDTH, max(free - 2 - len(POWER_CAP), min(10, free)))


def gpu_line(gpu: GpuRow, width: int, names: int) -> Row:
    """Return the row of a GPU; the least important facts are left out if there is no room.

    Args:
        names: cells of the name column.
    """
    temperature, tone = _temperature(gpu)
    throttle = limits(gpu)
    facts: list[Row] = [
        [(column(units.percent(gpu.utilization), 4, right=True), "text bold")],
        [(column(units.size_of(gpu.memory_used, gpu.memory_total, "/"), 12, right=True), "text")],
        [(column(temperature, 5, right=True), tone)],
        [(column(_power(gpu, "/"), 9, right=True), "text")],
        [(column(_clock(gpu), 9, right=True), "text")],
    ]
    head: Row = [(column(f" GPU {gpu.index}", names), "text bold")]
    left = max(1, width - row_width(head) - MIN_METER_WIDTH)
    tail = separated(facts, left, ("  ", "text"))
    free = width - row_width(head) - row_width(tail)
    room = _meter_room(free)
    if _meter_room(free - len(_BUSY)) >= MIN_METER_WIDTH:
        facts[0].append((_BUSY, "muted"))
        tail, room = separated(facts, left, ("  ", "text")), _meter_room(free - len(_BUSY))
    if POWER_CAP in gpu.reasons:
        spare = width - row_width(head) - room - row_width(tail) - 2
        cap = next((words for words in (POWER_CAP, "cap") if len(words) <= spare), "")
        tail += [("  ", "text"), (cap, "muted")] if cap else []
    if throttle:  # in place of less important facts; the columns stay aligned in all rows
        reason: Row = [("  ", "text"), (fit(throttle, min(40, left // 2)), "warning")]
        used = row_width(head) + max(0, room) + row_width(reason)
        tail = [*separated(facts, max(1, width - used), ("  ", "text")), *reason]
    use = None if gpu.utilization is None else gpu.utilization / 100
    return [*head, *(meter(use, room) if room >= MIN_METER_WIDTH else []), *tail]


def gpu_block(gpu: GpuRow, recent: Sequence[float], width: int, slows: float | None = None) -> list[Row]:
    """Return the rows of a GPU where there are few of them.

    Args:
        recent: utilization in percent, oldest first.
        slows: the temperature at which it slows down, degrees Celsius; None if unknown.
    """
    simulated = " (simulated)" if gpu.simulated else ""
    throttle = limits(gpu)
    temperature, tone = _temperature(gpu)
    title: Row = [(f" GPU {gpu.index}  ", "text bold"), (fit((gpu.name or "") + simulated, 30), "muted")]
    room = max(6, min(24, width // 3))
    use: Row = [(" " * 7, "text"), (sparkline(recent, room, 100.0), "accent")]
    use += [(column(units.percent(gpu.utilization), 5, right=True), "text bold"), (" busy", "muted")]
    memory: Row = [(" " * 7, "text"), *meter(_fraction(gpu.memory_used, gpu.memory_total), room)]
    memory += [("  " + units.size_of(gpu.memory_used, gpu.memory_total), "text")]
    most = f" of {gpu.sm_clock_max:,}" if gpu.sm_clock_max and gpu.sm_clock else ""
    power, clock = _power(gpu, " of "), _clock(gpu)
    facts: list[Row] = [[(temperature, tone)], [(power, "text")], [(clock, "text")]]
    if 7 + sum(map(row_width, facts)) + 6 + len(most) <= width:
        facts[-1].append((most, "muted"))
    facts += [[(POWER_CAP, "muted")]] if POWER_CAP in gpu.reasons else []
    heat = "" if slows is None or gpu.temperature is None else f"{gpu.temperature:.0f} of {slows:.0f} °C"
    if heat and 7 + sum(map(row_width, facts)) + 3 * (len(facts) - 1) + len(heat) - len(temperature) <= width:
        facts[0] = [(heat, tone)]
    return [
        spread(title, [(fit(throttle, 40), "warning"), (" ", "text")] if throttle else [], width),
        use,
        memory,
        [(" " * 7, "text"), *separated(facts, max(1, width - 7), ("   ", "text"))],
    ]


def is_known(host: HostRow) -> bool:
    """Return whether there is any reading of the host."""
    return host.cpu is not None or host.memory_used is not None


def _labeled(label: str, value: str) -> Row:
    return [] if value == units.UNKNOWN else [(f"{label} ", "muted"), (value, "text")]


def _host_cells(host: HostRow, narrow: bool, pictures: int) -> list[tuple[str, list[Row]]]:
    """Return a table: name, then cells for the host, for the training's own part, and for further facts.

    Args:
        pictures: cells of a meter beside a figure; 0 for none.
    """
    cores = f" of {host.cores}{'' if narrow else ' cores'}" if host.cores else ""
    cpu: Row = [(units.percent(host.cpu), "text bold"), (cores, "muted")]
    memory: Row = [(units.size_of(host.memory_used, host.memory_total, "/" if narrow else " of "), "text")]
    if pictures:
        cpu = [*meter(_fraction(host.cpu, 100.0), pictures), (" ", "text"), *cpu]
        memory = [*meter(_fraction(host.memory_used, host.memory_total), pictures), (" ", "text"), *memory]
    tree = units.UNKNOWN if host.tree_cpu is None else f"{host.tree_cpu / 100:.1f} cores"
    processes = units.plural(host.tree_processes, "process", "processes") if host.tree_processes else ""
    load = "" if host.load1 is None else f"load {host.load1:.1f}"
    swap = f"swap {units.size(host.swap_used)}" if host.swap_used else ""
    read, write = ("r", "w") if narrow else ("read", "write")  # as in iostat; both matter more than the free space
    disk: list[Row] = _flows((read, host.disk_read), (write, host.disk_write))
    net: list[Row] = _flows(("in", host.net_in), ("out", host.net_out))
    rows = [
        ("CPU", [cpu, _labeled("training", tree), [(load, "muted")]]),
        ("RAM", [memory, _labeled("training", units.size(host.tree_rss)), [(processes, "muted")]]),
        ("disk", [*disk, _labeled("free", units.size(host.disk_free))]),
        ("net", [*net, [(swap, "warning")] if swap else []]),
    ]  # fmt: skip
    return [row for row in rows if any(row[1])]  # no row without a reading


def _flows(*flows: tuple[str, float | None]) -> list[Row]:
    """Return the cells of rates in and out; empty cells if both are unknown."""
    if all(value is None for _, value in flows):
        return [[] for _ in flows]
    return [[(f"{label} ", "muted"), (units.flow(value), "text")] for label, value in flows]


def _columns(table: list[tuple[str, list[Row]]], room: int) -> tuple[int, list[int]]:
    """Return how many columns fit into `room` cells (0: fewer than two), and the width of each."""
    widths = [max(row_width(cells[index]) for _, cells in table) + 2 for index in range(3)]
    return next((number for number in (3, 2) if sum(widths[:number]) - 2 <= room), 0), widths


def host_rows(host: HostRow, width: int) -> list[Row]:
    """Return the rows of CPU, RAM, disk and network, in columns if they fit."""
    names = 7 if width >= 46 else 6
    # Meters beside the figures if there is room; one more figure matters more.
    pictures = (MIN_PICTURE_WIDTH, 0) if width >= 60 else (0,)
    tables = [_host_cells(host, width < 46, wide) for wide in pictures]
    layouts = [_columns(table, width - names) for table in tables]
    columns, widths = max(layouts, key=lambda layout: layout[0])
    at = layouts.index((columns, widths))
    table, spare = tables[at], width - names - sum(widths) + 2
    if pictures[at] and columns == len(widths) and spare > 0:
        table = _host_cells(host, False, min(MAX_PICTURE_WIDTH, pictures[at] + spare))
        widths = _columns(table, width - names)[1]
    rows = []
    for label, cells in table:
        row: Row = [(column(f" {label}", names), "text bold")]
        if columns:
            padded = [
                [*cell, (" " * (wide - row_width(cell)), "text")] for cell, wide in zip(cells, widths, strict=True)
            ]
            row += [span for cell in padded[: columns - 1] for span in cell] + cells[columns - 1]
        else:
            row += separated([cell for cell in cells if cell], max(1, width - names), ("  ", "text"))
        rows.append(cut(row, width))
    return rows


@on_board("machine", 7, "GPUs and host", wide=(1, 4), middle=(1, 1), narrow=4)
class Machine(ScrollPanel):
    short = "GPUs"

    def data(self, view: View, options: ViewOptions) -> object:
        report = view.report
        beside = report.run.ranks, report.outcome.state
        return report.gpus, report.host, view.details.gpus, beside

    def heading(self, view: View, options: ViewOptions) -> str:
        if not view.report.gpus:
            return "Host"
        # Once a run is over, its last reading would show an idle card.
        means = view.report.outcome.state != "running" and any(gpu.over_steps for gpu in view.report.gpus)
        return "GPUs (mean over steps), host" if means else "GPUs and host"

    def has_place(self, view: View, options: ViewOptions) -> bool:
        report = view.report
        return bool(report.gpus) or is_known(report.host) or report.outcome.state == "running"

    def aside(self, view: View, options: ViewOptions) -> Row:
        return [(few, "muted")] if (few := fewer_seen(view)) else []

    def everything(self, view: View, options: ViewOptions, width: int) -> list[Row]:
        room = self.size.height - 1
        rows = machine_rows(view, width, room)
        return rows if len(rows) <= room else machine_rows(view, width - 2, room)  # beside the arrow


def fewer_seen(view: View) -> str:
    """Return a note if there are fewer visible GPUs than ranks (other hosts, or shared GPUs); else empty."""
    seen, ranks = len(view.report.gpus), view.report.run.ranks
    return f"{units.plural(seen, 'GPU', 'GPUs')} visible, {ranks:,} ranks" if 0 < seen < ranks else ""


def machine_rows(view: View, width: int, height: int) -> list[Row]:
    """Return the rows of GPUs and host, as detailed as `height` allows; they may be more than that."""
    gpus = view.report.gpus
    names = names_width(gpus)
    if len(gpus) * 4 + HOST_ROWS <= height:
        rows = [row for gpu in gpus for row in gpu_block(gpu, _recent(view, gpu, width), width, slows_at(view, gpu))]
    elif len(gpus) <= max(2, height - HOST_ROWS):
        rows = [gpu_line(gpu, width, names) for gpu in gpus]
    else:
        rows = [*gpu_ranges(gpus, width), *(gpu_line(gpu, width, names) for gpu in gpus if limits(gpu))]
    if is_known(view.report.host):
        rows += host_rows(view.report.host, width)
    else:
        running = view.report.outcome.state == "running"
        why = "no host readings yet" if running else "host not recorded (use `trainmon run`)"
        rows += wrap([(f" {why}", "muted")], width - 1, 1)
    note = printable((view.report.host.note or "")[:400])
    if note:
        whole = wrap([(" ", "text"), (note, "muted")], width - 1, 1, 3)
        brief = wrap([(" ", "text"), (note.partition(":")[0], "muted")], width - 1, 1, 3)  # without the cause
        rows += whole if len(rows) + len(whole) <= height else brief
    elif not gpus:
        rows.append([(" no GPU found", "muted")])
    return rows


def slows_at(view: View, gpu: GpuRow) -> float | None:
    """Return the temperature at which the GPU lowers its clock, degrees Celsius; None if unknown."""
    detail = view.details.gpus.get(gpu.uuid)
    return detail.readings[-1].slows_at if detail is not None and detail.readings else None


def _recent(view: View, gpu: GpuRow, most: int) -> list[float]:
    detail = view.details.gpus.get(gpu.uuid)
    return figure_values(detail.readings[-most:], "utilization") if detail is not None else []


def gpu_ranges(gpus: Sequence[GpuRow], width: int) -> list[Row]:
    """Return many GPUs in two rows, as ranges of their figures."""

    def span(name: str, unit: str, scale: float = 1.0) -> Row:
        readings = [getattr(gpu, name) for gpu in gpus]
        known = [value / scale for value in readings if value is not None and math.isfinite(value)]
        if not known:
            return [(f"{units.UNKNOWN}{unit}", "text")]
        low, high = f"{min(known):,.0f}", f"{max(known):,.0f}"
        return [(low if low == high else f"{low}–{high}", "text bold"), (unit, "text")]

    head: Row = [(f" {len(gpus)} GPUs  ", "text bold")]
    indent = row_width(head)
    busy, memory = span("utilization", "% busy"), span("memory_used", " GiB", 1024**3)
    totals = {gpu.memory_total for gpu in gpus}
    total = totals.pop() if len(totals) == 1 else None
    if total is not None:
        whole = span("memory_used", f" of {total / 1024**3:,.0f} GiB", 1024**3)
        memory = whole if indent + row_width(busy) + 2 + row_width(whole) <= width else memory
    rest = [span("temperature", " °C"), span("power", " W"), span("sm_clock", " MHz")]
    return [
        [*head, *separated([busy, memory], width - indent, ("  ", "text"))],
        [(" " * indent, "text"), *separated(rest, width - indent, ("  ", "text"))],
    ]
