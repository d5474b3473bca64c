"""How long rewards take: calls made one after the other, and programs that end at their time limit. Pure."""

from __future__ import annotations

from statistics import median

from monitor.diagnosis.policy_metrics import policies
from monitor.diagnosis.rule import BETWEEN_STEPS, Evidence, Family, Suppress, rule
from monitor.diagnosis.rules.rl_time import env_time, metric_total
from monitor.diagnosis.rules.waiting import unnamed_in_steps
from monitor.diagnosis.rules.worker_waits import worker_seconds
from monitor.model.report import Finding
from monitor.model.steps.pace import SINCE
from monitor.model.steps.unnamed_time import UNNAMED
from monitor.step_blocks import OTHER
from monitor.units import duration, share
from trainhooks.protocol.calls import HTTP, RUNS_PROCESS, SLEEP, SUBPROCESS, effects_of
from trainhooks.protocol.places import Line, Place

REWARDS, ROLLOUT = ("reward", "execution"), ("rollout",)
MIN_WAITING_SHARE = 0.5  # of the stack samples in these phases: computing is then the lesser part
# In names of functions that look after several things at once.
_OF_MANY = ("poll", "wait", "join", "gather", "collect", "as_completed")


@rule(
    "sequential-rewards",
    Family.WAITING,
    suppresses=("gpu-starved", Suppress(("unaccounted-time",), same_culprit=True)),
    idle_time=True,
)
def sequential_rewards(evidence: Evidence) -> Finding | None:
    """Find rewards that wait for processes, servers or the clock, one thing at a time."""
    where: tuple[str, ...] = REWARDS
    seconds, culprit = evidence.named_seconds(*REWARDS), "reward"
    has_cycle = evidence.report.cycle is not None
    if not seconds and (has_cycle or any(policy.reward is not None for policy in policies(evidence))):
        # A program that names no phase: between generation and learning it asks its judges.
        inside, between = unnamed_in_steps(evidence), evidence.between_steps
        seconds, where, culprit = inside + between, UNNAMED, OTHER if inside >= between else BETWEEN_STEPS
        acting = env_time(evidence)
        if acting is not None and acting.acting > max(seconds, acting.seconds):  # each step is scored by itself
            seconds, where, culprit = acting.seconds + acting.acting, ROLLOUT, "rollout"
    part = evidence.loop_part(seconds)
    if not part or not evidence.has_steps() or evidence.is_hidden_by_gpu:
        return None
    samples = evidence.sampled_seconds(*where)
    if not samples and where == REWARDS:  # what follows a rollout is known as its reward only once learning begins
        where = (*REWARDS, BETWEEN_STEPS)
        samples = evidence.sampled_seconds(*where)
    waits = {sample: spent for sample, spent in samples.items() if waits_for_one(sample.place)}
    if where in (UNNAMED, ROLLOUT):  # a pause may be anything; where nothing generates, a request may
        others = (SLEEP,) if has_cycle and where == UNNAMED else (SLEEP, HTTP)
        waits = {sample: spent for sample, spent in waits.items() if sample.place.activity not in others}
    waiting = sum(waits.values()) / sum(samples.values()) if waits else 0.0
    if waiting < MIN_WAITING_SHARE:
        return None
    kinds = sorted({sample.place.activity for sample in waits})
    what = {UNNAMED: "in no phase", ROLLOUT: "rollout"}.get(where, "rewards")
    return Finding(
        code="sequential-rewards",
        title=f"Sequential rewards: {share(part * waiting)} of the time {SINCE} waits, for one call after the other",
        evidence=[
            f"{what} {share(part)} of the time {SINCE}, {share(waiting)} of it waiting ({', '.join(kinds)}),"
            " by stack samples",
            *evidence.places(*where),
        ],
        advice="Where each answer (or step) is a call, make the calls at once: a ThreadPoolExecutor around them, or"
        " asynchronous requests. Where one call holds all answers, that program is the limit: score beside the next"
        " generation.",
        cost=part * waiting,
        estimated=True,
        lost_fraction=evidence.wall_part(seconds) * waiting * _saved_at_once(evidence, part * waiting),
        culprit=culprit,
    )


def _saved_at_once(evidence: Evidence, part: float) -> float:
    """Return what all calls at once save of a wait for one after the other, at most.

    One call remains where there is a call for each answer; unknown where answers are not counted. What works for the
    calls on this machine is no quicker than all its cores: their part at work during the wait remains. All else is
    taken to keep every core busy, so that this part is an estimate from below.

    Args:
        part: of the time since the first step, in this wait.
    """
    answers, calls = metric_total(evidence, "completions"), metric_total(evidence, "generate_calls")
    last = calls / answers if calls and answers > calls else 0.0
    used = evidence.host_values("cpu")
    busy = (median(used) / 100.0 - (1.0 - part)) / part if used else 0.0
    return 1.0 - min(1.0, max(last, busy))


def waits_for_one(place: Place) -> bool:
    """Return whether a stack sample shows the training thread itself wait for a single thing.

    Locks and queues are left out: there a program waits for its pool of threads or processes, which is the remedy.
    """
    if place.activity == HTTP:
        return True
    lines: list[Line] = [place.users, *([] if place.library is None else [place.library])]
    if place.activity == SUBPROCESS:  # a started process may be one of many; `run` may be imported by its own name
        return any((effects_of(line.call) | effects_of(f"subprocess.{line.call}")) & RUNS_PROCESS for line in lines)
    names = [line.function.lower() for line in lines]
    return place.activity == SLEEP and not any(word in name for name in names for word in _OF_MANY)


SCORING = (*REWARDS, "test_generation")
MIN_HITS, MIN_HIT_SHARE = 5, 0.03  # steps at the limit; of all steps with the phase
LIMIT_WIDTH = 1.04  # times the limit: what starts and ends a call takes some hundredths
MIN_LIMIT_RATIO = 1.5  # times the median: where most calls end at one time, that is how long they take
# Seconds that people choose as limits. A longest call lies within 4% above one of them by chance in 1 of 4 cases; that
# the longest steps crowd there, apart from the others, is what decides.
LIMITS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 45, 50, 60, 90, 120, 180, 240, 300, 600)
GAP = 1.3  # times: the limit divided by this, to the limit, is where fewer steps end than at it
LOWER_LIMIT = (
    "Lower the limit to what answers that end need, stop what cannot end early (a first test, a limit on CPU time), and"
    " score the others meanwhile."
)


@rule(
    "time-limit",
    Family.WAITING,
    suppresses=(
        Suppress(("slow-steps",), culprits=(*SCORING, OTHER)),
        Suppress(("unaccounted-time", "sequential-rewards"), same_culprit=True, if_most=True),
        Suppress(("worker-wait",), if_most=True),
    ),
)
def time_limit(evidence: Evidence) -> Finding | None:
    """Find scoring that often takes as long as it may: what does not end, or is too slow for its limit."""
    return _by_exceptions(evidence) or _by_durations(evidence)


def _by_exceptions(evidence: Evidence) -> Finding | None:
    """Find limits that programs reached which the training waited for."""
    reached, seconds = evidence.facts.time_limit, evidence.facts.time_limit.seconds
    if reached.own < reached.hits / 2:  # in a pool: what the training does not wait for costs nothing
        seconds = min(seconds, worker_seconds(evidence))
    part = evidence.loop_part(seconds)
    if reached.hits < MIN_HITS:
        return None
    named = {name: evidence.named_seconds(name) for name in SCORING}
    longest = max(named, key=named.__getitem__)
    return Finding(
        code="time-limit",
        cost=part,
        title=f"Programs end at their time limit {reached.hits:,} times: {share(part)} of the time {SINCE}",
        evidence=[
            f"subprocess.TimeoutExpired, the last one after {duration(reached.limit)};"
            f" {reached.own:,} of them in the training's own thread"
        ],
        advice=LOWER_LIMIT,
        lost_fraction=None if evidence.host_only else min(1.0, evidence.wall_part(seconds)),
        culprit=longest if named[longest] >= seconds / 2 else OTHER,
    )


def _by_durations(evidence: Evidence) -> Finding | None:
    for name in SCORING:
        stats = evidence.state.main.phases.get(name)
        if stats is None or not evidence.has_steps():
            continue
        column = stats.seconds.settled()
        typical, longest = column.quantiles.at(0.5)[0], column.most
        limit = max((limit for limit in LIMITS if limit <= longest), default=None)
        if limit is None or longest > limit * LIMIT_WIDTH or longest < MIN_LIMIT_RATIO * typical:
            continue
        hits = column.quantiles.count(longest / LIMIT_WIDTH)
        near = column.quantiles.count(longest / GAP) - hits
        seconds = hits * (limit - typical)
        part = evidence.loop_part(seconds)
        if hits < max(MIN_HITS, MIN_HIT_SHARE * column.count) or near > hits:
            continue
        return Finding(
            code="time-limit",
            cost=part,
            title=f"{name} ends at a limit of {limit} s in {share(hits / column.count)} of the steps",
            evidence=[
                f"{hits:,} of {column.count:,} steps take {limit} s to {duration(longest)} there, none longer; median"
                f" {duration(typical)}",
                *evidence.places(name),
            ],
            advice=LOWER_LIMIT,
            lost_fraction=None if evidence.host_only else evidence.wall_part(seconds),
            culprit=name,
        )
    return None
