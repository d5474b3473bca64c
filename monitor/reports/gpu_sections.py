"""The sections of a report that its GPUs decide: clock and phases, how busy the device was, the bottleneck, MFU."""

from __future__ import annotations

from collections.abc import Iterable

from monitor.model.device import account_table
from monitor.model.device.device_use import bound_text, busy_text
from monitor.model.report import GpuRow, PhaseRow, Report
from monitor.reports.listings import Section
from monitor.units import duration, plural, share, size, size_of
from trainhooks.protocol.limits import clean

HOST_ONLY = "host clock only: Python time, not GPU time"


def clocks(report: Report) -> list[str]:
    """Return which clock measured the phases, if a GPU is used."""
    device = report.device
    if device is None:
        return []
    if device.clock is None:
        return [HOST_ONLY]
    lost = f" ({device.dropped:,} not timed)" if device.dropped else ""
    timed = plural(device.timed_steps, "step", "steps")
    return [f"GPU clock: CUDA events in {timed}{lost}, weighted to all steps"]


def phases(report: Report) -> Section | None:
    if not report.phases:
        return None
    return Section("Step time by phase", clocks(report), _phase_rows(report.phases), left=2)


def host_phases(report: Report) -> Section | None:
    """Return the phases by the host's clock, waits for the device included."""
    if report.device is None or report.device.clock is None or not report.host_phases:
        return None
    note = "`other` includes waits for the GPU, which cost nothing while it is busy"
    return Section("Host time by phase", [note], _phase_rows(report.host_phases), left=2)


def _phase_rows(phases: list[PhaseRow]) -> list[list[str]]:
    rows = [["phase", "clock", "share", "mean", "p50", "p95", "max", "steps"]]
    for row in phases:
        times = [duration(value) for value in (row.mean, row.p50, row.p95, row.max)]
        rows.append([clean(row.name, 40), clean(row.clock, 8), share(row.share), *times, f"{row.count:,}"])
    return rows


def account(report: Report) -> Section | None:
    """Return the breakdown of the device's time and the bottleneck."""
    device = report.device
    if device is None:
        return None
    lines = [f"{bound_text(device)}; GPU {busy_text(device)} of step time"]
    driver = [
        f"{name} {share(value)}"
        for name, value in (
            ("SMs", device.sm_active),
            ("tensor cores", device.tensor_active),
            ("memory", device.memory_active),
        )
        if value is not None
    ]
    if driver:
        lines.append(f"active (driver): {', '.join(driver)} ({plural(device.readings, 'reading', 'readings')})")
    if device.queue_empty is not None:
        lines.append(f"host not ahead of the GPU in {share(device.queue_empty)} of step time")
    lines.append(account_table.gain_text(device) or "gain without idle time unknown: no SM activity, no CUDA events")
    lines += [*account_table.outside_lines(device), *account_table.table_notes(device)]
    return Section("GPU time in steps", lines, account_table.table_rows(device), left=2)


def mfu(report: Report) -> Section | None:
    """Return the MFU calculation; where GPUs are used and the MFU is unknown, the reason."""
    throughput = report.throughput
    own = [clean(throughput.mfu_of_program)] if throughput.mfu_of_program else []
    if throughput.mfu_formula:
        return Section("MFU calculation", [*(clean(line) for line in throughput.mfu_formula), *own])
    return Section("MFU", [f"unknown: {clean(throughput.mfu_unknown)}", *own]) if throughput.mfu_unknown else None


def below_peak(report: Report) -> Section | None:
    """Return the losses from the hardware's peak down to the MFU."""
    device, mfu = report.device, report.throughput.mfu
    if device is None or mfu is None or not device.below_peak:
        return None
    rows = [["of the peak", "share"], *([row.what, f"-{share(row.share)}"] for row in device.below_peak)]
    return Section("Losses against the hardware peak", [], [*rows, ["MFU", share(mfu)]])


# The GPUs and the host of a report.


def gpus(report: Report) -> Section | None:
    if not report.gpus:
        return None
    over = report.outcome.state != "running" and any(gpu.over_steps for gpu in report.gpus)
    title = "GPUs (mean over steps)" if over else "GPUs"
    return Section(title, [*(line for gpu in report.gpus for line in _gpu(gpu)), *_allocator(report)])


# Figures over the steps: their names, units, and what they are multiplied by to be in these.
_OVER_STEPS = (
    ("utilization", "busy", "%", 1.0),
    ("sm_active", "SMs", "%", 1.0),
    ("tensor_active", "tensor cores", "%", 1.0),
    ("memory_active", "memory", "%", 1.0),
    ("power", "power", "W", 1.0),
    ("sm_clock", "clock", "MHz", 1.0),
    ("temperature", "temperature", "°C", 1.0),
    ("pcie_rx", "PCIe in", "MB/s", 1e-6),
)


def _ranges(gpu: GpuRow) -> str:
    """Return `busy 94% (86 to 100), SMs 88% (81 to 90)`: means over the steps, lowest and highest reading."""
    parts = []
    for name, label, unit, factor in _OVER_STEPS:
        over = gpu.over_steps.get(name)
        if over is not None:
            mean, low, high = (f"{factor * figure:,.0f}" for figure in (over.mean, over.min, over.max))
            spaced = unit if unit == "%" else f" {unit}"
            parts.append(f"{label} {mean}{spaced}" + (f" ({low} to {high})" if low != high else ""))
    return ", ".join(parts)


def _gpu(gpu: GpuRow) -> Iterable[str]:
    limit = f" of {gpu.power_limit:.0f} W" if gpu.power_limit else ""
    fastest = f" of {gpu.sm_clock_max:,} MHz" if gpu.sm_clock_max else ""
    facts = [
        f"{gpu.utilization:.0f}% busy" if gpu.utilization is not None else "",
        f"{size_of(gpu.memory_used, gpu.memory_total)}" if gpu.memory_used is not None else "",
        f"{gpu.temperature:.0f} °C" if gpu.temperature is not None else "",
        f"{gpu.power:.0f} W{limit}" if gpu.power is not None else "",
        f"{gpu.sm_clock:,} MHz{fastest}" if gpu.sm_clock is not None else "",
    ]
    text = ", ".join(fact for fact in facts if fact) or "no driver readings"
    yield f"{gpu.index} {clean(gpu.name or gpu.uuid)}: {text}" + (" SIMULATED" if gpu.simulated else "")
    ranges = _ranges(gpu)
    if ranges:
        yield f"    over the steps: {ranges}"
    held = [f"{clean(reason)} for {duration(seconds)}" for reason, seconds in gpu.throttle.items() if seconds]
    if held:
        yield "    throttled: " + ", ".join(held)


def _allocator(report: Report) -> Iterable[str]:
    """Return torch's part of the memory that the driver reports as used; the rest is CUDA's or other programs'."""
    memory = report.run.facts.torch.gpu_memory
    sizes = (memory.allocated, memory.reserved, memory.peak_allocated, memory.peak_reserved, memory.total)
    if None not in sizes:
        allocated, reserved, most_allocated, most_reserved, total = map(size, sizes)
        yield (
            f"torch, of {total}: {allocated} allocated and {reserved} reserved; peak {most_allocated} and "
            f"{most_reserved} (fullest device)"
        )
    owners = report.device.memory if report.device is not None else None
    if owners is not None and owners.others is not None:
        yield (
            f"    at the peak: weights {size(owners.weights)}, gradients {size(owners.gradients)}, optimizer"
            f" {size(owners.optimizer)}, activations and others {size(owners.others)}; cached {size(owners.cached)}"
        )


def host(report: Report) -> Section | None:
    now = report.host
    lines = []
    machine = [
        f"CPU {now.cpu:.0f}% of {now.cores} cores" if now.cpu is not None and now.cores else "",
        f"load {now.load1:.1f}" if now.load1 is not None else "",
        f"memory {size_of(now.memory_used, now.memory_total)}" if now.memory_used is not None else "",
        f"swap {size(now.swap_used)}" if now.swap_used else "",
        f"disk {size(now.disk_free)} free" if now.disk_free is not None else "",
    ]
    tree = [
        f"{now.tree_cpu:.0f}% of one core" if now.tree_cpu is not None else "",
        f"{size(now.tree_rss)}" if now.tree_rss is not None else "",
        plural(now.tree_processes, "process", "processes") if now.tree_processes else "",
        plural(now.tree_threads, "thread", "threads") if now.tree_threads else "",
    ]
    for label, facts in (("machine", machine), ("training", tree)):
        if any(facts):
            lines.append(f"{label}: " + ", ".join(fact for fact in facts if fact))
    if now.note:
        lines.append(clean(now.note))
    return Section("Host, at the last reading", lines) if lines else None
