"""Trouble around a GPU that lowers no clock: errors, a slow link, other people's programs. Pure."""

from __future__ import annotations

from collections.abc import Callable

from monitor import xids
from monitor.diagnosis import gpu
from monitor.diagnosis.gpu import GpuEvidence
from monitor.model.report import Finding
from monitor.model.throttle import GpuWatch
from monitor.units import duration, plural

SHOWN = 4
MUCH_LESS = 0.5  # of the lanes: 8 of 16 is how many boards are wired, and training rarely notices


def gpu_error(evidence: GpuEvidence) -> Finding | None:
    """The driver told of errors: of the program, or of the hardware."""
    lines: list[str] = []
    troubled: list[GpuWatch] = []
    grave = programs = False
    for watch in evidence.watches():
        found, its_grave = _errors(watch)
        if not found:
            continue
        troubled.append(watch)
        lines += [f"GPU {watch.index}: {line}" for line in found]
        grave |= its_grave
        programs |= set(watch.errors.xids) <= xids.OF_THE_PROGRAM and len(found) == len(watch.errors.xids)
    if not troubled:
        return None
    named = f"GPU {troubled[0].index} reports" if len(troubled) == 1 else f"{len(troubled)} GPUs report"
    advice = (
        "Look at the program first: CUDA_LAUNCH_BLOCKING=1 and compute-sanitizer name the kernel."
        if programs and not grave
        else "Save a checkpoint, see dmesg and nvidia-smi -q, and have the card reset or replaced before trusting it."
    )
    first = lines[0].partition(": ")[2] if len(troubled) == 1 else lines[0]
    what = f"{named} an error" if len(lines) == 1 else f"{named} {plural(len(lines), 'error', 'errors')}"
    return Finding("gpu-error", "critical" if grave else "warning", f"{what}: {first}", lines, advice)


def _errors(watch: GpuWatch) -> tuple[list[str], bool]:
    """The errors in words, and whether one of them is of the hardware's grave kind."""
    errors = watch.errors
    found = [xids.in_words(code) for code in sorted(errors.xids)]
    grave = bool(xids.GRAVE & set(errors.xids))
    if errors.ecc_now is not None and errors.ecc_before is not None and errors.ecc_now > errors.ecc_before:
        more = errors.ecc_now - errors.ecc_before
        found.append(plural(more, "uncorrected memory error", "uncorrected memory errors") + " during this run")
        grave = True
    if errors.remap_failed:
        found.append("a bad row of memory could not be replaced")
        grave = True
    elif errors.remap_pending:
        found.append("a row of memory waits for a reset to be replaced")
    return found, grave


def pcie_downtrained(evidence: GpuEvidence) -> Finding | None:
    """The link to the host is slower than card and slot allow, even under load."""
    rows = evidence.of("pcie-downtrained")
    if not rows:
        return None
    links = [watch.link for watch in evidence.watches() if any(row.uuid == watch.uuid for row in rows)]
    bad = any(
        (link.generation or 0) < (link.generation_max or 0) or (link.lanes or 0) < MUCH_LESS * (link.lanes_max or 0)
        for link in links
    )
    goes_on = any(row.end is None for row in rows)
    worst = rows[0]
    return Finding(
        "pcie-downtrained",
        gpu.severity(evidence, rows) if bad and goes_on else "info",
        f"GPU {worst.index}'s PCIe link {'is' if goes_on else 'was'} slower than it could be: {worst.detail}",
        [f"GPU {row.index}: {row.detail}, under load" for row in rows[:SHOWN]],
        "It counts where much is copied (data, offloading, all-reduce without NVLink). Reseat the card, see the slot's"
        " wiring and the BIOS; risers and bifurcated slots halve it.",
    )


def gpu_shared(evidence: GpuEvidence) -> Finding | None:
    """Processes that are not this run's hold memory of its GPUs, and take their share of the time."""
    rows = evidence.of("gpu-shared")
    if not rows:
        return None
    worst = rows[0]
    goes_on = worst.end is None
    return Finding(
        "gpu-shared",
        gpu.severity(evidence, rows),
        f"GPU {worst.index} {'is' if goes_on else 'was'} shared with processes of others: {worst.detail}",
        [f"GPU {row.index}: {row.detail}, seen for {duration(row.seconds)}" for row in rows[:SHOWN]],
        "Their kernels and yours take turns. Find out whose they are (nvidia-smi, ps -o user= -p PID), or choose a free"
        " GPU with CUDA_VISIBLE_DEVICES.",
    )


GPU_RULES: tuple[Callable[[GpuEvidence], Finding | None], ...] = (
    gpu.thermal_throttle,
    gpu.power_brake,
    gpu.hw_slowdown,
    gpu.power_capped,
    gpu.low_clocks,
    pcie_downtrained,
    gpu_error,
    gpu_shared,
)
"""Every rule on GPUs."""
