"""How a run stands against the last comparable run of its command, while it goes on and after. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from monitor.model.comparison.changes import same_amount
from monitor.model.comparison.compare import MAX_SKIPPED_DIFFERENCE, Comparison, Side, compare_runs, skipped_share
from monitor.model.compute.flops import StepWork, work_ratio
from monitor.model.report import Report
from monitor.units import times

MAX_HEAVIER = 1.02  # times the FLOPs or the sequence length: more work takes longer
AS_FAST = 1.1  # times: what is surely less than that either way is called as fast; batches and neighbors do a tenth
AS_FAST_WORDS = "as fast"
MIN_RATIO_AS_TIMES = 1.25  # from here on a ratio is told as `1.50x`, below as a percentage


@dataclass(frozen=True, slots=True)
class Standing:
    """The ratio of the times for the same work, now to before, and its interval: 1.5 is 1.5 times slower."""

    slower: float
    low: float
    high: float

    def words(self) -> str:
        """Return `6% faster`, `1.50x slower`, `as fast`; empty where the interval allows both and is wide."""
        if self.low <= 1.0 <= self.high:
            return AS_FAST_WORDS if self.high < AS_FAST and self.low > 1.0 / AS_FAST else ""
        ratio = self.slower if self.slower > 1.0 else 1.0 / self.slower
        much = times(ratio) if ratio >= MIN_RATIO_AS_TIMES else f"{100 * (ratio - 1.0):.0f}%"
        return f"{much} {'slower' if self.slower > 1.0 else 'faster'}"


def standing(before: Side, after: Side) -> Standing | None:
    """Return how `after` stands; None where the two do other work, or there are too few steps to say."""
    row = compare_same_steps(before, after)
    if row.slower is None or row.interval is None or row.unlike:
        return None
    if abs(skipped_share(before.report) - skipped_share(after.report)) > MAX_SKIPPED_DIFFERENCE:
        return None
    one, two = row.work
    if does_more(before.report, after.report, (one, two)) or does_more(after.report, before.report, (two, one)):
        return None
    return Standing(row.slower, *row.interval)


def compare_same_steps(before: Side, after: Side) -> Comparison:
    """Compare the steps that both runs did: the first hundred stand for no ten thousand."""
    one, two = before.loop, after.loop
    first, last = max(one.first, two.first), min(one.last, two.last)
    if first <= last:  # else one continues where the other ended
        one, two = one.between(first, last), two.between(first, last)
    repeats = tuple(loop.between(one.first, one.last) for loop in before.repeats)
    return compare_runs(replace(before, loop=one, repeats=repeats), replace(after, loop=two))


def does_more(before: Report, after: Report, work: tuple[StepWork, StepWork]) -> bool:
    """Return whether the later run does more for what it is measured by: then it is supposed to be slower."""
    one, two = work
    heavier = work_ratio(one, two)
    if heavier is not None and heavier > MAX_HEAVIER:
        return True
    exact = one.flops_a_token and two.flops_a_token
    if not exact and one.length and two.length and two.length > MAX_HEAVIER * one.length:
        return True
    counted = (one.tokens and two.tokens) or (one.samples and two.samples)
    return not counted and not same_amount(before, after)
