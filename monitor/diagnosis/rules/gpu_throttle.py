"""GPU hardware: clocks limited by heat, power or locks, errors, slow links, other programs on the card. Pure."""

from __future__ import annotations

from collections.abc import Callable

from monitor import gpu_lines
from monitor.diagnosis.judge import MIN_COST
from monitor.diagnosis.rule import COMPUTING, Family, GpuEvidence, Suppress, lost_seconds, rule
from monitor.model.device.throttle_watch import GpuWatch, ThrottleEvent
from monitor.model.report import Finding
from monitor.units import duration, plural, share

MAX_EVENTS = 4  # throttle events shown one by one
MAX_STEPS = 20

# A slower GPU makes computing take longer, whatever the program does. A remark on a clock that hardly costs anything,
# or that is the same since the start, explains no more than it costs. So does one where no phase is known: whether it
# is the computing that takes longer, is not known either.
SLOWER_STEPS = (
    Suppress(("slow-steps", "slow-drift"), culprits=COMPUTING),
    Suppress(("slow-steps", "slow-drift"), culprits=(*COMPUTING, None), if_info=True, if_most=True),
)


@rule("thermal-throttle", Family.GPU, on_gpus=True, suppresses=SLOWER_STEPS)
def thermal_throttle(evidence: GpuEvidence) -> Finding | None:
    """Find clocks lowered by heat."""
    return _throttle_finding(
        evidence,
        "thermal-throttle",
        "limited by heat",
        "Improve cooling: airflow, dust, fans, room temperature, neighboring load. A slightly lower power limit"
        " (nvidia-smi -pl) often costs less than the heat does.",
        _temperature,
    )


@rule("power-brake", Family.GPU, on_gpus=True, suppresses=SLOWER_STEPS)
def power_brake(evidence: GpuEvidence) -> Finding | None:
    """Find clocks lowered by the machine's power supply."""
    return _throttle_finding(
        evidence,
        "power-brake",
        "limited by the power brake",
        "The machine's power supply requests less power: have its power supplies, cables and the rack's power budget"
        " checked.",
    )


@rule("hw-slowdown", Family.GPU, on_gpus=True, suppresses=SLOWER_STEPS)
def hw_slowdown(evidence: GpuEvidence) -> Finding | None:
    """Find clocks cut by the board without a more specific reason."""
    return _throttle_finding(
        evidence,
        "hw-slowdown",
        "limited by hardware slowdown",
        "The board protects itself from heat, a power brake or overcurrent: check temperatures, power cables and"
        " nvidia-smi -q -d PERFORMANCE while it lasts.",
    )


@rule("power-capped", Family.GPU, on_gpus=True, suppresses=SLOWER_STEPS)
def power_capped(evidence: GpuEvidence) -> Finding | None:
    """Find clocks lowered by the power limit beyond what is normal on a busy GPU. Information: limits do this."""
    return _throttle_finding(
        evidence,
        "power-capped",
        "limited by power",
        "Normal for dense work. If the limit was lowered, an administrator can raise it (nvidia-smi -pl).",
        _power_limit,
        is_normal=True,
    )


@rule("low-clocks", Family.GPU, on_gpus=True, suppresses=SLOWER_STEPS)
def low_clocks(evidence: GpuEvidence) -> Finding | None:
    """Find full load at a low clock without a reason that requires it: locked clocks, most often."""
    rows = evidence.events_of("low-clocks")
    by_hand = all(gpu_lines.set_by_hand(row.bits) for row in rows)
    unknown = 0
    for row in rows:
        unknown |= gpu_lines.unknown_bits(row.bits)
    finding = _throttle_finding(
        evidence,
        "low-clocks",
        "low, as application clocks are set" if by_hand else "low, throttle reason unavailable",
        "Check for locked clocks: nvidia-smi -q -d CLOCK. nvidia-smi -rgc and -rac reset locks and application clocks.",
    )
    if finding is not None and unknown:
        finding.evidence.append(f"unknown throttle reason of the driver: {hex(unknown)}")
    return finding


def _throttle_finding(
    evidence: GpuEvidence,
    code: str,
    what: str,
    advice: str,
    line: Callable[[GpuWatch], str] | None = None,
    is_normal: bool = False,
) -> Finding | None:
    """Return one finding for all throttle events of this code.

    Args:
        what: completes "clock ...".
        line: makes one more line of evidence from a `GpuWatch`, or "" for none.
        is_normal: whether healthy GPUs have it, too.
    """
    rows = evidence.events_of(code)
    if not rows:
        return None
    worst = rows[0]
    open_gpus = {row.uuid for row in rows if row.last_seen is None}
    gpus = open_gpus or {row.uuid for row in rows}
    words = ", ".join(part for part in (worst.clock_words(), worst.steps_words()) if part)
    name = f"GPU {worst.index} clock" if len(gpus) == 1 else f"{len(gpus)} GPUs: clock"
    lines = [_event_line(evidence, row) for row in rows[:MAX_EVENTS]]
    if len(rows) > MAX_EVENTS:
        lines.append(f"{plural(len(rows) - MAX_EVENTS, 'more event', 'more events')}")
    if line is not None:
        affected = {row.uuid for row in rows}
        lines += [text for watch in evidence.watches() if watch.uuid in affected and (text := line(watch))]
    first, last = worst.effect.first, worst.effect.last
    lost = lost_fraction(evidence, rows)
    now = [part for row in rows if row.last_seen is None and (part := _lost_part(row)) is not None]
    cost = max(now, default=lost)  # while it lasts
    own = severity(evidence, rows) if cost is None else "info" if cost < MIN_COST else ""  # shown, however short it was
    return Finding(
        code=code,
        severity="info" if is_normal else own,
        title=f"{name} {what}{'' if open_gpus else ' (ended)'}" + (f": {words}" if words else ""),
        evidence=lines,
        advice=advice,
        cost=cost,
        outside=True,
        lost_fraction=lost,
        steps=[] if first is None or last is None else list(range(first, last + 1)[:MAX_STEPS]),
        over=not open_gpus,  # it may return: until then the remaining steps gain nothing
    )


def severity(evidence: GpuEvidence, rows: list[ThrottleEvent]) -> str:
    """Return `info` where it was short and is over, else `warning`: how much it costs is unknown."""
    seconds: dict[str, float] = {}
    for row in rows:
        seconds[row.uuid] = seconds.get(row.uuid, 0.0) + row.seconds
    is_open = any(row.end is None for row in rows)
    is_short = not is_open and evidence.wall and max(seconds.values()) < MIN_COST * evidence.wall
    return "info" if is_short else "warning"


def _lost_part(row: ThrottleEvent) -> float | None:
    """Return the share of its own time that a throttle event costs; None where unknown."""
    lost = lost_seconds(row)
    return None if lost is None or not row.seconds else lost / row.seconds


def lost_fraction(evidence: GpuEvidence, rows: list[ThrottleEvent]) -> float | None:
    """Return the share of the run that a fix gains at most. GPUs wait for each other, so the worst one counts."""
    lost: dict[str, float] = {}
    for row in rows:
        seconds = lost_seconds(row)
        if seconds is not None:
            lost[row.uuid] = lost.get(row.uuid, 0.0) + seconds
    return min(1.0, max(lost.values()) / evidence.wall) if lost and evidence.wall else None


def _event_line(evidence: GpuEvidence, row: ThrottleEvent) -> str:
    """Return `GPU 3 hardware thermal for 20.0 s, 1,980 → 1,290 MHz (min 1,200), steps 120 to 150, 18% longer`."""
    parts = [f"GPU {row.index} {row.reason} for {duration(row.seconds)}"]
    if clock := row.clock_words():
        lowest = row.clock_lowest
        parts.append(clock + (f" (min {lowest:,})" if lowest is not None and lowest != row.clock_to else ""))
    effect = row.effect
    if effect.steps:
        parts.append(
            f"step {effect.first:,}" if effect.first == effect.last else f"steps {effect.first:,} to {effect.last:,}"
        )
        if effect.slower is not None:
            parts.append(f"{share(abs(effect.slower))} {'longer' if effect.slower >= 0 else 'shorter'}")
    if row.others is not None:
        parts.append(f"similar GPUs at {row.others:,} MHz meanwhile")
    if evidence.is_visible(row):
        state = "; ongoing" if row.end is None else "; until the end"
    else:
        state = "; ended a moment ago" if row.end is None else ""
    return ", ".join(parts) + state


def _temperature(watch: GpuWatch) -> str:
    if watch.hottest is None:
        return ""
    limit = f"; throttles from {watch.slows_at:.0f} °C" if watch.slows_at is not None else ""
    return f"GPU {watch.index} max {watch.hottest:.0f} °C under load{limit}"


def _power_limit(watch: GpuWatch) -> str:
    if watch.power_limit is None:
        return ""
    default = watch.power_limit_default
    default_words = f" (default {default:.0f} W)" if default is not None and default != watch.power_limit else ""
    return f"GPU {watch.index} power limit {watch.power_limit:.0f} W{default_words}"


# Problems that lower no clock: errors, a slow link, other programs.

MIN_LANES_SHARE = 0.5  # of the lanes: 8 of 16 is how many boards are wired, and training rarely notices


# Before all others: it ends the run, or falsifies its results.
@rule("gpu-error", Family.GPU, on_gpus=True, priority=1)
def gpu_error(evidence: GpuEvidence) -> Finding | None:
    """Find errors reported by the driver: of the program, or of the hardware."""
    lines: list[str] = []
    troubled: list[GpuWatch] = []
    is_critical = by_program = False
    for watch in evidence.watches():
        errors, has_critical = _errors(watch)
        if not errors:
            continue
        troubled.append(watch)
        lines += [f"GPU {watch.index}: {line}" for line in errors]
        is_critical |= has_critical
        xids = set(watch.errors.xids)
        by_program |= xids <= gpu_lines.OF_THE_PROGRAM and len(errors) == len(watch.errors.xids)
    if not troubled:
        return None
    advice = (
        "Check the program first: CUDA_LAUNCH_BLOCKING=1 and compute-sanitizer name the kernel."
        if by_program and not is_critical
        else "Save a checkpoint, check dmesg and nvidia-smi -q, and have the GPU reset or replaced before trusting it."
    )
    where = f"GPU {troubled[0].index}" if len(troubled) == 1 else f"{len(troubled)} GPUs"
    first = lines[0].partition(": ")[2] if len(troubled) == 1 else lines[0]
    return Finding(
        code="gpu-error",
        severity="critical" if is_critical else "warning",
        title=f"{where}: {plural(len(lines), 'error', 'errors')}: {first}",
        evidence=lines,
        advice=advice,
    )


def _errors(watch: GpuWatch) -> tuple[list[str], bool]:
    """Return the errors in words, and whether one of them is a critical hardware error."""
    errors = watch.errors
    lines = [gpu_lines.in_words(code) for code in sorted(errors.xids)]
    is_critical = bool(gpu_lines.GRAVE & set(errors.xids))
    if errors.ecc_now is not None and errors.ecc_before is not None and errors.ecc_now > errors.ecc_before:
        more = errors.ecc_now - errors.ecc_before
        lines.append(plural(more, "uncorrected memory error", "uncorrected memory errors") + " during this run")
        is_critical = True
    if errors.remap_failed:
        lines.append("memory row remapping failed")
        is_critical = True
    elif errors.remap_pending:
        lines.append("memory row remapping pending a reset")
    return lines, is_critical


@rule("pcie-downtrained", Family.GPU, on_gpus=True)
def pcie_downtrained(evidence: GpuEvidence) -> Finding | None:
    """Find links to the host that are slower than GPU and slot allow, even under load."""
    rows = evidence.events_of("pcie-downtrained")
    if not rows:
        return None
    affected = {row.uuid for row in rows}
    is_bad = any(
        (link.generation or 0) < (link.generation_max or 0)
        or (link.lanes or 0) < MIN_LANES_SHARE * (link.lanes_max or 0)
        for link in (watch.link for watch in evidence.watches() if watch.uuid in affected)
    )
    is_open = any(row.end is None for row in rows)
    return Finding(
        code="pcie-downtrained",
        severity=severity(evidence, rows) if is_bad and is_open else "info",
        title=f"GPU {rows[0].index} PCIe link below its maximum{'' if is_open else ' (ended)'}: {rows[0].detail}",
        evidence=[f"GPU {row.index}: {row.detail}, under load" for row in rows[:MAX_EVENTS]],
        advice="It matters where much is copied (data, offloading, all-reduce without NVLink). Reseat the GPU, check"
        " the slot's wiring and the BIOS; risers and bifurcated slots halve the link.",
    )


# Before its effects: others took a part of the GPU's time in all measurements.
@rule("gpu-shared", Family.GPU, on_gpus=True, priority=3, suppresses=SLOWER_STEPS)
def gpu_shared(evidence: GpuEvidence) -> Finding | None:
    """Find processes of others that hold memory of the run's GPUs and take their share of the time."""
    # What has ended before the first step, as a run before this one, has slowed down none.
    since = evidence.first_step
    rows = [row for row in evidence.events_of("gpu-shared") if since is None or row.end is None or row.end > since]
    if not rows:
        return None
    return Finding(
        code="gpu-shared",
        severity=severity(evidence, rows),
        title=f"GPU {rows[0].index} shared with other processes{'' if rows[0].end is None else ' (ended)'}:"
        f" {rows[0].detail}",
        evidence=[f"GPU {row.index}: {row.detail}, for {duration(row.seconds)}" for row in rows[:MAX_EVENTS]],
        advice="Their kernels and yours take turns. Find the owner (nvidia-smi, ps -o user= -p PID), or choose a free"
        " GPU with CUDA_VISIBLE_DEVICES.",
    )
