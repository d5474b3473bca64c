"""A few long sequences and what they take of the time. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from monitor.diagnosis.evidence import Evidence
from monitor.model.lengths import Bin
from monitor.model.report import Finding
from monitor.units import duration, share

ENOUGH = 40  # steps that tell their lengths; of fewer, a fifth is not a handful
LONG = 3.0  # times the usual length; within it lie the lengths of most texts that were not chosen to be alike
FEW = 0.20  # of the steps; when more are long, long is what the data is
FEW_SEQUENCES = 0.10  # likewise; of random batches of eight, a third hold a long one where one in twenty is long
WORTH = 0.15  # of step time that they take beyond as many others: what a wait for data has to reach, too
SAME_PACE = 0.25  # of a step, between the host's usual one and the device's; a mean holds the long ones, too
SLOWER = 2.0  # times the seconds of the other steps: they are what takes the time


@dataclass(frozen=True, slots=True)
class Outliers:
    """The steps with long sequences, and the others."""

    usual: float
    few: Bin
    others: Bin


def length_outliers(evidence: Evidence) -> Finding | None:
    """A few long sequences take much of the time."""
    found = outliers(evidence)
    if found is None:
        return None
    few, others, lengths = found.few, found.others, evidence.state.main.lengths
    each, usual = few.seconds / few.steps, others.seconds / others.steps
    lines = [
        f"{few.steps} of {few.steps + others.steps} steps had sequences of {few.length / few.steps:,.0f} positions on"
        f" average, up to {lengths.longest:,.0f}; the others of {others.length / others.steps:,.0f}",
        f"these steps took {duration(each)}, the others {duration(usual)}",
    ]
    return Finding(
        "length-outliers",
        "warning",
        f"A few long sequences dominate: {share(few.steps / (few.steps + others.steps))} of the steps take"
        f" {share(few.seconds / (few.seconds + others.seconds))} of the time",
        lines,
        _advice(evidence),
        evidence.of_wall(few.seconds - few.steps * usual),
    )


def outliers(evidence: Evidence) -> Outliers | None:
    """The steps whose longest sequence is far beyond the usual one, where they are few and take much of the time."""
    lengths = evidence.state.main.lengths
    usual = lengths.usual()
    if lengths.steps < ENOUGH or usual is None or not _keeps_pace(evidence):
        return None
    few, others = Bin(), Bin()
    for length, each in lengths.rows():
        _add(few if length >= LONG * usual else others, each)
    if not few.steps or not few.seconds or not others.seconds:
        return None
    if few.steps > FEW * lengths.steps and (_of_sequences(few, others) or 1.0) > FEW_SEQUENCES:
        return None
    beyond = few.seconds - few.steps * others.seconds / others.steps
    if beyond < WORTH * (few.seconds + others.seconds):
        return None
    if few.seconds / few.steps < SLOWER * others.seconds / others.steps:
        return None
    return Outliers(usual, few, others)


def _keeps_pace(evidence: Evidence) -> bool:
    """Whether a host's step is as long as the device's, for which it then waits in each. Else it says nothing."""
    if evidence.device is None:
        return True
    host = evidence.state.main.step_seconds.digested().quantiles.at(0.5)[0]
    usual = sum(each.digested().quantiles.at(0.5)[0] for each in evidence.state.main.device.phases.values())
    return usual > 0.0 and abs(host - usual) <= SAME_PACE * usual


def _of_sequences(few: Bin, others: Bin) -> float | None:
    """About which share of all sequences is long: the others in their batches are taken to be as usual."""
    rows = [each.padded * each.steps / each.length for each in (few, others)]
    usual, long = others.tokens / rows[1] if rows[1] else 0.0, few.length / few.steps
    if not rows[0] or not usual or long <= usual:
        return None
    return max(0.0, (few.tokens - rows[0] * usual) / (long - usual)) / sum(rows)


def _add(into: Bin, each: Bin) -> None:
    into.steps += each.steps
    into.seconds += each.seconds
    into.tokens += each.tokens
    into.padded += each.padded
    into.length += each.length


def _advice(evidence: Evidence) -> str:
    said = "Look at the long ones: broken items are dropped, others cut"
    limit = evidence.setting("max_length", "max_seq_length", "model_max_length", "block_size")
    if limit is not None and isinstance(limit[1], int):
        said += f" ({limit[0]}={limit[1]} now)"
    return said + ". Or make batches by tokens, so that a long one comes with few others."
