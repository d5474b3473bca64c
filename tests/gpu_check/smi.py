"""Our readings of the driver against those of nvidia-smi, which asks the same driver."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from monitor.sources.gpu_source import GpuSource
from tests.gpu_check.row import TOLD, Row, judged
from trainhooks.protocol.events import Gpu

MIB = 2.0**20


@dataclass(frozen=True)
class Reading:
    """A reading by both its names."""

    smi: str
    ours: str
    scale: float = 1.0  # ours, in nvidia-smi's unit
    # What may lie between two moments a fraction of a second apart, beyond the range that ours showed before and after.
    slack: float = 0.0


READINGS = (
    Reading("utilization.gpu", "utilization", slack=15.0),
    Reading("utilization.memory", "memory_utilization", slack=15.0),
    Reading("memory.used", "memory_used", 1 / MIB, slack=64.0),
    Reading("memory.reserved", "memory_reserved", 1 / MIB, slack=2.0),
    Reading("memory.total", "memory_total", 1 / MIB, slack=1.0),
    Reading("temperature.gpu", "temperature", slack=2.0),
    Reading("temperature.memory", "memory_temperature", slack=2.0),
    Reading("power.draw", "power", slack=40.0),
    Reading("power.draw.average", "power_average", slack=40.0),
    Reading("enforced.power.limit", "power_limit", slack=0.1),
    Reading("power.default_limit", "power_limit_default", slack=0.1),
    Reading("clocks.sm", "sm_clock", slack=90.0),
    Reading("clocks.max.sm", "sm_clock_max"),
    Reading("clocks.mem", "memory_clock", slack=90.0),
    Reading("clocks.max.mem", "memory_clock_max"),
    Reading("pstate", "pstate"),
    Reading("pcie.link.gen.current", "pcie_gen"),
    Reading("pcie.link.gen.max", "pcie_gen_max"),
    Reading("pcie.link.width.current", "pcie_width"),
    Reading("pcie.link.width.max", "pcie_width_max"),
    Reading("ecc.errors.corrected.volatile.total", "ecc_corrected"),
    Reading("ecc.errors.uncorrected.volatile.total", "ecc_errors"),
)
REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")  # the name since driver 535, and before

Told = dict[str, dict[str, str]]  # by UUID: what nvidia-smi says of each reading
Ask = Callable[[list[str]], list[str] | None]


def ask(names: list[str]) -> list[str] | None:
    """The rows of nvidia-smi's answer, a GPU each; None where it knows one of the names not, or is not there."""
    command = ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.splitlines() if done.returncode == 0 else None


def told(asked: Ask = ask) -> Told:
    """Everything in one question; where an older nvidia-smi refuses that for one name, each reading in its own."""
    names = [reading.smi for reading in READINGS] + [REASONS[0]]
    rows = asked(["uuid", *names])
    if rows is not None:
        return {uuid: dict(zip(names, each, strict=True)) for uuid, *each in map(_cells, rows)}
    found: Told = {}
    for name in (*names, REASONS[1]):
        for uuid, value in map(_cells, asked(["uuid", name]) or ()):
            found.setdefault(uuid, {})[name] = value
    return found


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.split(",")]


def compare(before: Gpu, theirs: Mapping[str, str], after: Gpu) -> list[Row]:
    """What nvidia-smi says of a GPU against our readings just before and just after."""
    rows = []
    for reading in READINGS:
        name = f"GPU {before.index} {reading.smi}"
        ours = [value for value in (getattr(before, reading.ours), getattr(after, reading.ours)) if value is not None]
        number = _number(theirs.get(reading.smi))
        if number is None or not ours:
            # Neither knows it: some cards lack it. An nvidia-smi without that name tells nothing against us.
            shown = _span(ours, reading.scale) if ours else "not told"
            agreed = number is None and not ours
            rows.append(judged(name, shown, theirs.get(reading.smi, "not told"), agreed or reading.smi not in theirs))
            continue
        low, high = min(ours) * reading.scale - reading.slack, max(ours) * reading.scale + reading.slack
        rows.append(judged(name, _span(ours, reading.scale), f"{number:g}", low - 0.51 <= number <= high + 0.51))
    return [*rows, *_reasons(before, theirs, after)]


def _reasons(before: Gpu, theirs: Mapping[str, str], after: Gpu) -> list[Row]:
    """The bits that stood before and after must be told by both; one that comes or goes may be told by either."""
    text = next((theirs[name] for name in REASONS if theirs.get(name, "").startswith("0x")), None)
    if text is None or before.reasons is None or after.reasons is None:
        return [Row(f"GPU {before.index} clock event reasons", "not told", str(text), TOLD)]
    mask, steady, ever = int(text, 16), before.reasons & after.reasons, before.reasons | after.reasons
    good = mask & steady == steady and mask | ever == ever
    return [judged(f"GPU {before.index} clock event reasons", f"{ever:#x}", f"{mask:#x}", good)]


def _number(text: str | None) -> float | None:
    """What nvidia-smi prints, `P0` and `[N/A]` among it."""
    try:
        return float((text or "").removeprefix("P"))
    except ValueError:
        return None


def _span(values: list[float], scale: float) -> str:
    low, high = min(values) * scale, max(values) * scale
    return f"{low:,.6g}" if low == high else f"{low:,.6g} to {high:,.6g}"


def check(asked: Ask = ask) -> list[Row]:
    """All GPUs, read just before and just after nvidia-smi is asked."""
    before, theirs, after = _by_uuid(), told(asked), _by_uuid()
    if not theirs:
        return [judged("nvidia-smi --query-gpu", f"{len(before)} GPUs", "no answer", False)]
    rows = [judged("GPUs seen", str(len(before)), str(len(theirs)), before.keys() == theirs.keys())]
    for uuid in sorted(before.keys() & theirs.keys() & after.keys(), key=lambda uuid: before[uuid].index):
        rows += compare(before[uuid], theirs[uuid], after[uuid])
    return rows


def _by_uuid() -> dict[str, Gpu]:
    """The first reading of a source, which has all that comes rarely; each card for itself."""
    source = GpuSource()
    try:
        return {gpu.uuid: gpu for gpu in source.read(time.monotonic()).gpus if gpu.mig_of is None}
    finally:
        source.close()
