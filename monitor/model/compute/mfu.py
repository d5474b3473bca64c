"""The MFU of a run: the share of its GPUs' peak that it reaches, by its events. Pure.

It is that of one rank, the one whose steps are shown: its own tokens on its own GPUs. Where the formula would mislead,
the MFU is unknown, with the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from statistics import median

from monitor.model.compute.flops import Accelerator, Mfu, Work, compute_dtype, matmul_format, mfu_of, model_of
from monitor.model.compute.peaks import PEAKS, peak_of
from monitor.model.device.device_report import Device, LossRow
from monitor.model.operations import Operations, read_operations
from monitor.model.report import Rates, Throughput
from monitor.model.state import RankState, RunState, driver_uuids
from monitor.model.steps.series import Column
from monitor.model.wall_time import current
from monitor.units import share
from trainhooks.protocol.events import Gpu
from trainhooks.protocol.facts import RunFacts

# The MFU that the program itself prints: which peak it divides by.
#
# nanoGPT and programs derived from it divide by an A100's 312 TFLOPS on any card. On an H100 the result looks plausible
# and is three times too high.

A100 = PEAKS["a100"].bf16 or 0.0
# Beyond this two peaks differ: formulas of the work differ by a tenth, and pauses are counted or not.
MAX_PEAK_RATIO = 1.25
MAX_RATIO_ERROR = 0.15  # of the ratio of two peaks, for the same reasons; distinguishable peaks lie further apart
MIN_MFU_VALUES = 5  # MFU values of the program, before their mean is used
# What nanoGPT and its derivatives print before they have measured it, as the console reader notes it.
UNMEASURED = ("mfu -100.0", "mfu -1.0")


def mfu_of_program(
    metrics: Mapping[str, Column],
    notes: Collection[str],
    ours: float | None,
    peak: float | None,
    name: str | None,
) -> str | None:
    """Return a note that the program's MFU divides by another card's peak; None: nothing to note.

    Args:
        metrics: what the program logs or prints.
        notes: notes of the console reader.
        ours: the share of the peak as computed here; None: unknown.
        peak: TFLOPS of one of its GPUs in the format of its products; None: unknown.
        name: of that GPU.
    """
    printed = _printed_mfu(metrics)
    if printed is None or not peak or _are_close(peak, A100):
        return None
    like_nanogpt = any(note.endswith(UNMEASURED) for note in notes)
    if ours is not None and ours > 0:
        return _ratio_note(printed, ours, peak, name, like_nanogpt)
    if not like_nanogpt:
        return None
    value = printed / 100.0  # nanoGPT prints percent
    return (
        f"the program prints MFU {share(value)}; like nanoGPT it may divide by an A100's {A100:,g} TFLOPS;"
        f" of {name}'s {peak:,g} TFLOPS it would be {share(value * A100 / peak)}"
    )


def _ratio_note(printed: float, ours: float, peak: float, name: str | None, like_nanogpt: bool) -> str | None:
    """Return the note by the ratio of the program's MFU to the one computed here; None: no A100's peak."""
    for value in (printed, printed / 100.0):  # a share, or percent
        times = value / ours
        # A lower MFU than ours may have other causes, such as dividing by the peak of two GPUs.
        if abs(times * A100 / peak - 1.0) <= MAX_RATIO_ERROR and (like_nanogpt or times > MAX_PEAK_RATIO):
            return (
                f"the program prints MFU {share(value)}, relative to an A100's {A100:,g} TFLOPS;"
                f" of {name}'s {peak:,g} TFLOPS it is {share(value * A100 / peak)}"
            )
    return None


def _are_close(one: float, other: float) -> bool:
    return max(one, other) <= MAX_PEAK_RATIO * min(one, other)


def _printed_mfu(metrics: Mapping[str, Column]) -> float | None:
    """Return the mean of the program's MFU; nanoGPT's is a running mean without the first steps. None: too few."""
    for name, column in metrics.items():
        if name.rpartition("/")[2].lower() == "mfu":
            value = column.settled()
            if value.count >= MIN_MFU_VALUES:
                mean = value.sum / value.count
                return mean if mean > 0 else None
    return None


_WITHOUT_GRADIENTS = ("generation", "test_generation", "log_probs", "reward", "execution", "advantage")
NOT_MIXED = ("off", "no", "None", "32", "32-true", "64-true")  # what stands for "no mixed precision" in the facts
MIN_CALLS_RATIO = 1.2  # calls of the model for the samples of one step: more is not gradient accumulation
MIN_POWER_LIMIT = 0.98  # of the default power limit: drivers round limits
MIN_UTILIZATION = 50.0  # percent utilization: an idle GPU lowers its clock


def fill_mfu(throughput: Throughput, state: RunState, running: bool) -> None:
    """Set the MFU and its formula in the rates; where GPUs are used and it is unknown, the reason."""
    cards = _cards(state)
    work = _work(state.main, throughput, state.facts)
    reason = _why_unsuited(state, cards, work.seen) or _why_other_calls(state.main, throughput, work.seen)
    reason = reason or _why_other_models(state.facts)
    whole = _mfu(work, throughput, cards, reason, live=False)
    recent = _mfu(work, throughput.recent, cards, reason, live=running)
    throughput.mfu, throughput.recent.mfu = whole.share, recent.share
    throughput.mfu_of_program = _of_the_program(state, cards, work, whole.share)
    if whole.share is not None:
        throughput.mfu_formula = [*whole.formula, *_of_lower_limits(cards), *_of_one_rank(state)]
        if running and recent.of_ceiling is not None:
            throughput.mfu_formula.append(f"recent: {recent.formula[0]}; {recent.formula[-1]}")
    elif cards:
        throughput.mfu_unknown = whole.unknown


def _mfu(work: Work, rates: Rates, cards: list[Gpu], reason: str | None, live: bool) -> Mfu:
    if reason is not None:
        return Mfu(unknown=reason)
    clocks = [card.sm_clock if live and (card.utilization or 0.0) >= MIN_UTILIZATION else None for card in cards]
    devices = [Accelerator(card.name, clock) for card, clock in zip(cards, clocks, strict=True)]
    value = mfu_of(work, rates.tokens_per_second, devices, rates.samples_per_second)
    if value.share is not None and value.share > 1.0:
        return Mfu(unknown="above 100%: too many tokens are counted, or the peak is of another card")
    return value


def _cards(state: RunState) -> list[Gpu]:
    """Return the newest readings of the GPUs that the shown rank uses; empty where one of them has none."""
    used: list[str] = []
    for process in current(state):
        if process.rank == state.main.rank:
            used += [uuid for uuid in process.devices if uuid not in used]
    matches = [driver_uuids(state, [uuid]) for uuid in used]
    if not all(len(uuids) == 1 for uuids in matches):
        return []
    return [state.gpus[uuid][-1] for uuids in matches for uuid in uuids]


def _work(main: RankState, rates: Rates, facts: RunFacts) -> Work:
    tokens, samples = rates.tokens_per_second, rates.samples_per_second
    seen = read_operations(facts, matmul_precision(facts))
    return Work(
        model=model_of(facts.model),
        length=tokens / samples if tokens and samples else None,
        dtype=_dtype(facts),
        seen=seen,
    )


def _why_other_models(facts: RunFacts) -> str | None:
    """Return why the trained model is not what the GPU computes; None: it is, as far as known."""
    cut = facts.updates.unused_gradients.cut
    return "gradients of an untrained model are computed as well: its operations are not seen" if cut else None


def _why_other_calls(main: RankState, rates: Rates, seen: Operations | None) -> str | None:
    """Return why one call of the model is not the work of a batch: more calls than batches; None: it is."""
    samples, steps = rates.samples_per_second, rates.steps_per_second
    calls = [step.forwards or 1 for step in main.latest.steps()]
    if seen is None or seen.unknown or not seen.batch or not (samples and steps) or not calls:
        return None
    typical_calls = median(calls)
    if typical_calls > 1 and typical_calls * seen.batch > MIN_CALLS_RATIO * samples / steps:
        return f"the model is called {typical_calls:,.0f} times a step, on more than one batch"
    return None


def _why_unsuited(state: RunState, cards: list[Gpu], seen: Operations | None) -> str | None:
    """Return why this run's tokens a second do not measure training on its GPUs; None: they do."""
    main, facts = state.main, state.facts
    if not cards:
        return "GPUs in use unknown"
    if any(card.mig for card in cards):
        return "peak of a MIG instance not listed"
    if main.source == "console":
        return "console output does not name the device"
    if facts.optimizer.device == "cpu":
        return "the trained parameters are not on a GPU"
    if any(name in main.phases for name in _WITHOUT_GRADIENTS):
        return "the steps also generate or score; the formula covers training only"
    if len({kind.role for kind in main.baselines}) > 1:
        return "several roles train different models"
    is_seen = seen is not None and not seen.unknown
    if not is_seen and (facts.config.packing or facts.config.padding_free):
        return "sequences are packed: attention span unknown"
    if facts.config.parallelism_config not in (None, "None"):
        return "each token's work is split across ranks"
    return None


def _dtype(facts: RunFacts) -> str | None:
    """Return the format of the matrix products by the facts; None where they disagree or lack it."""
    config = facts.config
    if "transformer-engine" in (config.precision or ""):
        return None
    settings = [facts.autocast, facts.accelerate.mixed_precision]
    settings += [name for name, on in (("bf16", config.bf16), ("fp16", config.fp16)) if on]
    mixed = {compute_dtype([], setting) for setting in settings if setting is not None and setting not in NOT_MIXED}
    if mixed:
        return mixed.pop() if len(mixed) == 1 else None
    kind = compute_dtype(list(facts.model.dtypes), None, matmul_precision(facts))
    # Parameters in fp32 mean products in fp32 only where autocast is known to be off.
    return kind if facts.autocast == "off" or kind in ("bf16", "fp16") else None


def matmul_precision(facts: RunFacts) -> str | None:
    """Return the fp32 matmul precision: "highest" for fp32, anything else for TF32; None: unknown."""
    forced = facts.environment.get("NVIDIA_TF32_OVERRIDE")
    if forced in ("0", "1"):
        return "high" if forced == "1" else "highest"
    return "high" if facts.config.tf32 else facts.torch.matmul_precision


def _of_lower_limits(cards: list[Gpu]) -> list[str]:
    """Return a line for each lowered power limit: the peak stays that of the data sheet."""
    lower = [(card.power_limit, card.power_limit_default) for card in cards]
    lowered = {
        f"{limit:.0f} W of {full:.0f} W" for limit, full in lower if limit and full and limit < MIN_POWER_LIMIT * full
    }
    return [f"power limit {words}; the peak is that of the full limit" for words in sorted(lowered)]


def _of_the_program(state: RunState, cards: list[Gpu], work: Work, ours: float | None) -> str | None:
    names = {card.name for card in cards}
    kind = matmul_format(work) or "bf16"  # as nanoGPT has it
    peak = peak_of(cards[0].name) if len(names) == 1 else None
    tflops = peak.tflops(kind) if peak is not None else None
    if any(card.mig for card in cards):
        return None
    return mfu_of_program(state.metrics, state.notes, ours, tflops, next(iter(names), None))


def _of_one_rank(state: RunState) -> list[str]:
    others = {producer.rank for producer in current(state)} - {state.main.rank}
    return [f"rank {state.main.rank} only: its own tokens on its own GPUs"] if others else []


# The losses from the hardware's peak down to the MFU.

MIN_LOSS = 1e-9  # of the peak: less is a rounding error


def below_peak(device: Device, mfu: float | None, waits: float | None) -> list[LossRow]:
    """Return the losses from the peak to the MFU; empty where the MFU is unknown.

    Args:
        mfu: share of the peak that is reached; None: unknown.
        waits: share of a step in which this rank's device waits for another rank in collectives.
    """
    if mfu is None:
        return []
    most = 1.0 if device.busy_most is None else max(device.busy_most, mfu)
    least = mfu if device.busy_least is None else min(most, max(device.busy_least, mfu))
    collective = 0.0 if waits is None else min(waits, least - mfu)
    rows = [
        LossRow("the GPU is idle", 1.0 - most),
        LossRow("idle or busy: not known", most - least),
        LossRow("waiting for another rank", collective),
        LossRow("kernels that do less than the peak", least - collective - mfu),
    ]
    return [row for row in rows if row.share > MIN_LOSS]
