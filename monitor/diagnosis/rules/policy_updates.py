"""How a policy is updated: entropy, distance to the reference, clipping, and a sampler that lags behind. Pure."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from monitor.diagnosis.policy_metrics import (
    MIN_VALUES,
    RISE_SIGMAS,
    Policy,
    Quantity,
    Signal,
    has_risen,
    is_zero_one,
    policies,
)
from monitor.diagnosis.rule import Evidence, Family, rule
from monitor.model.report import Finding
from monitor.units import number, share, times
from trainhooks.protocol.vocabulary import ENV_STEPS

MAX_ENTROPY_LEFT = 0.1  # of that at the start: where ten choices were open, about one is
JUDGED_FROM = 0.5  # of the run: half of it was spent on a policy that tries nothing new
MIN_ENTROPY = 0.05  # nats at the start; a policy below it was certain from the first step on
MIN_LOW_SHARE = 0.9  # of the values since, which are below it too
MIN_FALL = 0.2  # of the reward's range below its best part: noise of a part's median is less
MIN_SOLVED = 0.9  # of a reward from 0 to 1: one that stays below it is not solved
FALL_SIGMAS = 2.0  # standard errors, for a fall among few values, whose medians noise moves
FIFTHS = 5  # of the run, each with the median of its rewards


@rule("entropy-collapse", Family.LEARNING, priority=1)
def entropy_collapse(evidence: Evidence) -> Finding | None:
    """Find a policy that stopped to explore before its task was solved."""
    for policy in policies(evidence):
        reward = policy.reward
        if reward is None or not reward.has_values(evidence):
            continue
        for row in policy.signals(Quantity.ENTROPY):
            entropy = _without_sign(row)
            if entropy is None or not entropy.has_values(evidence):
                continue
            since = _collapse_begin(entropy)
            severity = None if since is None else _severity(reward, since)
            if since is None or severity is None:
                continue
            return Finding(
                code="entropy-collapse",
                severity=severity,
                title=f"Entropy collapse: {share(entropy.level / entropy.start)} of the start is left",
                evidence=[
                    f"{row.name}: {number(entropy.start)} at the start, below {share(MAX_ENTROPY_LEFT)} of it since"
                    f" {share(since)} of the run, {number(entropy.level)} now",
                    f"{reward.name} has not risen since: {number(reward.level)} now, {number(reward.most)} at most",
                ],
                advice="Go back to a checkpoint before it; lower the learning rate, add an entropy bonus, raise the"
                " upper clip bound or the sampling temperature.",
            )
    return None


def _without_sign(row: Signal) -> Signal | None:
    """Return an entropy with its sign; None where it has two signs, as that of a density: ratios say nothing then."""
    if row.least < 0.0 < row.most:
        return None
    least, most = sorted((abs(row.least), abs(row.most)))
    return replace(row, points=[(x, abs(y)) for x, y in row.points], least=least, most=most)


def _collapse_begin(entropy: Signal) -> float | None:
    """Return the share of the run after which the entropy stayed low; None where it did not, or late."""
    limit = MAX_ENTROPY_LEFT * entropy.start
    late = entropy.values(JUDGED_FROM)
    if entropy.start < MIN_ENTROPY or sum(value <= limit for value in late) < MIN_LOW_SHARE * len(late):
        return None
    first, last = entropy.points[0][0], entropy.points[-1][0]
    return next((x - first for x, y in entropy.points if y <= limit), 0.0) / (last - first)


def _severity(reward: Signal, since: float) -> str | None:
    """Return how grave it is that a reward rises no more; None where it rises, or stays at its best."""
    if reward.rises(begin=since, sigmas=RISE_SIGMAS):
        return None
    parts = [values for part in range(FIFTHS) if (values := reward.values(part / FIFTHS, (part + 1) / FIFTHS))]
    best, span = max(median(values) for values in parts), reward.most - reward.least
    if span <= 0.0:
        return None  # a constant reward is a finding of its own
    if best - reward.level > MIN_FALL * span or not has_risen(reward):
        if is_zero_one(reward) and reward.level >= MIN_SOLVED:
            return None
        is_sure = reward.count >= MIN_VALUES or reward.falls(begin=since, sigmas=FALL_SIGMAS)
        return "warning" if is_sure else "info"
    # It rose, and stays there: solved, or stuck. Only a reward whose bound is known tells.
    return "info" if is_zero_one(reward) and reward.level < MIN_SOLVED else None


# Nats a token: each token has become e times less likely to the reference, which itself is uncertain by about as much.
MAX_KL = 1.0
MAX_KL_START = 0.1  # of that now, at the start: a policy that begins elsewhere has another reference


@rule("kl-blowup", Family.LEARNING, priority=1)
def kl_blowup(evidence: Evidence) -> Finding | None:
    """Find a policy that has left its reference behind."""
    for policy in policies(evidence):
        for row in policy.signals(Quantity.REFERENCE_KL, Quantity.SUMMED_KL):
            tokens = 1.0 if row.name in _metric_names(policy, Quantity.REFERENCE_KL) else _tokens(evidence, policy)
            if policy.is_acting or tokens is None or not row.has_values(evidence):
                continue  # in environments it is another one: between an update's two policies
            begin = min(row.start, row.points[0][1])  # one update may be enough to leave the reference
            if not row.mostly_in(low=MAX_KL * tokens) or begin > MAX_KL_START * row.level:
                continue
            reward = policy.reward
            rises = reward is not None and reward.rises(begin=JUDGED_FROM, sigmas=RISE_SIGMAS)
            lines = [
                f"{row.name}: median {number(row.level)} in the last third, {number(row.start)} at the start"
                + (f", over {number(tokens)} tokens" if tokens != 1.0 else "")
            ]
            if reward is not None:
                how = "rises still: read what it is given for" if rises else "does not rise"
                lines.append(f"{reward.name} {how}: {number(reward.start)} at the start, {number(reward.level)} now")
            return Finding(
                code="kl-blowup",
                severity="info" if rises else "warning",
                title=f"KL to the reference is {number(row.level / tokens)} nats a token",
                evidence=lines,
                advice="Go back to a checkpoint before it; lower the learning rate, raise the KL coefficient, clip"
                " gradients, and read completions of before and after.",
            )
    return None


def _metric_names(policy: Policy, quantity: Quantity) -> set[str]:
    return {name for _, name, _ in policy.names.get(quantity, ())}


def _tokens(evidence: Evidence, policy: Policy) -> float | None:
    """Return the tokens of a completion, or the most that it may have; None where unknown."""
    length = policy.first_signal(Quantity.LENGTH)
    if length is not None and length.level > 0.0:
        return length.level
    setting = evidence.setting("response_length", "max_completion_length", "max_new_tokens")
    known = setting[1] if setting is not None else None
    return float(known) if isinstance(known, int | float) and known > 0 else None


# Of tokens or actions: usual is 0.1 to 0.2. What is clipped in the direction of its advantage gives no gradient.
MIN_CLIPPED = 0.3
MOST_CLIPPED = 0.5  # likewise: most of a batch is outside the region in which its gradient can be trusted
SMALL_CLIP = 0.05  # a clip range: below it, as in sequence-level ratios (GSPO), many are clipped by intent
LEAST_CLIP = 1e-5  # likewise: what is smaller is the epsilon of an optimizer
CLIP_RANGES = ("clip_range", "clip_coef", "clip_ratio", "epsilon", "cliprange", "eps_clip")


@rule("clipping-heavy", Family.LEARNING)
def clipping_heavy(evidence: Evidence) -> Finding | None:
    """Find updates that leave the clip range for a large part of the batch."""
    if _clips_by_intent(evidence):
        return None
    for policy in policies(evidence):
        for row in policy.signals(Quantity.CLIPPED):
            if not row.is_share or not row.has_values(evidence) or not row.mostly_in(low=MIN_CLIPPED):
                continue
            lines = [f"{row.name}: median {share(row.level)} in the last third, of {row.count:,} values"]
            distance = policy.first_signal(Quantity.UPDATE_KL)
            if distance is not None:
                lines.append(f"{distance.name}: median {number(distance.level)} in the last third")
            return Finding(
                code="clipping-heavy",
                severity="warning" if row.mostly_in(low=MOST_CLIPPED) else "info",
                title=f"{share(row.level)} of each update is clipped: its steps are too large",
                evidence=lines,
                advice="Lower the learning rate, or make fewer updates on each batch; a limit on the KL of an update"
                " (target_kl) stops it in time.",
            )
    return None


def _clips_by_intent(evidence: Evidence) -> bool:
    level, mode = evidence.setting("importance_sampling_level"), evidence.setting("loss_mode", "policy_loss")
    width = evidence.setting(*CLIP_RANGES)
    if (level is not None and level[1] == "sequence") or (mode is not None and "gspo" in str(mode[1])):
        return True
    return width is not None and isinstance(width[1], int | float) and LEAST_CLIP < width[1] < SMALL_CLIP


# Nats an update: by sqrt(2 KL) a probability changes by about 0.1%. Usual is a thousand times as much.
MAX_FROZEN_KL = 1e-6
MAX_FROZEN_CLIPPED = 1e-4  # of tokens or actions: one in ten thousand
FROZEN_SHARE = 0.9  # of all values
MIN_UPDATES = 2  # on each batch: the first is made with the policy that sampled it, whose ratio is 1
MIN_ITERATION_STEPS = 4  # of an iteration: two optimizers, of policy and value, then make two updates each
UPDATES_SETTINGS: tuple[str, ...] = ("update_epochs", "ppo_epochs", "num_ppo_epochs", "ppo_epoch")


@rule("policy-frozen", Family.LEARNING, priority=1)
def policy_frozen(evidence: Evidence) -> Finding | None:
    """Find a policy that several updates on each batch do not move."""
    for policy in policies(evidence):
        distance, clipped = policy.first_signal(Quantity.UPDATE_KL), policy.first_signal(Quantity.CLIPPED)
        if distance is None or clipped is None or not distance.has_values(evidence) or not clipped.has_values(evidence):
            continue
        updates = _updates_known(evidence, policy)
        reward = policy.reward
        if updates is None or (reward is not None and reward.rises(sigmas=RISE_SIGMAS)):
            continue
        if not _is_zero(distance, MAX_FROZEN_KL) or not _is_zero(clipped, MAX_FROZEN_CLIPPED):
            continue
        return Finding(
            code="policy-frozen",
            severity="warning",
            title=f"Updates hardly move the policy: {distance.name} is {number(distance.level)}",
            evidence=[
                f"{updates}: the first update on a batch has a KL of 0, the others should not",
                f"{distance.name} within {MAX_FROZEN_KL:g} and {clipped.name} within {MAX_FROZEN_CLIPPED:g} in"
                f" {share(FROZEN_SHARE)} of {distance.count:,} values or more",
            ],
            advice="Check the learning rate, the advantages (all 0?), the loss's scale and mask, and that the optimizer"
            " holds the policy that samples.",
        )
    return None


def _is_zero(row: Signal, limit: float) -> bool:
    return sum(abs(y) <= limit for _, y in row.points) >= FROZEN_SHARE * len(row.points)


def _updates_known(evidence: Evidence, policy: Policy) -> str | None:
    """Return by what it is known that each batch is used for several updates; None where it is not."""
    counter = policy.first_signal(Quantity.UPDATES)
    if counter is not None and counter.most >= MIN_UPDATES * counter.count:
        return f"{counter.name} rises by {number(counter.most / counter.count)} with each logged value"
    names = UPDATES_SETTINGS
    if evidence.setting("num_generations") is not None:
        names = (*names, "num_iterations")  # elsewhere it may be the total of the run
    setting = evidence.setting(*names)
    if setting is not None and isinstance(setting[1], int | float):
        return f"{setting[0]}={setting[1]}" if setting[1] >= MIN_UPDATES else None
    cycle = evidence.report.cycle
    if cycle is None or policy.role or cycle.steps < MIN_ITERATION_STEPS:
        return None
    return f"{cycle.steps:,.0f} optimizer steps learn from each rollout"


# Nats a token: as far as PPO's usual clip range, so that a typical token is at its end before any update.
MAX_DIFFERENCE = 0.2
# Where it grows: several times what 16-bit arithmetic and other kernels make between equal weights, 0.01 to 0.02.
MIN_GROWN_DIFFERENCE = 0.05
MIN_DIFFERENCE_GROWTH = 3.0  # times the start
MIN_WEIGHT, MAX_WEIGHT = 0.5, 2.0  # of importance weights: their mean is 1 where sampler and trainer agree
MIN_FAR_SHARE = 0.5  # of the values, which lie beyond
# Updates, where it grows: asynchronous trainers bound it at 1 to 8, up to which learning was found to hold (AReaL).
MIN_STALENESS = 8.0


@rule("off-policy", Family.LEARNING, priority=1)
def off_policy(evidence: Evidence) -> Finding | None:
    """Find a sampler whose probabilities are not those of the policy that trains."""
    for policy in policies(evidence):
        for row in policy.signals(Quantity.SAMPLER_DIFFERENCE):
            if row.has_values(evidence) and (found := _by_difference(row)) is not None:
                return found
        for row in policy.signals(Quantity.STALENESS):
            if policy.reward is not None and row.has_values(evidence) and (found := _by_staleness(row)) is not None:
                return found
        for row in policy.signals(Quantity.SAMPLER_RATIO):
            if not row.has_values(evidence):
                continue
            values = row.values()
            far = max(sum(value <= MIN_WEIGHT for value in values), sum(value >= MAX_WEIGHT for value in values))
            is_far_now = row.mostly_in(high=MIN_WEIGHT) or row.mostly_in(low=MAX_WEIGHT)
            if is_far_now or far >= MIN_FAR_SHARE * len(values):  # what was learned then is of no use
                middle = row.level if is_far_now else median(values)
                lines = [
                    f"{row.name}: median {number(middle)}, {number(row.level)} in the last third, 1 where they agree"
                ]
                return _off_policy(f"{row.name} is {number(middle)}", lines)
    return None


def _by_difference(row: Signal) -> Finding | None:
    lines = [f"{row.name}: median {number(row.level)} in the last third, {number(row.start)} at the start"]
    grows = row.level >= MIN_DIFFERENCE_GROWTH * row.start and row.rises()
    if grows and row.mostly_in(low=MIN_GROWN_DIFFERENCE):
        factor = f", {times(row.level / row.start)} that of the start" if row.start > 0.0 else ""
        title = f"The sampler falls behind the trainer: {number(row.level)} apart{factor}"
        return _off_policy(title, lines, is_stale=True)
    if row.mostly_in(low=MAX_DIFFERENCE):
        return _off_policy(f"Sampler and trainer differ: {number(row.level)} a token", lines)
    return None


def _by_staleness(row: Signal) -> Finding | None:
    if row.level < MIN_DIFFERENCE_GROWTH * row.start or not row.mostly_in(low=MIN_STALENESS) or not row.rises():
        return None
    title = f"The sampler falls behind the trainer: its samples are {row.level:,.0f} updates old"
    lines = [f"{row.name}: median {row.level:,.0f} updates in the last third, {row.start:,.0f} at the start"]
    advice = "Bound the queue, or drop samples older than a limit; add samplers, or train less often on each batch."
    return replace(_off_policy(title, lines, is_stale=True), advice=advice)


def _off_policy(title: str, lines: list[str], is_stale: bool = False) -> Finding:
    synced = "that the sampler gets the trained weights (names, merged adapter, its cache reset)"
    alike = "temperature, template, tokenizer and precision of both"
    advice = f"Check {synced}, and how often." if is_stale else f"Check {alike}; then {synced}."
    return Finding(
        code="off-policy",
        severity="warning",
        title=title,
        evidence=lines,
        advice=advice,
    )


MIN_UPDATED = 8  # calls of generate() with new weights in the trained model before each
SURE_UPDATED = 20  # likewise; a program may hand over its weights every ten steps


@rule("weights-not-synced", Family.LEARNING, priority=1, suppresses=("off-policy",))
def weights_not_synced(evidence: Evidence) -> Finding | None:
    """Find a copy of the trained model that generates and never gets its weights."""
    updated = evidence.facts.generator_weights.updated
    if updated < MIN_UPDATED or evidence.facts.generator_weights.unchanged != updated:
        return None
    if not any(policy.reward is not None for policy in policies(evidence)):
        return None  # a teacher, whose weights stay as they are
    return Finding(
        code="weights-not-synced",
        severity="warning" if updated >= SURE_UPDATED else "info",
        title=f"Weights not synced: the generator's are the same after {updated:,} updates of the trained model",
        evidence=[
            f"numbers of both, compared at calls of generate(): the trained model's changed before {updated:,} calls,"
            " those of its copy before none",
        ],
        advice="Load the trained weights into the generator after each update, or every few: all that it generates"
        " comes from the policy of the beginning.",
    )


MIN_LOOKS = 8  # in as many updates the copy was called, and had the weights of the beginning
MAX_ALIKE = 0.5  # of the looks: a reference is given what the policy learns on in all of them
# Published intervals go up to 10,000 updates. A run that goes on is judged at twice that, one that has ended by what it
# did; before a thousand it is a trial.
MIN_TARGET_UPDATES, MIN_ENDED_UPDATES = 20_000, 1_000


@rule("target-not-updated", Family.LEARNING, priority=1)
def target_not_updated(evidence: Evidence) -> Finding | None:
    """Find a target network that has kept the weights of the beginning."""
    found, updates = evidence.facts.target_network, evidence.report.progress.steps_done
    if found.unchanged < MIN_LOOKS or found.alike > MAX_ALIKE * (found.unchanged + found.alike):
        return None
    if ENV_STEPS not in evidence.report.metrics:
        return None  # a teacher or a reference of a model that acts in no environment
    if updates < (MIN_TARGET_UPDATES if evidence.is_running else MIN_ENDED_UPDATES):
        return None
    return Finding(
        code="target-not-updated",
        severity="warning",
        title=f"Target network never updated: it has its first weights after {updates:,} updates",
        evidence=[
            f"numbers of both, compared in {found.unchanged:,} updates or more: those of the trained network had"
            " changed, those of its copy were the first ones",
            "it is called on other inputs than the trained network learns on, and no environment step follows",
        ],
        advice="Copy the trained weights into it every few hundred to 10,000 updates, or average them in at each: its"
        " values are those of an untrained network. If the interval is longer than the run, shorten it.",
    )
