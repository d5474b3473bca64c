"""The device of a report: which clock tells of it, how busy it was, what it did, what bounds the run."""

from __future__ import annotations

from monitor.model import account_in_words
from monitor.model.device_use import bound_in_words, busy_in_words
from monitor.model.report import Device, Report
from monitor.reports import matrix_product
from monitor.reports.table import Section
from monitor.units import duration, plural, share
from trainhooks.events import clean

HOST_ONLY = "host clock only: where Python was, not what the GPU did"
SHOWN_PLACES = 5


def clocks(report: Report) -> list[str]:
    """By which clock the phases are told, where a GPU is used."""
    device = report.device
    if device is None:
        return []
    if device.clock is None:
        return [HOST_ONLY]
    lost = f" ({device.dropped:,} could not be timed)" if device.dropped else ""
    timed = plural(device.timed_steps, "step", "steps")
    return [f"by the GPU's clock: CUDA events in {timed}{lost}, which stand for all"]


def account(report: Report) -> Section | None:
    """What the device did, and what bounds the run."""
    device = report.device
    if device is None:
        return None
    lines = [f"{bound_in_words(device)}; the GPU is {busy_in_words(device)} of the time in steps"]
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
        lines.append(f"active, by the driver: {', '.join(driver)} ({plural(device.readings, 'reading', 'readings')})")
    lines += _delayed(device)
    if device.queue_empty is not None:
        lines.append(f"the host was never ahead of the GPU in {share(device.queue_empty)} of the steps' time")
    if device.gain_limit is not None:
        lines.append(f"keeping the GPU busy all the time would be {device.gain_limit:.2f}x as fast at most")
    else:
        lines.append("what keeping the GPU busy would gain is not known: no SM activity, and no CUDA events")
    lines += [*account_in_words.outside(device), *account_in_words.notes(device)]
    return Section("The GPU in the steps", lines, account_in_words.rows(device), left=2)


def _delayed(device: Device) -> list[str]:
    """How busy the GPU is by steps before which it was held up; where that was asked for."""
    found, why = device.estimate, clean(device.delays or "", 120)
    if found is None:
        return [f"how busy it is by delayed steps is not known: {why}"] if why else []
    if found.busy_least is None or found.busy_most is None:
        steps = plural(found.steps + found.void, "delayed step", "delayed steps")
        return [
            f"how busy it is by {steps} is not known: in {found.void} of them the host did not get ahead, for the step "
            "waits for the GPU or queues more than it takes"
            if found.void
            else f"how busy it is by {steps} is not known: they are too few"
        ]
    least, most = share(found.busy_least), share(found.busy_most)
    told = least if least == most else f"{least} to {most}"
    void = f"; {found.void:,} more told nothing" if found.void else ""
    parts = ", ".join(f"{clean(name, 40)} {share(each)}" for name, each in found.phases.items())
    steps = plural(found.steps, "delayed step", "delayed steps")
    return [f"busy {told} by {steps}, in which kernels ran back to back ({parts}){void}"]


def below_peak(report: Report) -> Section | None:
    """From the hardware's peak down to what the training reaches."""
    device, mfu = report.device, report.throughput.mfu
    if device is None or mfu is None or not device.below_peak:
        return None
    rows = [["of the peak", "share"], *([row.what, f"-{share(row.share)}"] for row in device.below_peak)]
    return Section(
        "How far from the hardware", matrix_product.lines(device.matrix_product), [*rows, ["MFU", share(mfu)]]
    )


def idle_places(report: Report) -> Section | None:
    """Where the program was while the device had no work queued for certain."""
    device = report.device
    if device is None or not device.idle_at:
        return None
    lines = [
        f"{clean(row.place)}: {duration(row.seconds)} a step at most ({share(row.share)} of {row.looks:,} looks)"
        for row in device.idle_at[:SHOWN_PLACES]
    ]
    return Section("Where the program was while the GPU may have been idle", lines)
