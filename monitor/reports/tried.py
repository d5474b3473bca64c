"""What `trainmon try` says: a line a setting, and the same as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field

from monitor.diagnosis.trial_candidates import Candidate
from monitor.model.comparison.paired import Measured
from monitor.model.report import Gain
from monitor.units import share, times
from trainhooks.protocol.limits import clean
from trainhooks.protocol.trial_settings import SETTINGS, Settings, words

MIN_WAITED = 0.1  # of the time: as much as a gain that is worth a trial
MAX_UNCHANGED = 0.01  # of the loss: an interval that is wider is told


@dataclass(frozen=True, slots=True)
class TriedSetting:
    """What became of one candidate. Seconds are for a unit of work, each run's own: `pairs` of without and with it."""

    setting: str
    settings: Settings
    code: str | None  # the finding that advised it
    promised: Gain | None
    verdict: str = "unknown"  # gain | no gain | slower | unknown
    faster: Measured | None = None  # times as fast
    loss: Measured | None = None  # relative difference of the mean loss over the same steps
    changes_results: bool = False  # by its nature
    pairs: list[tuple[float, float]] = field(default_factory=list)
    stops: int = 0  # single long stops that were set aside, in all runs
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class Tried:
    """What `trainmon try` measured."""

    command: list[str]
    per: str  # sample | step
    steps: int  # of each run
    rounds: int
    isolated: bool
    waited: float = 0.0  # share of their time in which the runs' threads wanted a core that others had
    tried: list[TriedSetting] = field(default_factory=list)


def make_tried_setting(
    candidate: Candidate,
    faster: Measured | None,
    loss: Measured | None,
    pairs: list[tuple[float, float]],
    stops: int,
    failed: str | None,
) -> TriedSetting:
    """Return a candidate's outcome, with the verdict that its interval allows."""
    verdict = "unknown"
    if faster is not None and failed is None:
        verdict = "gain" if faster.low > 1.0 else "slower" if faster.high < 1.0 else "no gain"
    return TriedSetting(
        setting=words(candidate.settings),
        settings=candidate.settings,
        code=candidate.code,
        promised=candidate.promised,
        verdict=verdict,
        faster=faster,
        loss=loss,
        changes_results=any(SETTINGS[name].changes_results for name in candidate.settings),
        pairs=pairs,
        stops=stops,
        failed=failed,
    )


def line(tried: TriedSetting) -> str:
    """Return `1.31x (1.24x to 1.39x), loss unchanged; keep num_workers=4`, with what else must be known."""
    if tried.failed is not None:
        return f"{tried.setting}: not measured: {clean(tried.failed, 300)}"
    if tried.faster is None:
        return f"{tried.setting}: not measured: too few pairs of runs"
    head = f"{times(tried.faster.value)} ({times(tried.faster.low)} to {times(tried.faster.high)})"
    if tried.promised is not None:
        likely = tried.promised.likely if tried.promised.likely is not None else tried.promised.most
        head += f", promised {times(likely)}"
    says = {
        "gain": f"keep {tried.setting}",
        "slower": f"slower with {tried.setting}",
        "no gain": f"no gain with {tried.setting}",
    }
    changes = ", which changes results" if tried.changes_results and tried.verdict == "gain" else ""
    return f"{head}, {_loss(tried.loss)}; {says[tried.verdict]}{changes}"


def crowd_line(tried: Tried) -> str | None:
    """Return that others used the machine, which makes intervals wide; None where they did not."""
    if tried.waited < MIN_WAITED:
        return None
    return f"the runs waited for a core {share(tried.waited)} of their time: on a free machine intervals are narrower"


def _loss(loss: Measured | None) -> str:
    if loss is None:
        return "no loss seen"
    if loss.low == loss.high == 0.0:
        return "loss the same"
    between = f"{loss.low:+.1%} to {loss.high:+.1%}"
    if not loss.low <= 0.0 <= loss.high:
        return f"loss {loss.value:+.1%} ({between})"
    return "loss unchanged" if loss.high - loss.low <= MAX_UNCHANGED else f"no change of the loss seen ({between})"
