"""What reinforcement learning logs of itself: metrics by the names that trainers give them, read as signals. Pure.

A name is `[role/][group/]...tail`, as in `generator/completions/mean_length` or `train/approx_kl`. A role is a model of
several that train together; a group (`train/`, `actor/`, `losses/`) is the trainer's own and tells none apart.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import lru_cache
from itertools import pairwise
from statistics import StatisticsError, correlation, median
from typing import NamedTuple

from monitor.diagnosis.rule import Evidence
from monitor.diagnosis.rules.learning_signals import MIN_LONG_RUN, MIN_LONG_VALUES
from monitor.model.ranks.concurrent_roles import STALENESS_NAMES
from monitor.model.steps.growth import MIN_POINTS, SIGMAS, slope
from monitor.model.steps.series import Column

# A third of them is ten: the median of ten is not moved by the noise of one batch of prompts.
MIN_VALUES = 30
MIN_PART = 3  # values in a part of the run that is judged by its median
RECENT_PART = 2 / 3  # of the run, from which on it counts as what the run does now; a signal that ended before is old
RISE_SIGMAS = 1.0  # standard errors: in doubt a reward does rise, so that nobody is warned of a run that learns
MOST_VALUES = 0.75  # of the recent values, for what holds all along: one value in four may be a batch of other prompts
MIN_RISE = 0.1  # of its range, by which a reward that rose differs from noise


class Quantity(Enum):
    """What a metric is about."""

    REWARD = auto()
    REWARD_STD = auto()
    ZERO_GROUPS = auto()  # share of groups of completions whose rewards are all the same
    LENGTH = auto()  # of completions, in tokens
    TRUNCATED = auto()  # share of completions that were cut off
    TRUNCATED_REWARD = auto()
    UNUSABLE = auto()  # share of answers that are empty, or that nothing can read or compile
    USABLE = auto()  # share of answers that could be read or compiled
    PASSED = auto()  # share of answers that pass one test
    ENTROPY = auto()
    REFERENCE_KL = auto()  # a token
    SUMMED_KL = auto()  # likewise, over all tokens of a completion
    UPDATE_KL = auto()  # between the policy before and after the updates on one batch
    CLIPPED = auto()  # share of tokens or actions that the ratio of an update is clipped for
    UPDATES = auto()  # number of updates so far
    SAMPLER_DIFFERENCE = auto()  # of the log-probabilities, or probabilities, of sampler and trainer
    SAMPLER_RATIO = auto()  # importance weights between them
    STALENESS = auto()  # updates by which samples are older than the weights that learn from them
    EPISODES = auto()  # the program acts in an environment


# What others log as well: an autoencoder or a distillation a `kl`, gradient clipping a `clip_frac`, a corpus lengths.
_OF_OTHERS = re.compile(
    r"(?:.*/)?(?:kl(?:_loss|[_/]mean)?|(?:(?:mean|avg)_)?ratio(?:[_/]mean)?|clip_?frac|truncated|entropy(?:_loss|[_/]mean)?"
    r"|(?:(?:mean|avg)_)?(?:length|len)(?:[_/]mean)?|n_updates|empty|invalid)",
    re.IGNORECASE,
)

_SHARE = r"(?:_(?:share|frac(?:tion)?|ratio|rate))?"
_ANSWER = r"_(?:answers?|outputs?|completions?|responses?|programs?|code|json|format)"
_ANSWERS = r"(?:_(?:answers?|outputs?|completions?|responses?|programs?|code|format))?"
# Tails; of several metrics of one quantity the first kind leads.
_TAILS: dict[Quantity, tuple[str, ...]] = {
    Quantity.REWARD: (
        r"rewards?(?:[_/]mean)?|(?:mean|avg)_reward",  # TRL, OpenRLHF, verl (rewards/mean)
        r"scores?(?:/mean)?|objective/(?:scores|rlhf_reward)",  # verl, TRL's PPO
        r"ep_rew_mean|episod(?:e|ic)_(?:return|reward)(?:_mean)?|(?:mean_)?returns?(?:/mean)?",  # SB3, CleanRL
    ),
    Quantity.REWARD_STD: (r"rewards?_std|std_reward|rewards?/std",),
    Quantity.ZERO_GROUPS: (
        r"frac_reward_zero_std",  # TRL
        rf"(?:(?:frac|share)_)?(?:reward_)?zero_(?:std|variance|advantages?)(?:_groups)?{_SHARE}",
    ),
    Quantity.LENGTH: (
        r"completions/mean_length|response_length/mean",  # TRL, verl
        r"(?:mean_)?(?:completion|response|output|generation)_(?:length|tokens)(?:[_/]mean)?",  # OpenRLHF and others
        r"(?:(?:mean|avg)_)?(?:length|len)(?:[_/]mean)?",
    ),
    Quantity.TRUNCATED: (
        r"completions/clipped_ratio|response_length/clip_ratio",  # TRL, verl
        rf"(?:completions/)?truncat(?:ed|ion)(?:_completions)?{_SHARE}|(?:frac|share)_truncated",
    ),
    Quantity.TRUNCATED_REWARD: (r"rewards?[_/](?:of_)?truncated(?:[_/]mean)?|truncated_reward(?:_mean)?",),
    Quantity.UNUSABLE: (
        rf"(?:(?:completions|answers|outputs)/)?(?:(?:frac|share)_)?(?P<reason>(?:parse|parsing|compile|compilation|"
        rf"format|syntax)_(?:fail(?:ed|ures?)?|errors?)|unpars(?:e)?able|invalid|empty|no_answer){_ANSWERS}{_SHARE}",
        r"(?:invalid|unpars(?:e)?able|unusable)/(?P<why>[^/@]+)",
    ),
    Quantity.USABLE: (
        rf"(?:(?:completions|answers|outputs)/)?(?P<what>pars(?:e|ed|ing|e?able)|compile[ds]?|format|well_?formed"
        rf"|valid(?={_ANSWER}))(?:{_ANSWER})?_(?:rate|share|frac(?:tion)?|ratio|ok|success(?:_rate)?)",
    ),
    Quantity.PASSED: (r"(?:pass|passed|pass_rates?)/(?P<test>[^@]+)", r"tests?/(?P<named>[^@]+)/pass(?:ed)?(?:_rate)?"),
    Quantity.ENTROPY: (r"(?:policy_)?entropy(?:_(?:mean|avg|loss))?|entropy/mean",),
    Quantity.REFERENCE_KL: (
        r"kl(?:[_/]mean)?|(?:ref(?:erence)?_kl|kl_(?:to_)?ref(?:erence)?)(?:[_/]mean)?|(?<=actor/)kl_loss",
    ),
    Quantity.SUMMED_KL: (r"objective/kl",),  # TRL's PPO
    Quantity.UPDATE_KL: (r"approx_?kl(?:_avg)?|ppo_kl",),
    Quantity.CLIPPED: (
        r"clip_ratio/region_mean|clip_?frac(?:tion)?(?:_avg)?|pg_clipfrac|(?:ppo_)?clip_ratio(?:/mean)?",
    ),
    Quantity.UPDATES: (r"n_updates",),  # SB3
    Quantity.SAMPLER_DIFFERENCE: (
        r"sampling/sampling_logp_difference/mean|(?:sampling|sampler|rollout)_logp(?:rob)?s?_diff(?:erence)?(?:[_/]mean)?",
        r"rollout_probs_diff_mean",  # verl
    ),
    Quantity.SAMPLER_RATIO: (
        r"sampling/importance_sampling_ratio/mean|importance_(?:sampling_)?ratio(?:[_/]mean)?",
        r"(?:(?:mean|avg)_)?ratio(?:[_/]mean)?",  # of the policies before and after an update; its mean is 1 as well
    ),
    Quantity.STALENESS: (STALENESS_NAMES,),
    Quantity.EPISODES: (r"ep_len_mean|episod(?:e|ic)_length(?:_mean)?|episodes|env_steps",),
}

_GROUP = r"train(?:ing)?|rollout|async|actor|critic|losses|loss|charts|policy|metrics|env|stats|agent"
# Evaluations are no training, and seconds, lengths and single reward functions no roles.
_NO_ROLE = (
    r"(?:eval(?:uation)?|val(?:idation)?|test|dev)(?:[-_.][^/]*)?|(?:tim(?:e|ing)|perf|reward|completions|response_length"
    r"|prompt|objective|clip_ratio|sampling|invalid|unpars|unusable|answers|outputs|pass)[^/]*"
)
_HEAD = rf"(?P<role>(?:(?!(?:{_GROUP}|{_NO_ROLE})/)[^/]+/)?)(?:(?:{_GROUP})/)*"
_PATTERNS = [
    (quantity, rank, re.compile(f"{_HEAD}(?:{tail})", re.IGNORECASE))
    for quantity, tails in _TAILS.items()
    for rank, tail in enumerate(tails)
]


class Meaning(NamedTuple):
    """What the name of a metric says. `rank`: the lower one leads. `detail`: the test or the reason in it."""

    quantity: Quantity
    role: str
    rank: int
    detail: str = ""


@lru_cache(maxsize=4096)
def metric_meaning(name: str) -> Meaning | None:
    """Return what a metric of this name is about; None where that is nothing known."""
    for quantity, rank, pattern in _PATTERNS:
        if match := pattern.fullmatch(name):
            role, *details = match.groups()
            return Meaning(quantity, role, rank, next(filter(None, details), ""))
    return None


@dataclass(frozen=True, slots=True)
class Signal:
    """One metric over the run: its points in order of steps, its range, and how many values it had."""

    name: str
    points: Sequence[tuple[float, float]]
    count: int
    least: float
    most: float
    detail: str = ""

    def has_values(self, evidence: Evidence) -> bool:
        """Return whether there are values for a judgment: many, or some of long steps."""
        is_long = evidence.report.wall.stepping >= MIN_LONG_RUN
        return self.count >= (MIN_LONG_VALUES if is_long else MIN_VALUES) and len(self.recent) >= MIN_PART

    @property
    def is_share(self) -> bool:
        """Return whether all values lie between 0 and 1: what is named as a share may be a count or percent."""
        return self.least >= 0.0 and self.most <= 1.0

    def values(self, begin: float = 0.0, end: float = 1.0) -> list[float]:
        """Return the values of a part of the run, whose borders are shares of it."""
        first, last = self.points[0][0], self.points[-1][0]
        low, high = first + begin * (last - first), first + end * (last - first)
        return [y for x, y in self.points if low <= x and (x < high or end >= 1.0)]

    @property
    def recent(self) -> list[float]:
        return self.values(RECENT_PART)

    @property
    def level(self) -> float:
        """Return the median of the recent values."""
        return median(self.recent)

    @property
    def start(self) -> float:
        """Return the median of the first values."""
        return median(y for _, y in self.points[:MIN_PART])

    def rises(self, begin: float = 0.0, sigmas: float = SIGMAS) -> bool:
        """Return whether it rises from this share of the run on."""
        return _rises(self._since(begin), sigmas)

    def falls(self, begin: float = 0.0, sigmas: float = SIGMAS) -> bool:
        return _rises([(x, -y) for x, y in self._since(begin)], sigmas)

    def never_rises(self) -> bool:
        """Return whether it shows no rise at all: neither a trend, in doubt, nor a last third above the first one."""
        return not self.rises(sigmas=RISE_SIGMAS) and self.level <= median(self.values(0.0, 1.0 - RECENT_PART))

    def mostly_in(self, low: float = -math.inf, high: float = math.inf) -> bool:
        """Return whether most of the recent values lie in this range."""
        recent = self.recent
        return sum(low <= value <= high for value in recent) >= MOST_VALUES * len(recent)

    def _since(self, begin: float) -> Sequence[tuple[float, float]]:
        first, last = self.points[0][0], self.points[-1][0]
        points = [point for point in self.points if point[0] >= first + begin * (last - first)]
        return points if len(points) >= MIN_POINTS else self.points[-MIN_POINTS:]  # of few long steps, a little more


def _rises(points: Sequence[tuple[float, float]], sigmas: float) -> bool:
    found = slope(points, sigmas)
    return found is not None and found.rises


def complement(row: Signal) -> Signal:
    """Return a share as that of the rest."""
    points = [(x, 1.0 - y) for x, y in row.points]
    return Signal(row.name, points, row.count, 1.0 - row.most, 1.0 - row.least, f"{row.detail} failed")


def signal_of(name: str, column: Column, detail: str = "") -> Signal:
    """Return a metric as a signal; without any finite value it has no points."""
    curve = column.curve()
    points = [(x, y) for x, y in zip(curve.x, curve.mean, strict=True) if math.isfinite(y)]
    return Signal(name, points, column.count, column.least, column.most, detail)


@dataclass(slots=True)
class Policy:
    """The metrics of one role, or of the only model.

    Attributes:
        printed: those read from the output: they go by what it counts, be it iterations, the others by steps.
        names: quantity -> (rank, name, detail).
    """

    role: str
    columns: dict[str, Column]
    printed: frozenset[str] = frozenset()
    names: dict[Quantity, list[tuple[int, str, str]]] = field(default_factory=dict)

    def signals(self, *quantities: Quantity) -> list[Signal]:
        """Return the signals of these quantities that go on until now, the leading one first."""
        rows = [row for quantity in quantities for row in sorted(self.names.get(quantity, ()), key=lambda row: row[0])]
        newest = {True: 0, False: 0}
        for name in self._metric_names():
            is_printed = name in self.printed
            newest[is_printed] = max(newest[is_printed], self.columns[name].settled().newest)
        found = [signal_of(name, self.columns[name], detail) for _, name, detail in rows]
        return [
            row
            for row in found
            if row.points and self.columns[row.name].newest >= RECENT_PART * newest[row.name in self.printed]
        ]

    def first_signal(self, quantity: Quantity) -> Signal | None:
        return next(iter(self.signals(quantity)), None)

    @property
    def reward(self) -> Signal | None:
        return self.first_signal(Quantity.REWARD)

    def _metric_names(self) -> list[str]:
        return [name for rows in self.names.values() for _, name, _ in rows]

    @property
    def is_acting(self) -> bool:
        """Return whether it acts in an environment instead of writing completions."""
        return Quantity.EPISODES in self.names or any("ep_rew" in n or "episod" in n for n in self._metric_names())


def policies(evidence: Evidence) -> list[Policy]:
    """Return the policies that log anything known, by role."""
    columns, console = evidence.state.metrics, evidence.state.console
    theirs = console.metrics if console is not None else {}
    printed = frozenset(name for name, column in columns.items() if column is theirs.get(name))
    found: dict[str, Policy] = {}
    for name, column in columns.items():
        known = metric_meaning(name)
        if known is not None and (column.values or column.count):
            policy = found.setdefault(known.role, Policy(known.role, columns, printed))
            policy.names.setdefault(known.quantity, []).append((known.rank, name, known.detail))
    rows = list(found.values())
    names = [name for row in rows for named in row.names.values() for _, name, _ in named]
    return rows if evidence.report.throughput.collected.is_any or not all(map(_OF_OTHERS.fullmatch, names)) else []


def is_zero_one(reward: Signal) -> bool:
    """Return whether a reward looks like one from 0 to 1, so that its bound is known."""
    return reward.is_share


def has_risen(reward: Signal) -> bool:
    """Return whether a reward is clearly above its start now."""
    return reward.level - reward.start > MIN_RISE * (reward.most - reward.least)


# How two signals move together: their changes from one value to the next, so that two trends alone do not count.

# Standard errors off the correlation found. Changes that are next to each other share a value, and depend on each
# other a little.
CORRELATION_SIGMAS = 2.0


def least_correlation(one: Signal, other: Signal) -> float:
    """Return the rank correlation of two signals' changes, less its error: the least that it may be. 0 if unknown."""
    first, second = dict(one.points), dict(other.points)
    common = sorted(first.keys() & second.keys())
    if len(common) < MIN_LONG_VALUES:
        return 0.0
    pairs = list(pairwise(common))
    try:
        found = correlation(*(_ranks([table[b] - table[a] for a, b in pairs]) for table in (first, second)))
    except StatisticsError:  # one of them is constant
        return 0.0
    size = math.atanh(min(abs(found), 0.999)) - CORRELATION_SIGMAS / math.sqrt(len(pairs) - 3)
    return math.copysign(math.tanh(max(0.0, size)), found)


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value; equal ones share the mean of theirs."""
    places: dict[float, list[int]] = {}
    for place, value in enumerate(sorted(values)):
        places.setdefault(value, []).append(place)
    return [(places[value][0] + places[value][-1]) / 2 for value in values]
