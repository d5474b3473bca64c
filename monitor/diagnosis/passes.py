"""How often the model is called for one step, and on how much: twice on one input, or on one sample at a time. Pure."""

from __future__ import annotations

from statistics import median

from monitor.diagnosis import hardware
from monitor.diagnosis.evidence import Evidence
from monitor.model.report import Finding
from monitor.units import duration, share

ENOUGH = 20  # steps
ENOUGH_CALLS = 32  # of the model that were looked at
# Of the calls: half of them where each step does it. A tenth is a loop that looks at its training now and then.
REPEATED = 0.25

SINGLE_CALLS = 4.0  # a step, on one sample each; two or three may be different questions
MOST_STEPS = 0.8  # that are made of such calls
# Seconds of forward and backward a call, on a core. What takes longer has so much work in one sample that more of
# them at once gain little on a CPU; on a GPU the memory left decides.
SHORT_CALL = 0.02
LEFT = 0.4  # of the memory: room for twice the activations, whatever the weights take
FILLS = 2048  # positions of one sequence, which keep a GPU busy by themselves
CALLS_WORTH = 0.30  # of the time since the first step in forward and backward


def duplicate_forward(evidence: Evidence) -> Finding | None:
    """The model runs forward again on the input that it has just had, with gradients, and no backward of its own."""
    told = hardware.table(evidence, "forwards")
    repeated, calls = told.get("repeated"), told.get("calls")
    if not isinstance(repeated, int) or not isinstance(calls, int) or evidence.steps < ENOUGH or calls < ENOUGH_CALLS:
        return None
    part = min(0.5, repeated / calls)
    if part < REPEATED:
        return None
    row = evidence.phase("forward")
    lines = [f"{repeated} of {calls} calls in training mode got the same input as the call before, and no backward"]
    if row is not None:
        lines.append(f"forward {duration(row.mean)} a step, {share(row.share)} of step time, both calls together")
    return Finding(
        "duplicate-forward",
        "warning",
        "The model runs forward twice on the same input for one backward",
        lines,
        "Keep the first output and use it twice: metrics from the outputs that the loss came from. What needs no"
        " gradient belongs into torch.no_grad().",
        min(0.5, evidence.of_wall(part * row.mean * row.count)) if row is not None and not evidence.host_only else None,
    )


def sequential_batching(evidence: Evidence) -> Finding | None:
    """The model is called many times a step with one sample each, though more would fit."""
    main = evidence.state.main
    if main.called_often < ENOUGH or main.called_singly < MOST_STEPS * main.called_often:
        return None
    done = main.steps_ok + sum(main.skipped.values())
    samples = main.pace.samples / main.pace.steps if main.pace.steps else 0.0
    if main.called_often < MOST_STEPS * done or samples < SINGLE_CALLS:
        return None
    seconds = hardware.computing(evidence)
    per_call = seconds / max(1, main.pace.samples)
    if evidence.of_loop(seconds) < CALLS_WORTH or not _room(evidence, per_call):
        return None
    lines = [f"{samples:.1f} calls a step on one sample each, in {main.called_singly} of {done} steps"]
    lines.append(f"forward and backward take {duration(per_call)} a call")
    memory = hardware.free_memory(evidence)
    if memory is not None:
        used, whole, kind = memory
        lines.append(f"{share(1 - used / whole)} of {kind} was never in use")
    return Finding(
        "sequential-batching",
        "warning",
        f"Batches of one: the model is called {samples:.1f} times a step with one sample each",
        lines,
        _batch_advice(evidence),
        evidence.of_wall(seconds) * (1 - 1 / samples),
    )


def _room(evidence: Evidence, per_call: float) -> bool:
    """Whether several samples at once would fit, and would likely gain."""
    memory = hardware.free_memory(evidence)
    if memory is not None and 1 - memory[0] / memory[1] < LEFT:
        return False
    main = evidence.state.main
    if main.pace.samples and main.pace.tokens / main.pace.samples >= FILLS:
        return False
    if hardware.place(evidence) == "cuda":
        return memory is not None
    return per_call * _on_a_core(evidence) < SHORT_CALL


def _on_a_core(evidence: Evidence) -> float:
    """The share of the time in which threads that could run did: on a full machine a call takes longer than it does."""
    waited = [each.tree_waiting for each in evidence.state.host if each.tree_waiting is not None]
    return 1 - min(1.0, max(0.0, median(waited))) if waited else 1.0


def _batch_advice(evidence: Evidence) -> str:
    batch = evidence.setting("per_device_train_batch_size", "batch_size")
    accumulation = evidence.setting("gradient_accumulation_steps", "accumulate_grad_batches")
    if batch is None or accumulation is None or not isinstance(accumulation[1], int) or accumulation[1] < 2:
        return "Put samples together (collate them with padding) and call the model once for all of them."
    half = max(1, accumulation[1] // 2)
    return (
        f"{batch[0]}={batch[1]} → 2 with {accumulation[0]}={accumulation[1]} → {half}, and so on while the memory"
        " lasts and samples/s grow: what is learnt stays the same."
    )
