"""Steps that cannot train as they should, by what the hooks check of gradients, learning rates and modes. Pure."""

from __future__ import annotations

from statistics import median

from monitor.diagnosis import hardware
from monitor.diagnosis.rule import Evidence, Family, rule
from monitor.diagnosis.rules.host_limits import MIN_CPU_PERCENT
from monitor.model.report import Finding
from monitor.units import duration, plural, share, size
from trainhooks.protocol.facts import GradientSyncs

# The hooks check the first steps and two in a row each second. Fewer steps than these may be a warm-up or a pause.
MIN_CHECKED = 8
MIN_KEPT_SHARE = 0.9  # of the checked steps: who keeps gradients on purpose clears them at times
MIN_PASSES = 16  # backward passes of a program that has ended; gradients are rarely added up for longer
MIN_RUNNING_PASSES = 1024  # of one that goes on, which may add up longer


# A run that learns nothing or the wrong thing is worth less than a slow one: by their priority these come before what
# only costs time.


@rule("weights-unchanged", Family.LEARNING, priority=1, suppresses=("loss-flat", "nothing-reports"))
def weights_unchanged(evidence: Evidence) -> Finding | None:
    """Find optimizers that never step, or whose parameters never get a gradient."""
    found = evidence.facts.updates.no_gradient
    if found.steps < MIN_CHECKED:
        return _never_steps(evidence)
    lines = [f"{plural(found.parameters, 'parameter', 'parameters')} in the optimizer, no gradient after backward"]
    if found.frozen:
        lines.append(f"{share(found.frozen / max(found.parameters, 1))} of them with requires_grad=False")
    what = "Weights are never trained" if found.assigned else "Weights never change"
    return Finding(
        code="weights-unchanged",
        severity="critical",
        title=f"{what}: no gradient reaches the optimizer in all {found.steps:,} checked steps",
        evidence=lines,
        advice="Make the optimizer after the model is complete, from that model's parameters that require gradients;"
        " look for detach(), no_grad() or a missing backward() between them and the loss.",
    )


def _never_steps(evidence: Evidence) -> Finding | None:
    found = evidence.facts.without_update
    least = MIN_PASSES if evidence.report.outcome.state == "finished" else MIN_RUNNING_PASSES
    if found.passes < least or evidence.facts.optimizer.kind is not None:
        return None
    lines = [f"{plural(found.optimizers, 'optimizer', 'optimizers')}, step() was not called"]
    if found.compared:
        lines.append(f"numbers of {plural(found.compared, 'parameter', 'parameters')} are the first ones")
    return Finding(
        code="weights-unchanged",
        severity="critical" if found.compared else "warning",
        title=f"Nothing is learned: no optimizer stepped in {found.passes:,} backward passes or more",
        evidence=lines,
        advice="Call optimizer.step() after backward(); check the condition around it (accumulation, a warm-up).",
    )


MIN_CERTAIN = 16  # checked steps: a warm-up that begins at 0 is over by then, or stepped too seldom
# A schedule that reaches zero does so in its last steps; a tenth of the training without updates is no end of one.
MIN_ZERO_STEPS = 0.10
RATE_ADVICE = (
    "Check the schedule: its total steps must be those of the run, counted as it is stepped (per batch or per"
    " epoch, after accumulation), and its warm-up must not begin at 0 for a whole epoch."
)
PRINTED_RATES = ("learning_rate", "lr")


@rule("learning-rate-zero", Family.LEARNING, priority=1, suppresses=("loss-flat",))
def learning_rate_zero(evidence: Evidence) -> Finding | None:
    """Find a learning rate that is zero, from the start or long before the end."""
    found = evidence.facts.updates.zero_rate
    steps, highest, since, until = found.steps, found.highest, found.since, found.until
    if not steps and evidence.report.run.source != "hooks":
        return _printed_rate_zero(evidence)
    if steps < MIN_CHECKED or highest is None or since is None or until is None:
        return None
    if highest == 0.0:
        return Finding(
            code="learning-rate-zero",
            severity="warning" if found.of or steps < MIN_CERTAIN else "critical",
            title=f"Learning rate is 0 in one of {found.of} optimizers: what it holds never changes"
            if found.of
            else "Learning rate is 0: no step changes the model",
            evidence=[f"0 in all {'of its ' if found.of else ''}parameter groups, in all {steps:,} checked steps"],
            advice=RATE_ADVICE,
            lost_fraction=evidence.loop_share if not evidence.is_running and not found.of else None,
        )
    passed = evidence.loop_part(until - since)
    if passed < MIN_ZERO_STEPS:
        return None
    return Finding(
        code="learning-rate-zero",
        severity="warning",
        title=f"Learning rate fell to 0 with {share(passed)} of the training still to come",
        evidence=[
            f"at most {highest:.3g} before, and 0 for {duration(until - since)}",
            f"{steps:,} checked steps in a row",
        ],
        advice=RATE_ADVICE,
        lost_fraction=evidence.wall_part(until - since),
    )


def _printed_rate_zero(evidence: Evidence) -> Finding | None:
    """Find a learning rate that is 0 in all that a program prints of it; rounded zeros are not read."""
    for name in PRINTED_RATES:
        row = evidence.report.metrics.get(name)
        if row is not None and row.count >= MIN_CHECKED and not row.nonfinite and row.min == row.max == 0.0:
            return Finding(
                code="learning-rate-zero",
                severity="warning",
                title="Learning rate is 0: no step changes the model",
                evidence=[f"{name} is printed as 0 in all {row.count:,} values"],
                advice=RATE_ADVICE,
            )
    return None


@rule("gradients-kept", Family.LEARNING, priority=1)
def gradients_kept(evidence: Evidence) -> Finding | None:
    """Find gradients that are added up over all steps because nobody zeroes them."""
    steps, checked = evidence.facts.updates.kept_gradients.steps, evidence.facts.updates.kept_gradients.checked
    if steps < MIN_CHECKED or steps < MIN_KEPT_SHARE * checked:
        return None
    return Finding(
        code="gradients-kept",
        severity="warning",
        title="Gradients are never zeroed: each step adds to those of all steps before",
        evidence=[f"kept over the optimizer's step in {steps:,} of {checked:,} checked steps"],
        advice="Call optimizer.zero_grad() once per optimizer step: after step(), or before backward().",
    )


@rule("eval-mode", Family.LEARNING, priority=1)
def eval_mode(evidence: Evidence) -> Finding | None:
    """Find training steps with a model in evaluation mode."""
    found, was_on = evidence.facts.updates.eval_mode, evidence.facts.updates.eval_mode.trained
    if found.steps < MIN_CHECKED or not found.count:
        return None
    return Finding(
        code="eval-mode",
        severity="warning" if was_on else "info",
        title="eval() left on: the model trains in evaluation mode"
        if was_on
        else "The model trains in evaluation mode from the start",
        evidence=[
            f"{found.steps:,} checked steps in a row" + (", after steps in training mode" if was_on else ""),
            f"without effect meanwhile: {plural(found.count, 'module', 'modules')} ({', '.join(found.modules)})",
        ],
        advice="Call model.train() before each epoch, after each evaluation, and after from_pretrained(), which returns"
        " a model in evaluation mode.",
    )


# An evaluation is rarer than steps. A loop that calls the model in evaluation mode before each step may use the result.
MAX_EVALUATIONS_A_STEP = 0.5


@rule("eval-gradients", Family.WAITING)
def eval_gradients(evidence: Evidence) -> Finding | None:
    """Find evaluations that record gradients and use none."""
    calls, times = evidence.facts.updates.eval_gradients.calls, evidence.facts.updates.eval_gradients.times
    if calls < MIN_CHECKED or times > MAX_EVALUATIONS_A_STEP * max(evidence.steps, 1):
        return None
    seconds = evidence.named_seconds("eval")
    lines = [
        f"{plural(calls, 'call', 'calls')} of the model in evaluation mode, without a backward pass",
        "each keeps its activations as in training until its output is dropped",
    ]
    if seconds:
        lines.append(f"evaluations take {duration(seconds)}, {share(evidence.wall_part(seconds))} of the run")
    return Finding(
        code="eval-gradients",
        severity="warning",
        title=f"Evaluation records gradients: {plural(times, 'time', 'times')} without torch.no_grad()",
        evidence=lines,
        advice="Evaluate under torch.no_grad() or torch.inference_mode(): less memory, so larger batches, and less"
        " time. model.eval() does not turn gradients off.",
    )


@rule("graph-retained", Family.MEMORY)
def graph_retained(evidence: Evidence) -> Finding | None:
    """Find backward passes that keep their graph although no later pass uses it."""
    steps = evidence.facts.updates.retained.steps
    if steps < MIN_CHECKED:
        return None
    return Finding(
        code="graph-retained",
        severity="warning",
        title="retain_graph=True for nothing: no later backward pass uses the graph",
        evidence=[
            f"{steps:,} of {steps:,} checked passes: the next one's graph had no node of theirs",
            "activations stay in memory until the loss is dropped: through the next forward pass",
        ],
        advice="Leave out retain_graph=True; for two losses over one graph, add them up and call backward() once.",
    )


WEIGHT_SHARE = 0.5  # of a layer's backward: its weights' gradients; its input's are needed for the layers before


@rule("unused-gradients", Family.MODEL)
def unused_gradients(evidence: Evidence) -> Finding | None:
    """Find parameters that get gradients although no optimizer updates them."""
    found, row = evidence.facts.updates.unused_gradients, evidence.phase("backward")
    cut, beside, trained, tensors = found.cut, found.beside, found.trained, found.tensors
    if not cut + beside or not trained or not found.nodes or row is None or not evidence.has_steps():
        return None
    # A part of its own goes as a whole. What it takes of the pass is between its operations and its weights.
    whole = max(cut / (cut + beside + trained), min(1.0, found.needless / found.nodes)) if cut else 0.0
    part = whole + (1.0 - whole) * WEIGHT_SHARE * beside / (beside + trained)
    return Finding(
        code="unused-gradients",
        title=f"Unused gradients: backward computes those of {cut + beside:,} parameters that no optimizer has",
        evidence=[
            f"{plural(tensors, 'tensor', 'tensors')} without an optimizer; optimizers update {trained:,} parameters",
            f"backward {duration(row.mean)} per step, {share(row.share)} of step time",
            f"at most {share(part)} of it is for them",
        ],
        advice="Freeze what is not trained before the first step: module.requires_grad_(False); or call it under"
        " torch.no_grad() where nothing before it is trained. If it should be trained, give its parameters to the"
        " optimizer.",
        estimated=True,
        lost_fraction=None if evidence.host_only else evidence.wall_part(part * row.recurring),
    )


MIN_TABLE_SHARE = 0.5  # of the trained parameters: else most of the update is not the table's
MAX_TOUCHED = 0.10  # of its rows have a gradient in a step


@rule("dense-embedding", Family.MODEL, suppresses=("unfused-optimizer",))
def dense_embedding(evidence: Evidence) -> Finding | None:
    """Find an embedding whose dense gradient is almost all zeros, where updating all of it takes much of the step."""
    found, row = evidence.facts.updates.embedding, evidence.phase("optimizer")
    rows, touched = found.rows, found.touched
    if row is None or touched is None or not found.trained or not evidence.has_steps() or evidence.host_only:
        return None
    part = min(1.0, found.elements / found.trained)
    if part < MIN_TABLE_SHARE or touched > MAX_TOUCHED:
        return None
    return Finding(
        code="dense-embedding",
        title=f"Dense gradients of an embedding: {rows:,} rows updated, about {share(touched)} of them used in a step",
        evidence=[
            f"{share(part)} of the trained parameters; its gradient takes {size(4 * found.elements)} as fp32",
            f"optimizer {share(row.share)} of step time, {duration(row.mean)} per step",
        ],
        advice="Use nn.Embedding(..., sparse=True) with torch.optim.SparseAdam, SGD or Adagrad for it, and the other"
        " optimizer for the rest.",
        estimated=True,
        lost_fraction=evidence.wall_part(row.mean * row.count) * part * (1.0 - touched),
    )


@rule("accumulation-sync", Family.WAITING, suppresses=("communication-bound",))
def accumulation_sync(evidence: Evidence) -> Finding | None:
    """Find DDP that averages gradients over the ranks in each pass of an accumulation, in place of the last one."""
    found = evidence.facts.updates.gradient_syncs
    steps, passes, averaged = found.steps, found.passes, found.averaged
    if steps < MIN_CHECKED or not found.unneeded or not evidence.has_steps():
        return None
    seconds = _average_seconds(evidence, found, passes / steps)
    part = None if seconds is None else evidence.loop_part(seconds * found.unneeded / steps * evidence.steps)
    lines = [f"{plural(averaged, 'average', 'averages')} in {passes:,} passes of {steps:,} steps; {steps:,} are needed"]
    if seconds is not None:
        lines.append(
            f"one takes {duration(found.comm or 0.0)} by DDP's own timers, {duration(found.overlap or 0.0)} of it"
            " beside the backward pass"
        )
    return Finding(
        code="accumulation-sync",
        title=f"Gradients averaged over the ranks {averaged / steps:.0f} times per optimizer step",
        evidence=lines,
        advice="Call model and backward() under `with model.no_sync():` in all passes of an accumulation but the last"
        " (Accelerate's accumulate(), HF Trainer and Lightning do so).",
        lost_fraction=None if part is None else min(1.0, part) * evidence.loop_share,
    )


def _average_seconds(evidence: Evidence, found: GradientSyncs, per_step: float) -> float | None:
    """Return the seconds that an average adds to a pass; None where DDP has not timed them.

    What runs beside the backward pass is free only where somebody is free to do it: a GPU's copy engines, an idle core.
    DDP times its first passes and each hundredth, and the first ones are slow. So the backward phase is the limit, less
    its computing, which takes at least as long as the forward pass.

    Args:
        per_step: backward passes of a step.
    """
    comm, overlap = found.comm, found.overlap
    if comm is None or overlap is None:
        return None
    busy = evidence.host_values("cpu")
    is_full = hardware.model_device(evidence) != "cuda" and bool(busy) and median(busy) >= MIN_CPU_PERCENT
    added = comm if is_full else max(0.0, comm - overlap)
    forward, backward = evidence.phase("forward"), evidence.phase("backward")
    if forward is None or backward is None:
        return added
    return min(added, max(0.0, backward.mean - forward.mean) / per_step)
