"""The GPUs and the host of a report."""

from __future__ import annotations

from collections.abc import Iterable

from monitor.model.report import GpuRow, Report
from monitor.reports.table import Section
from monitor.units import duration, plural, size, size_of
from trainhooks.events import clean


def gpus(report: Report) -> Section | None:
    if not report.gpus:
        return None
    over = report.outcome.state != "running" and any(gpu.over_steps for gpu in report.gpus)
    title = "GPUs over the steps" if over else "GPUs"
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
    """`busy 94 % (86 to 100), SMs 88 % (81 to 90)`: means over the steps, and the least and most of a reading."""
    parts = []
    for name, label, unit, factor in _OVER_STEPS:
        told = gpu.over_steps.get(name)
        if told is not None:
            mean, low, high = (f"{factor * each:,.0f}" for each in (told.mean, told.min, told.max))
            parts.append(f"{label} {mean} {unit}" + (f" ({low} to {high})" if low != high else ""))
    return ", ".join(parts)


def _gpu(gpu: GpuRow) -> Iterable[str]:
    limit = f" of {gpu.power_limit:.0f} W" if gpu.power_limit else ""
    fastest = f" of {gpu.sm_clock_max:,} MHz" if gpu.sm_clock_max else ""
    facts = [
        f"{gpu.utilization:.0f} % busy" if gpu.utilization is not None else "",
        f"{size_of(gpu.memory_used, gpu.memory_total)}" if gpu.memory_used is not None else "",
        f"{gpu.temperature:.0f} °C" if gpu.temperature is not None else "",
        f"{gpu.power:.0f} W{limit}" if gpu.power is not None else "",
        f"{gpu.sm_clock:,} MHz{fastest}" if gpu.sm_clock is not None else "",
    ]
    told = ", ".join(fact for fact in facts if fact) or "the driver tells nothing of it"
    yield f"{gpu.index} {clean(gpu.name or gpu.uuid)}: {told}" + (" SIMULATED" if gpu.simulated else "")
    ranges = _ranges(gpu)
    if ranges:
        yield f"    over the steps: {ranges}"
    held = [f"{clean(reason)} for {duration(seconds)}" for reason, seconds in gpu.throttle.items() if seconds]
    if held:
        yield "    held back: " + ", ".join(held)


def _allocator(report: Report) -> Iterable[str]:
    """What torch holds of the memory that the driver counts as used: the rest is CUDA's own, or another's."""
    torch = report.run.facts.get("torch")
    told = torch.get("gpu_memory") if isinstance(torch, dict) else None
    found = told if isinstance(told, dict) else {}
    sizes = [found.get(name) for name in ("allocated", "reserved", "peak_allocated", "peak_reserved", "total")]
    if all(type(each) is int and each >= 0 for each in sizes):
        allocated, reserved, most_allocated, most_reserved, total = map(size, sizes)
        yield (
            f"torch, of {total}: {allocated} allocated and {reserved} reserved; at most {most_allocated} and "
            f"{most_reserved} (of the device that it holds most on)"
        )


def host(report: Report) -> Section | None:
    now = report.host
    lines = []
    machine = [
        f"CPU {now.cpu:.0f} % of {now.cores} cores" if now.cpu is not None and now.cores else "",
        f"load {now.load1:.1f}" if now.load1 is not None else "",
        f"memory {size_of(now.memory_used, now.memory_total)}" if now.memory_used is not None else "",
        f"swap {size(now.swap_used)}" if now.swap_used else "",
        f"disk {size(now.disk_free)} free" if now.disk_free is not None else "",
    ]
    tree = [
        f"{now.tree_cpu:.0f} % of one core" if now.tree_cpu is not None else "",
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
