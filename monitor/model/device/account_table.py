"""The breakdown of the device's time as a table for people, and the work outside the steps. Pure."""

from __future__ import annotations

from monitor.model.device.device_account import BUSY, BY_TRACE, COPY
from monitor.model.device.device_report import AccountRow, Device, OutsideRow
from monitor.units import duration, plural, share, times
from trainhooks.protocol.limits import clean

HEAD = ["part", "state", "at least", "at most"]
NOT_KNOWN = "unknown"
MIN_SHOWN = 0.001  # of the time: copies and idle parts that may be less than this are not shown


def shown_rows(device: Device) -> list[AccountRow]:
    return [row for row in device.account if row.state == BUSY or row.most is None or row.most >= MIN_SHOWN]


def table_rows(device: Device) -> list[list[str]]:
    """Return the table with its head; empty where there is no breakdown."""
    if not device.account:
        return []
    return [HEAD, *([clean(row.what, 48), row.state, _cell(row.least), _cell(row.most)] for row in shown_rows(device))]


def _cell(value: float | None) -> str:
    return NOT_KNOWN if value is None else share(value)


def is_measured(device: Device) -> bool:
    """Return whether a trace measured the parts."""
    return any(row.by == BY_TRACE for row in device.account)


def gain_text(device: Device) -> str | None:
    """Return what there is to gain without idle time, at most or as measured; None: not known."""
    if device.gain_limit is None:
        return None
    if not is_measured(device):
        return f"at most {times(device.gain_limit)} as fast without idle time"
    copied = sum(row.most or 0.0 for row in device.account if row.state == COPY)
    without = "idle time and copies" if copied >= MIN_SHOWN else "idle time"
    return f"{times(device.gain_limit)} as fast without {without}"


def table_notes(device: Device) -> list[str]:
    """Return how to read the table, a line each."""
    if not device.account:
        return []
    if is_measured(device) and device.trace is not None:
        return [f"measured in {plural(device.trace.steps, 'traced step', 'traced steps')}"]
    least, most = sum(row.least or 0.0 for row in device.account), sum(row.most or 0.0 for row in device.account)
    known = any(row.least is not None for row in device.account if row.state == "busy")
    lines = [f'{share(least)} of the time is certain; the rest counts in "at most" of several rows']
    if least >= 0.995 and most <= 1.005:
        lines = ["all of the time is certain"]
    if not known:
        lines = ["lower bounds unknown: the journal has no queue times"]
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
