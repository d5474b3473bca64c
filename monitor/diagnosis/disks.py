"""The disk is what the steps or the checkpoints wait for. Pure."""

from __future__ import annotations

from statistics import median

from monitor.diagnosis import stops, waiting
from monitor.diagnosis.evidence import Evidence
from monitor.model.report import Finding
from monitor.units import flow, percent

READINGS = 30  # one a second
PRESSURE = 40.0  # percent of the time in which some task waited for I/O; a busy disk that keeps up is below ten
MOVED = 4.0  # MiB a second that the training reads and writes: it is not somebody else who waits


def disk_slow(evidence: Evidence) -> Finding | None:
    """Data or checkpoints take long, tasks wait for I/O, and it is the training's own I/O."""
    readings = [each for each in evidence.state.host if each.pressure_io is not None]
    cause = waiting.input_bound(evidence) or stops.checkpoint_stall(evidence)
    if cause is None or len(readings) < READINGS:
        return None
    waited = median(each.pressure_io or 0.0 for each in readings)
    read = median(each.tree_read or 0.0 for each in readings)
    written = median(each.tree_write or 0.0 for each in readings)
    if waited < PRESSURE or read + written < MOVED * 2**20:
        return None
    return Finding(
        "disk-slow",
        "info",  # the cause of a finding that is there already, and no loss beside it
        f"The disk is the limit: tasks wait for I/O {percent(waited)} of the time",
        [f"the training reads {flow(read)} and writes {flow(written)}, usually", f"see {cause.code}: {cause.title}"],
        "Copy the data to a local SSD first; put many small files together; write checkpoints to a local disk and copy"
        " them later.",
    )
