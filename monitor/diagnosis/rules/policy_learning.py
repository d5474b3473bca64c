"""What a policy's rewards teach: groups without differences, a solved task, lengths, unusable answers, tests. Pure."""

from __future__ import annotations

from statistics import median

from monitor.diagnosis.policy_metrics import (
    CORRELATION_SIGMAS,
    MIN_PART,
    MIN_VALUES,
    Policy,
    Quantity,
    Signal,
    complement,
    has_risen,
    is_zero_one,
    least_correlation,
    policies,
)
from monitor.diagnosis.rule import Evidence, Family, rule
from monitor.diagnosis.rules.learning_signals import MIN_CONSTANT
from monitor.model.report import Finding
from monitor.units import number, plural, share, times

MIN_ZERO_GROUPS = 0.5  # of the groups: more than half of what is generated and scored is thrown away
# Times the largest reward. GRPO divides by the standard deviation plus 1e-4, which below it is no longer noticed.
MAX_ZERO_STD = 1e-4
MAX_BELOW_BOUND = 0.02  # of the reward's range: one wrong answer in fifty
MIN_SAME_GROUPS = 0.9  # of the groups, for rewards whose bound nobody knows: at a bound all are alike
MAX_ALIKE = 0.02  # of the reward's range, as the standard deviation of rewards that are alike
GENERATION = "generation"


# A run that learns nothing is worth less than a slow one: by its priority this comes before what only costs time.
@rule("zero-advantage", Family.LEARNING, priority=1, suppresses=("loss-flat",))
def zero_advantage(evidence: Evidence) -> Finding | None:
    """Find groups of completions that teach nothing, because all rewards in a group are the same."""
    for policy in policies(evidence):
        if _is_solved(evidence, policy) or _is_at_end(evidence, policy):
            continue  # `reward-saturated`
        shares = [row for row in policy.signals(Quantity.ZERO_GROUPS) if row.is_share and row.has_values(evidence)]
        for row in shares:
            if row.level >= MIN_ZERO_GROUPS:
                lines = [f"{row.name}: median {share(row.level)} in the last third, of {row.count:,} values"]
                title = f"{share(row.level)} of the groups teach nothing: equal rewards give no gradient"
                severity = "critical" if row.least >= 1.0 and row.count >= MIN_CONSTANT else "warning"
                return _no_differences_finding(evidence, policy, title, lines, row.level, severity)
        spread = policy.first_signal(Quantity.REWARD_STD)
        if not shares and spread is not None and spread.has_values(evidence):
            found = _zero_spread(evidence, policy, spread)
            if found is not None:
                return found
    return None


def _zero_spread(evidence: Evidence, policy: Policy, spread: Signal) -> Finding | None:
    """Return a finding where the standard deviation of rewards is 0 in most recent steps."""
    reward = policy.reward
    if reward is None or reward.most <= reward.least:
        return None  # a constant reward is a finding of its own
    limit = MAX_ZERO_STD * max(abs(reward.least), abs(reward.most))
    recent = spread.recent
    zero = sum(value <= limit for value in recent) / len(recent)
    if zero < MIN_ZERO_GROUPS:
        return None
    lines = [f"{spread.name}: {share(zero)} of the values in the last third are 0, {spread.count:,} values in all"]
    # Where it was never more, there may be no groups: one answer a prompt, and a baseline that is learned.
    severity = "warning" if spread.most > limit else "info"
    title = f"{share(zero)} of the recent steps teach nothing: rewards do not differ"
    return _no_differences_finding(evidence, policy, title, lines, zero, severity)


def _no_differences_finding(
    evidence: Evidence, policy: Policy, title: str, lines: list[str], lost: float, severity: str
) -> Finding:
    reward = policy.reward
    side = "Ask for other problems"
    if reward is not None:
        lines.append(f"{reward.name}: median {number(reward.level)} in the last third, {number(reward.most)} at most")
        if is_zero_one(reward):
            side = "Too easy: harder problems" if reward.level > MIN_ZERO_GROUPS else "Too hard: easier problems"
    spent = evidence.loop_part(evidence.named_seconds(GENERATION))
    if spent and not policy.role and not evidence.host_only:
        lines.append(f"generation takes {share(spent)} of the time, {share(lost * spent)} for what gives no gradient")
    return Finding(
        code="zero-advantage",
        severity=severity,
        title=title,
        evidence=lines,
        advice=f"{side}, more completions a prompt, a higher temperature or partial rewards; or leave out prompts whose"
        " rewards never differ (dynamic sampling).",
    )


@rule("reward-saturated", Family.LEARNING)
def reward_saturated(evidence: Evidence) -> Finding | None:
    """Find a reward that has been at its upper bound for a third of the run."""
    for policy in policies(evidence):
        reward = policy.reward
        if reward is None or not reward.has_values(evidence):
            continue
        if _is_solved(evidence, policy):
            bound = "its upper bound"
        elif _at_most_seen(evidence, policy, reward):
            bound = "the largest value so far"
        else:
            continue
        spread = policy.first_signal(Quantity.REWARD_STD)
        lines = [f"median {number(reward.level)} in the last third, {number(reward.most)} at most in the run"]
        if spread is not None:
            lines.append(f"{spread.name}: median {number(spread.level)} in the last third")
        return Finding(
            code="reward-saturated",
            severity="info",
            title=f"Saturated reward: {reward.name} is at {bound}",
            evidence=lines,
            advice="Nothing is left to learn from it: stop, or go on with harder problems.",
        )
    return None


def _is_solved(evidence: Evidence, policy: Policy) -> bool:
    """Return whether a reward from 0 to 1 has been 1 for a third of the run, all but a fiftieth."""
    reward = policy.reward
    if reward is None or not reward.has_values(evidence) or not is_zero_one(reward) or reward.least == reward.most:
        return False
    return reward.mostly_in(low=1.0 - MAX_BELOW_BOUND)


def _is_at_end(evidence: Evidence, policy: Policy) -> bool:
    """Return whether a reward of unknown bound has risen until all answers had the largest so far."""
    reward = policy.reward
    if reward is None or not reward.has_values(evidence):
        return False
    return has_risen(reward) and _at_most_seen(evidence, policy, reward)


def _at_most_seen(evidence: Evidence, policy: Policy, reward: Signal) -> bool:
    """Return whether a reward of unknown bound has been the largest so far, and the same in all answers."""
    span = reward.most - reward.least
    if is_zero_one(reward) or span <= 0.0 or not reward.mostly_in(low=reward.most - MAX_BELOW_BOUND * span):
        return False
    groups, spread = policy.first_signal(Quantity.ZERO_GROUPS), policy.first_signal(Quantity.REWARD_STD)
    if groups is not None and groups.is_share and groups.has_values(evidence):
        return groups.level >= MIN_SAME_GROUPS
    return spread is not None and spread.has_values(evidence) and spread.mostly_in(high=MAX_ALIKE * span)


# Of the completions: a quarter is cut off before its answer. These are the longest, so they take more than a quarter
# of the tokens that are generated.
MIN_TRUNCATED = 0.25
FALLING_FACTOR = 0.75  # of the highest share so far: a fall that far is under way to the end of it
ALL_TRUNCATED = 0.99  # of the completions: none ever ends, as where the length is fixed on purpose
MAX_WORTHLESS = 0.05  # of the mean reward, for truncated completions that are worth nothing
MIN_PARTS_WORSE = 0.3  # correlation, at least: a tenth of the changes of the reward goes with those of the share
FALL_SIGMAS = 2.0  # standard errors: what falls by itself is information
LENGTH_SETTINGS = ("max_completion_length", "max_new_tokens", "max_response_length", "max_tokens", "response_length")


@rule("completions-truncated", Family.LEARNING)
def completions_truncated(evidence: Evidence) -> Finding | None:
    """Find completions that are often cut off at the limit of their length."""
    for policy in policies(evidence):
        for row in policy.signals(Quantity.TRUNCATED):
            if policy.is_acting or not row.is_share or not row.has_values(evidence) or row.level < MIN_TRUNCATED:
                continue  # the episodes of an environment end at its time limit by right
            reward = policy.reward
            # Nothing ends, and the reward rises nevertheless: the length is fixed, and the task one of it.
            is_meant = row.least >= ALL_TRUNCATED and reward is not None and reward.rises()
            is_mild = is_meant or (row.falls(begin=0.5, sigmas=FALL_SIGMAS) and row.level <= FALLING_FACTOR * row.most)
            limit = evidence.setting_now(*LENGTH_SETTINGS)
            return Finding(
                code="completions-truncated",
                severity="info" if is_mild else "warning",
                title=f"{share(row.level)} of the completions are cut off before they end",
                evidence=[
                    f"{row.name}: median {share(row.level)} in the last third, {share(row.start)} at the start",
                    *_worth_lines(evidence, policy, row),
                ],
                advice=f"Allow longer completions{limit}, penalize length, or ask for shorter answers; if none ends,"
                " check the end-of-sequence token and the chat template.",
            )
    return None


def _worth_lines(evidence: Evidence, policy: Policy, truncated: Signal) -> list[str]:
    """Return what is known of the reward of truncated completions."""
    setting = evidence.setting("mask_truncated_completions")
    if setting is not None and setting[1] is True:
        return ["mask_truncated_completions=True: they are generated, and then left out of the loss"]
    reward, theirs = policy.reward, policy.first_signal(Quantity.TRUNCATED_REWARD)
    if theirs is not None and reward is not None and is_zero_one(reward) and theirs.is_share:
        if theirs.level <= MAX_WORTHLESS * reward.level:
            return [f"they earn nothing: {theirs.name} is {number(theirs.level)} in the last third"]
        return [f"{theirs.name}: median {number(theirs.level)} in the last third, {number(reward.level)} of all"]
    if reward is not None and -least_correlation(truncated, reward) >= MIN_PARTS_WORSE:
        return [f"{reward.name} falls in steps in which more are cut off"]
    return []


MIN_LONGER = 2.0  # times the start: half of the tokens that are generated and trained on are new
END_SHARE = 0.2  # of the run at either end, whose medians are compared
# Of the changes from step to step, beyond the error: half of the variance of the reward's goes with the length's.
MIN_CORRELATION = 0.7
SURE_CORRELATION = 0.9  # likewise: four fifths of it
MIN_BY_LENGTH = 1.5  # times the start: a length that hardly grows is nothing that the policy makes use of
# Nine tenths of the variance: the reward is the length, under another name, and any growth is for its sake.
SAME_CORRELATION, MIN_SAME_LENGTH = 0.95, 1.2


def _length_growth(evidence: Evidence, length: Signal, least: float) -> tuple[float, float] | None:
    """Return the lengths at both ends of the run, where they grow steadily to `least` times as much."""
    first, last = length.values(0.0, END_SHARE), length.values(1.0 - END_SHARE)
    if not length.has_values(evidence) or not first or not last or length.least < 0.0:
        return None
    before, now = median(first), median(last)
    return (before, now) if before > 0.0 and now >= least * before and length.rises() else None


@rule("length-growth", Family.LEARNING)
def length_growth(evidence: Evidence) -> Finding | None:
    """Find completions that become longer and earn no more."""
    for policy in policies(evidence):
        length, reward = policy.first_signal(Quantity.LENGTH), policy.reward
        if policy.is_acting or length is None or reward is None or not reward.has_values(evidence):
            continue
        grown = _length_growth(evidence, length, MIN_LONGER)
        if grown is None or not reward.never_rises():
            continue
        return Finding(
            code="length-growth",
            severity="warning" if reward.count >= MIN_VALUES else "info",  # a rise hides in the noise of a few
            title=f"Completions are {times(grown[1] / grown[0])} as long as at the start, for no more reward",
            evidence=[
                f"{length.name}: median {number(grown[0])} in the first fifth, {number(grown[1])} in the last",
                f"{reward.name} does not rise: {number(reward.start)} at the start, {number(reward.level)} now",
            ],
            advice="Look at late completions: repetition, padding or an answer that never ends; penalize length, or"
            " normalize the loss by a constant instead of each completion's length.",
        )
    return None


@rule("reward-by-length", Family.LEARNING, priority=1)
def reward_by_length(evidence: Evidence) -> Finding | None:
    """Find a reward that rises by nothing but the length of completions."""
    for policy in policies(evidence):
        length, reward = policy.first_signal(Quantity.LENGTH), policy.reward
        if policy.is_acting or length is None or reward is None or not reward.has_values(evidence):
            continue
        if not reward.rises():
            continue
        found = least_correlation(length, reward)
        is_same = found >= SAME_CORRELATION
        grown = _length_growth(evidence, length, MIN_SAME_LENGTH if is_same else MIN_BY_LENGTH)
        if grown is None or found < MIN_CORRELATION:
            continue
        is_sure = is_same or (found >= SURE_CORRELATION and grown[1] >= MIN_LONGER * grown[0])
        return Finding(
            code="reward-by-length",
            severity="warning" if is_sure else "info",
            title=f"The reward follows the length: completions are {times(grown[1] / grown[0])} as long",
            evidence=[
                f"from step to step {reward.name} changes as {length.name} does: rank correlation {found:.2f} or more"
                f" ({CORRELATION_SIGMAS:g} standard errors off)",
                f"{reward.name}: {number(reward.start)} at the start, {number(reward.level)} now",
            ],
            advice="Read long and short completions of one prompt: if the reward pays for words, compare answers of"
            " equal length, or take the length out of it.",
        )
    return None


MIN_UNUSABLE = 0.25  # of the answers: a quarter of the generation is scored by its form and not by what it says
MOST_UNUSABLE = 0.5  # likewise: more of the rewards are about the form than about the task


@rule("unparsable-outputs", Family.LEARNING)
def unparsable_outputs(evidence: Evidence) -> Finding | None:
    """Find answers that are empty, or that nothing can parse or compile."""
    for policy in policies(evidence):
        rows = [*policy.signals(Quantity.UNUSABLE), *map(complement, policy.signals(Quantity.USABLE))]
        rows = [row for row in rows if row.is_share and row.has_values(evidence)]
        if policy.reward is None or not rows:
            continue
        rows = sorted((row for row in rows if row.level >= MIN_UNUSABLE), key=lambda row: -row.level)
        steady = [row for row in rows if not row.falls(begin=0.5, sigmas=FALL_SIGMAS)]
        if not steady and not (rows and rows[0].level >= MOST_UNUSABLE):
            continue  # it learns the form
        most = (steady or rows)[0]
        is_grave = bool(steady) and most.level >= MOST_UNUSABLE
        return Finding(
            code="unparsable-outputs",
            severity="warning" if is_grave else "info",
            title=f"{share(most.level)} of the answers are unusable: {most.detail.replace('_', ' ')}",
            evidence=[
                f"{row.name}: median {share(row.level)} in the last third, {share(row.start)} at the start"
                for row in rows
            ],
            advice="Read some of them beside the parser: the prompt's format, the fence or tag that it looks for, the"
            " length limit; a small reward for the form alone helps at the start.",
        )
    return None


MIN_TESTS = 3  # fewer have no distribution
NEVER_PASSED = 0.02  # of the answers, throughout: one in fifty is a lucky guess
PASSED = 0.9  # of the answers, in the last third: nothing is left to gain from it
MIN_NEVER_SHARE = 0.25  # of the tests: a single test that fails may be wrong itself
MAX_TESTS = 5  # tests


@rule("easy-tests-only", Family.LEARNING)
def easy_tests_only(evidence: Evidence) -> Finding | None:
    """Find a pass rate that easy tests carry while others are never passed."""
    for policy in policies(evidence):
        tests = [row for row in policy.signals(Quantity.PASSED) if row.is_share and row.has_values(evidence)]
        if len(tests) < MIN_TESTS:
            continue
        never = [row for row in tests if _never_passed(row)]
        passed = [row for row in tests if row.level >= PASSED]
        if not passed or len(never) < MIN_NEVER_SHARE * len(tests):
            continue
        names = ", ".join(row.detail for row in never[:MAX_TESTS])
        mean = sum(row.level for row in tests) / len(tests)
        carried = sum(row.level for row in passed) / len(tests)
        return Finding(
            code="easy-tests-only",
            severity="info",
            title=f"{len(never):,} of {len(tests):,} tests never passed: easy ones carry the pass rate",
            evidence=[
                f"mean pass rate {share(mean)}, {share(carried / mean)} of it from"
                f" {plural(len(passed), 'test', 'tests')} passed by at least {share(PASSED)} of the answers",
                f"never passed: {names}" + (", ..." if len(never) > MAX_TESTS else ""),
            ],
            advice="Weight tests by how rarely they pass, or drop the solved ones; check that the others can be"
            " passed at all.",
        )
    return None


def _never_passed(test: Signal) -> bool:
    parts = [test.values(begin / 3, (begin + 1) / 3) for begin in range(3)]
    return all(len(part) >= MIN_PART and median(part) <= NEVER_PASSED for part in parts)
