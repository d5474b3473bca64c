"""Learning signals: a loss that is not finite, a constant reward or loss, contradictory figures. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence

from monitor.console.field_mapping import ROLES
from monitor.console.reported import LEFT_OUT, NOTE_PREFIX
from monitor.diagnosis.rule import MIN_STEPS, Evidence, Family, rule
from monitor.model.report import Finding, MetricRow
from monitor.units import rate
from trainhooks.protocol.vocabulary import ENV_STEPS, REWARD_NAME, is_loss, is_reward

# Logged values: what learns, or is sampled, does not give the same number sixteen times, however short the run.
MIN_CONSTANT = 16
MIN_DIGITS = 4  # of a printed loss; in the third digit it differs within tens of values, if it learns
# Of steps that take long fewer values show as much: ten in five minutes differ, if anything is learned.
MIN_LONG_VALUES, MIN_LONG_RUN = 10, 300.0
SAME = 1e-9  # of its size: rounding of a constant
MIN_NONFINITE_SHARE = 0.01  # of the values of a loss that is not the trained one
# The training's own loss. Others may be constant, grow or end by nature: a validation's, a discriminator's, a part.
MAIN_LOSS = re.compile(r"(?:(?!eval|val|test|dev)[^/]+/)?(?:train(?:ing)?[/_. ])?loss", re.IGNORECASE)
BEST = re.compile(r"(?:^|[/_. ])(?:best|min|lowest)(?:[/_. ]|$)", re.IGNORECASE)  # infinite until there is one
COMPONENT = re.compile(r"(?:^|/)rewards?/[^/]+", re.IGNORECASE)  # one of several reward functions


def _metric_rows(evidence: Evidence, wanted: Callable[[str], bool]) -> Iterator[tuple[str, MetricRow]]:
    for name, row in evidence.report.metrics.items():
        if wanted(name):
            yield name, row


@rule("nonfinite-loss", Family.LEARNING)
def nonfinite_loss(evidence: Evidence) -> Finding | None:
    """Find a loss that is, or was, not a finite number."""
    rows = [(name, row) for name, row in _metric_rows(evidence, is_loss) if row.nonfinite and not BEST.search(name)]
    trained = [pair for pair in rows if MAIN_LOSS.fullmatch(pair[0])]
    for name, row in trained or rows:
        is_now = isinstance(row.last, str)
        if is_now:
            title = f"{name} is {row.last}" + (": the model no longer learns" if trained else "")
        else:
            title = f"{name} was not finite at times"
        # Of a loss beside the trained one, a part of few tokens or an evaluation, a rare value stops nothing.
        is_rare = not trained and not is_now and row.nonfinite < MIN_NONFINITE_SHARE * row.count
        return Finding(
            code="nonfinite-loss",
            severity="critical" if is_now and trained else "info" if is_rare else "warning",
            title=title,
            evidence=[f"{row.nonfinite:,} of {row.count:,} values nan or infinite"],
            advice="Stop and go back to the last good checkpoint. Typical causes: a learning rate that is too high,"
            " fp16 without loss scaling, log(0) or division by 0, an empty batch.",
            lost_fraction=1.0 if is_now and trained else None,
        )
    return _unseen_nan(evidence)


# Hugging Face's Trainer logs 0.0 for a loss of NaN (`logging_nan_inf_filter`), under these names.
TRAINER_LOSS, TRAINER_RATE = "loss", "learning_rate"
GRADIENT_NORM = re.compile(r"(?:.*[/_. ])?(?:grad(?:ient)?s?[_. ]?norm|gnorm)", re.IGNORECASE)
MIN_ZEROS = 10  # in a row; a loss that is masked out for a batch or two is 0 there
MIN_FALLEN = 0.1  # the value before: a loss that is learned passes through smaller ones on its way to 0
MAX_SEARCHED = 16  # values in a row while a loss scaler searches for its scale: it begins at 65,536 and halves it


def _unseen_nan(evidence: Evidence) -> Finding | None:
    """Find a training that is NaN although its loss is logged as a number: by its gradients, or by zeros for NaN."""
    columns = evidence.state.metrics
    loss, beside = columns.get(TRAINER_LOSS), None
    lines: list[str] = []
    zeros, before = _zeros(loss.curve().low, loss.curve().high) if loss is not None else (0, None)
    for name, row in _metric_rows(evidence, lambda name: GRADIENT_NORM.fullmatch(name) is not None):
        bad = _gap(columns[name].curve().mean) if isinstance(row.last, str) and name in columns else 0
        if bad > MAX_SEARCHED or (bad > 1 and zeros > 1):
            beside = name
            lines.append(f"{name} is {row.last} in {row.nonfinite:,} of {row.count:,} values, up to the last")
            break
    is_policy = any(REWARD_NAME.search(name) for name in columns)
    stands_for_nan = (
        TRAINER_RATE in columns and not is_policy and zeros >= MIN_ZEROS and (before is None or before >= MIN_FALLEN)
    )
    if beside is None and not stands_for_nan:
        return None
    if zeros > 1:
        lines.append("the loss is exactly 0" + (f" right after {before:.3g}" if before is not None else " all along"))
        lines.append("Hugging Face's Trainer logs 0 for a loss of nan (logging_nan_inf_filter)")
    return Finding(
        code="nonfinite-loss",
        severity="critical" if beside is not None and zeros > 1 else "warning",
        title="Loss 0.0 stands for nan: the model no longer learns"
        if zeros > 1
        else f"{beside} is not finite: the model no longer learns",
        evidence=lines,
        advice="Stop and go back to the last good checkpoint. Typical causes: a learning rate that is too high,"
        " fp16 without loss scaling, labels that are all masked (-100), an empty batch.",
    )


def _gap(means: Sequence[float]) -> int:
    """Return how many buckets at the end of a curve have no finite value."""
    return len(means) - max((at + 1 for at, mean in enumerate(means) if mean == mean), default=0)


def _zeros(low: Sequence[float], high: Sequence[float]) -> tuple[int, float | None]:
    """Return how many buckets at the end of a curve are exactly 0, and the least value of the one before; None: all."""
    first = max((at + 1 for at, most in enumerate(high) if most != 0.0), default=0)
    return len(high) - first, low[first - 1] if first else None


# A run that learns nothing is worth less than a slow one: by its priority this comes before what only costs time.
@rule("reward-flat", Family.LEARNING, priority=1, suppresses=("loss-flat",))
def reward_flat(evidence: Evidence) -> Finding | None:
    """Find a reward that never changes."""
    rows = dict(_metric_rows(evidence, is_reward))
    varying = {_role(name) for name, row in rows.items() if row.min != row.max}
    acts = ENV_STEPS in evidence.report.metrics
    for name, row in rows.items():
        if COMPONENT.search(name) and _role(name) in varying:
            continue  # one of several reward functions, whose sum differs
        if BEST.search(name) or not _is_constant(evidence, row):
            continue
        # An environment whose goal is far away pays nothing until it is found by chance.
        title = f"{name} is {row.last} in all {row.count:,} steps"
        is_sure = not acts and _learns_nothing(evidence)
        return Finding(
            code="reward-flat",
            severity="critical" if is_sure else "warning",
            title=f"No signal yet: {title}" if acts else f"Constant reward: {title}",
            evidence=["a policy gradient needs differences between rewards; there are none"]
            + ["loss or gradients are exactly 0, too: no step changes the model"] * is_sure,
            advice=NO_SIGNAL_ADVICE
            if acts
            else "Test the reward function with a known good and a known bad answer; an executor whose failure is"
            " caught gives a constant, too.",
        )
    return None


NO_SIGNAL_ADVICE = (
    "Check that random actions ever reach a reward; if not: explore more, shape the reward, or begin nearer to the"
    " goal."
)


def _learns_nothing(evidence: Evidence) -> bool:
    """Return whether all losses, or all gradients, were exactly 0."""
    metrics = evidence.report.metrics
    losses = [row for name, row in metrics.items() if is_loss(name) and row.count >= MIN_CONSTANT]
    gradients = [row for name, row in metrics.items() if name.rpartition("/")[2] == "grad_norm" and row.count]
    return any(bool(rows) and all(row.min == row.max == 0.0 for row in rows) for rows in (losses, gradients))


@rule("loss-flat", Family.LEARNING, priority=1)
def loss_flat(evidence: Evidence) -> Finding | None:
    """Find a loss that never changes."""
    # The loss of a policy gradient says nothing by its size, unless it is exactly 0 and so are the gradients.
    is_policy = any(REWARD_NAME.search(name) for name in evidence.report.metrics)
    rows = dict(_metric_rows(evidence, is_loss))
    varying = {_role(name) for name, row in rows.items() if row.min != row.max}
    console = evidence.state.console
    printed = console.metrics if console is not None else {}
    for name, row in rows.items():
        if is_policy and not _is_zero(evidence, row):
            continue
        if not MAIN_LOSS.fullmatch(name) and _role(name) in varying:
            continue  # a part of the loss that is switched off, or not yet on
        if _is_constant(evidence, row):
            if evidence.state.metrics.get(name) is printed.get(name) and _digits(row.last) < MIN_DIGITS:
                continue  # printed with two decimals, a loss that learns slowly is constant, too
            if row.last and _is_bfloat16(row.last):
                continue  # so is one of three digits, computed in bfloat16
            return Finding(
                code="loss-flat",
                severity="warning",
                title=f"Constant loss: {name} is {row.last} in all {row.count:,} steps",
                evidence=[f"min {row.min}, max {row.max}"],
                advice=(ALL_ALIKE if is_policy else "")
                + "Check that the optimizer holds the model's parameters, they require gradients, the learning"
                " rate is not 0, and the loss depends on the model's output.",
            )
    return None


ALL_ALIKE = "Check that rewards differ within a group and not all tokens are masked: else each advantage is 0. "


def _role(name: str) -> str:
    """Return the model of several that a metric is of; empty for the only one."""
    role = name.partition("/")[0]
    return role if role in ROLES else ""


def _is_zero(evidence: Evidence, row: MetricRow) -> bool:
    """Return whether a loss is exactly 0 in all steps. Gradients that are not 0 show that it was rounded."""
    gradients = evidence.report.metrics.get("grad_norm")
    return row.min == row.max == 0.0 and (gradients is None or gradients.max == 0.0)


def _is_constant(evidence: Evidence, row: MetricRow) -> bool:
    is_long = evidence.report.wall.stepping >= MIN_LONG_RUN
    if (
        row.count < (MIN_LONG_VALUES if is_long and evidence.steps < MIN_CONSTANT else MIN_CONSTANT)
        or row.nonfinite
        or row.min is None
        or row.max is None
    ):
        return False
    return row.max - row.min <= SAME * max(abs(row.min), abs(row.max))


def _digits(value: float | str | None) -> int:
    """Return the significant digits that a value was printed with, without trailing zeros."""
    return len(repr(value).partition("e")[0].replace(".", "").strip("-0")) if isinstance(value, float | int) else 0


def _is_bfloat16(value: float | str) -> bool:
    """Return whether a number has no more digits than bfloat16 holds: eight binary ones."""
    return isinstance(value, float | int) and (math.frexp(value)[0] * 2**8).is_integer()


# Figures that the program prints, compared with each other and with measured ones.

INCONSISTENT_CONSOLE = "inconsistent-console"
REFUSED = NOTE_PREFIX + LEFT_OUT  # as the reader of the output notes it
# A bar past its end, as Lightning's is under accumulation, counts something else than the steps: these were measured.
PAST_ITS_END = re.compile(r"\d+ of \d+")
UNKNOWN_YET = ("mfu -100.0", "mfu -1.0")  # printed by nanoGPT and its derivatives before they have measured it
# Times what was measured, or a part of it. A program leaves out waiting or warm-up, and may then be right in its way.
MAX_RATE_RATIO = 1.5
COMPILE = "compile"
BREAKDOWN = "its breakdown into phases"
REPORT_RATES = (("tokens_per_second", "tok/s"), ("samples_per_second", "samples/s"))
MAX_NOTE_LINES = 5


@rule(INCONSISTENT_CONSOLE, Family.LEARNING)
def inconsistent_console(evidence: Evidence) -> Finding | None:
    """Find printed figures that cannot all be true."""
    alerts = evidence.state.alerts + evidence.state.main.alerts
    contradictions = [row.text.removeprefix(NOTE_PREFIX) for row in alerts if row.code == INCONSISTENT_CONSOLE]
    refused = [note.removeprefix(REFUSED) for note in evidence.state.notes if note.startswith(REFUSED)]
    refused = [figure for figure in refused if figure not in UNKNOWN_YET]
    if evidence.report.run.source == "hooks":
        refused = [figure for figure in refused if not PAST_ITS_END.fullmatch(figure)]
    impossible = [f"printed {figure}, which is impossible" for figure in refused]
    lines = [*contradictions, *impossible, *_rate_lines(evidence)]
    if not lines:
        return None
    doubted = [BREAKDOWN] if contradictions else []
    doubted += dict.fromkeys(figure.rpartition(" ")[0] or figure for figure in refused)
    if len(lines) > len(contradictions) + len(impossible):
        doubted.append("the logged rate")
    return Finding(
        code=INCONSISTENT_CONSOLE,
        severity="warning" if contradictions else "info",
        title=f"Contradictory console figures: {lines[0]}" if contradictions or refused else lines[0],
        evidence=lines[:MAX_NOTE_LINES],
        advice=f"Do not go by {', '.join(doubted[:MAX_NOTE_LINES])}; the program's other figures are not affected."
        " Typical causes: added nested timers, a mean since the start used as a rate, a wall clock that jumped.",
    )


def _rate_lines(evidence: Evidence) -> list[str]:
    """Return logged rates above those of the steps alone, padding counted: the most that they can mean.

    What a run does once, compiling above all, is left out: the mean of the logged rates hardly feels a slow first step.
    """
    main, report, lines = evidence.state.main, evidence.report, []
    rows = report.host_phases or report.phases
    once = sum(row.once + (row.recurring if row.name == COMPILE else 0.0) for row in rows)
    seconds = main.step_seconds.settled().sum - once
    if report.run.source != "hooks" or report.run.ranks > 1 or evidence.steps < MIN_STEPS or seconds <= 0:
        return []  # read from its output, or of all ranks together: nothing to compare with
    done = (max(main.pace.tokens, main.padded_tokens), main.pace.samples)
    for (name, unit), amount in zip(REPORT_RATES, done, strict=True):
        row = report.metrics.get(name)
        if row is None or not amount or not row.mean or row.count < MIN_STEPS:
            continue
        if row.mean > MAX_RATE_RATIO * amount / seconds:
            lines.append(f"Logged {rate(row.mean, unit)}, measured {rate(amount / seconds, unit)} in steps")
    return lines
