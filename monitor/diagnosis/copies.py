"""Data on its way between host and device: slow copies, and copies to and fro. Pure."""

from __future__ import annotations

from monitor.diagnosis import hardware
from monitor.diagnosis.evidence import Evidence
from monitor.model import activities
from monitor.model.report import Device, Finding
from monitor.units import share, size

ENOUGH = 20  # steps
# Bytes a second of a copy from pageable memory, which the driver carries over piece by piece through a buffer of its
# own: 3 to 8 GB/s by machine, whatever the link can do; 5.1 on one with an H100.
PAGEABLE_RATE = 5e9
# The same from pinned memory where the link is not known: 16 lanes of the fourth generation, in practice. So fast is
# what remains of a copy: on the training's own stream no kernel runs beside it.
PINNED_RATE = 25e9
WORTH = 0.10  # of step time in copies
GRAVE = 0.25
SEEN = 0.15  # of all looks at the stack
# Bytes a second on the link, over the whole time: a batch of tokens or of labels is thousands of times less.
MUCH = 1e9
# Practical bytes a second of one lane, by generation: about 0.8 of what the signal carries.
LANE_RATE = {1: 0.2e9, 2: 0.4e9, 3: 0.8e9, 4: 1.6e9, 5: 3.2e9, 6: 6.4e9}
SLOW = 0.5  # of what the link can carry
BOTH_WAYS = 0.25  # of the larger direction, that the other one has at least


def pageable_copies(evidence: Evidence) -> Finding | None:
    """Batches go to the device from memory that is not pinned, and the host stands still meanwhile."""
    device = evidence.device
    if device is None or not evidence.enough(ENOUGH) or offload(evidence) is not None:
        return None
    by_batch, by_looks = _by_batch(evidence), _by_looks(evidence, device)
    part = min(1.0, max(by_batch[0], by_looks[0]))
    if part < WORTH:
        return None
    remains = min(1.0, PAGEABLE_RATE / (_link(evidence) or PINNED_RATE))
    return Finding(
        "pageable-copies",
        "warning" if part >= GRAVE else "info",
        f"Copies to the GPU from pageable memory take about {share(part)} of the step",
        [*by_batch[1], *by_looks[1], *_active(device)],
        'DataLoader(pin_memory=True) or tensor.pin_memory(), and batch.to("cuda", non_blocking=True): copies are then'
        " several times as fast, and the host does not wait for them; on a stream of their own they run beside the"
        " computing.",
        part * (1.0 - remains) * evidence.of_wall(evidence.report.wall.stepping),
    )


def _by_batch(evidence: Evidence) -> tuple[float, list[str]]:
    """The share of a step that copying its batch takes, by its size and that it is not pinned."""
    batch, seconds = hardware.table(evidence, "batch"), evidence.step_seconds
    moved = batch.get("bytes")
    if not isinstance(moved, int) or batch.get("pinned") is not False or not seconds:
        return 0.0, []
    part = moved / PAGEABLE_RATE * hardware.batches_a_step(evidence) / seconds
    told = f"{share(min(1.0, part))} of a step to copy, at {PAGEABLE_RATE / 1e9:g} GB/s"
    return part, [f"a batch is {size(moved)} in pageable memory: {told}"]


def _by_looks(evidence: Evidence, device: Device) -> tuple[float, list[str]]:
    """The share in which the program was seen copying, where the link's traffic shows that much was moved, slowly."""
    frames = evidence.state.main.frames
    looks, rate = activities.calls_seen(frames, activities.COPIES), device.pcie_rx or 0.0
    if looks.share < SEEN or rate < MUCH:
        return 0.0, []
    speed, possible = rate / looks.share, _link(evidence)
    if possible is not None and speed >= SLOW * possible:
        return 0.0, []  # as fast as the link: there is much to move, and it is not pageable memory that is slow
    part = looks.share
    if not evidence.host_only:  # the device's time in these phases holds the copies, and the host's wait for them
        part = min(part, sum(row.share for row in evidence.report.phases if row.name in looks.phases))
    told = f"; the link can carry about {possible / 1e9:.0f}" if possible is not None else ""
    lines = [
        f"{share(looks.share)} of all looks found it copying, most at {looks.places[0]}",
        f"{rate / 1e9:.1f} GB/s into the GPU, some {speed / 1e9:.1f} GB/s while it copies{told}",
    ]
    return part, lines


def offload(evidence: Evidence) -> Finding | None:
    """Much goes to the device and back in every step: weights, activations or optimizer states kept on the host."""
    device = evidence.device
    if device is None or not evidence.enough(ENOUGH):
        return None
    into, back = device.pcie_rx, device.pcie_tx
    if into is None or back is None or min(into, back) < MUCH or min(into, back) < BOTH_WAYS * max(into, back):
        return None
    looks = activities.calls_seen(evidence.state.main.frames, activities.COPIES)
    lines = [f"{into / 1e9:.1f} GB/s into the GPU and {back / 1e9:.1f} GB/s back, over the whole time"]
    lines += [f"{share(looks.share)} of all looks found it copying, most at {place}" for place in looks.places[:1]]
    idle = evidence.idle_most
    return Finding(
        "offload",
        "warning" if idle is not None and idle >= WORTH else "info",
        "Data goes to the GPU and back again in every step",
        lines + _active(device),
        "What fits into the GPU's memory can stay there: activations (no save_on_cpu), weights and optimizer states (no"
        " CPU offload). What does not fit goes through pinned memory, on a stream of its own.",
        idle * evidence.of_wall(evidence.report.wall.stepping) if idle is not None else None,
    )


def _active(device: Device) -> list[str]:
    if device.sm_active is None:
        return []
    return [f"SMs active {share(device.sm_active)} of the time"]


def _link(evidence: Evidence) -> float | None:
    """Bytes a second that the slowest of the run's cards can take in, in practice."""
    watches = [evidence.state.throttles.gpus.get(card.uuid) for card in hardware.cards(evidence)]
    links = [watch.link for watch in watches if watch is not None]
    rates = [LANE_RATE[gen] * (link.lanes_max or 16) for link in links if (gen := link.generation_max) in LANE_RATE]
    return min(rates, default=None)
