"""The breakdown of the device's time as a table for people, and the work outside the steps. Pure."""

from __future__ import annotations

from monitor.model.device.device_report import AccountRow, Device, OutsideRow
from monitor.units import duration, plural, share
from trainhooks.protocol.limits import clean

HEAD = ["part", "state", "at least", "at most"]
NOT_KNOWN = "unknown"
MIN_SHOWN_IDLE = 0.001  # of the time: idle parts that may be less than this are not shown


def shown_rows(device: Device) -> list[AccountRow]:
    return [row for row in device.account if row.state != "idle" or row.most is None or row.most >= MIN_SHOWN_IDLE]


def table_rows(device: Device) -> list[list[str]]:
    """Return the table with its head; empty where there is no breakdown."""
    if not device.account:
        return []
    return [HEAD, *([clean(row.what, 48), row.state, _cell(row.least), _cell(row.most)] for row in shown_rows(device))]


def _cell(value: float | None) -> str:
    return NOT_KNOWN if value is None else share(value)


def table_notes(device: Device) -> list[str]:
    """Return how to read the table, a line each."""
    if not device.account:
        return []
    least, most = sum(row.least or 0.0 for row in device.account), sum(row.most or 0.0 for row in device.account)
    known = any(row.least is not None for row in device.account if row.state == "busy")
    lines = [f'{share(least)} of the time is certain; the rest counts in "at most" of several rows']
    if least >= 0.995 and most <= 1.005:
        lines = ["all of the time is certain"]
    if not known:
        lines = ["lower bounds unknown: the journal has no queue times"]
    samples = max((row.looks or 0 for row in device.account), default=0)
    if samples:
        lines.append(f"host activity: from {plural(samples, 'stack sample', 'stack samples')} (95% ranges)")
    return lines


def outside_lines(device: Device) -> list[str]:
    """Return a line for each evaluation, checkpoint or other stop outside the steps."""
    return [f"outside the steps, {_stop_text(row)}" for row in device.outside_steps]


def _stop_text(row: OutsideRow) -> str:
    took = f"{duration(row.seconds)}, {share(row.share)} of the run"
    return f"{clean(row.what, 40)}: {took}; GPU {busy_range(row.busy_least, row.busy_most) or 'utilization unknown'}"


def busy_range(least: float | None, most: float | None) -> str | None:
    """Return `busy 68%-97%`, or the one bound that is known; None: neither is."""
    if least is None:
        return None if most is None else f"busy at most {share(most)}"
    if most is None:
        return f"busy at least {share(least)}"
    return f"busy {share(least)}" if share(least) == share(most) else f"busy {share(least)}-{share(most)}"
