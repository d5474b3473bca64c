"""The account of the device's time in words: its parts as ranges, and what the run did outside its steps. Pure."""

from __future__ import annotations

from monitor.model.report import AccountRow, Device, OutsideRow
from monitor.units import duration, plural, share
from trainhooks.events import clean

HEAD = ["part", "state", "at least", "at most"]
NOT_KNOWN = "not known"
LEAST = 0.001  # of the time: idle parts that may be less than this are not shown


def shown(device: Device) -> list[AccountRow]:
    return [row for row in device.account if row.state != "idle" or row.most is None or row.most >= LEAST]


def rows(device: Device) -> list[list[str]]:
    """The table with its head; nothing where there is no account."""
    if not device.account:
        return []
    return [HEAD, *([clean(row.what, 48), row.state, _cell(row.least), _cell(row.most)] for row in shown(device))]


def _cell(value: float | None) -> str:
    return NOT_KNOWN if value is None else share(value)


def notes(device: Device) -> list[str]:
    """How the table is to be read."""
    if not device.account:
        return []
    least, most = sum(row.least or 0.0 for row in device.account), sum(row.most or 0.0 for row in device.account)
    known = any(row.least is not None for row in device.account if row.state == "busy")
    told = [f"certain: {share(least)} of the time; the rest is in the most of a busy part, a copy or an idle one"]
    if least >= 0.995 and most <= 1.005:
        told = ["all of the time is known for certain"]
    if not known:
        told = ["how much is certain is not known: the journal does not tell how long work was queued"]
    looks = max((row.looks or 0 for row in device.account), default=0)
    if looks:
        told.append(f"what the host did meanwhile: by {plural(looks, 'look', 'looks')} at its stack (95 % ranges)")
    return told


def outside(device: Device) -> list[str]:
    """Evaluations, checkpoints and other stops: no part of the steps."""
    return [f"outside the steps, {_stop(row)}" for row in device.outside_steps]


def _stop(row: OutsideRow) -> str:
    took = f"{duration(row.seconds)}, {share(row.share)} of the run"
    return f"{clean(row.what, 40)}: {took}; the GPU is {_busy(row)} in it"


def _busy(row: OutsideRow) -> str:
    least, most = row.busy_least, row.busy_most
    if least is None and most is None:
        return "busy for an unknown share"
    if least is None:
        return f"busy at most {share(most)}"
    if most is None:
        return f"busy at least {share(least)}"
    return f"busy {share(least)}" if share(least) == share(most) else f"busy {share(least)} to {share(most)}"
