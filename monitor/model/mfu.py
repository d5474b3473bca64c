"""How much of its GPUs' peak a run makes use of, from what its events tell. Pure.

One rank is looked at, the one whose steps are shown: its own tokens, on its own GPUs. What would make the formula say
something else than it seems to is a reason to say nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from monitor.model.account import newest
from monitor.model.devices import found
from monitor.model.flops import Device, Mfu, Work, compute_dtype, format_of, mfu, model_of
from monitor.model.operations import Operations, operations
from monitor.model.own_mfu import mfu_of_program
from monitor.model.peaks import peak_of
from monitor.model.products import Products, product_of
from monitor.model.report import MatrixProduct, Rates, Throughput
from monitor.model.state import Figures, RunState
from trainhooks.events import Gpu

_WITHOUT_GRADIENTS = ("generation", "test_generation", "log_probs", "reward", "execution", "advantage")
_OFF = ("off", "no", "None")  # what stands for "no mixed precision" in the facts
MORE_OFTEN = 1.2  # calls of the model for what is counted as one batch: then they are no accumulation
AS_USUAL = 0.98  # of the power limit that a card comes with: drivers round limits
UNDER_LOAD = 50.0  # percent busy: the clock of an idle GPU says nothing of what it could do


def fill(throughput: Throughput, state: RunState, running: bool) -> None:
    """Put the share of the peak into the rates, with its formula; or why there is none, where GPUs are at work."""
    cards = _cards(state)
    work = _work(state.main, throughput, state.facts)
    reason = _unsuited(state, cards, work.seen) or _called_otherwise(state.main, throughput, work.seen)
    whole = _share(work, throughput, cards, reason, live=False)
    lately = _share(work, throughput.recent, cards, reason, live=running)
    throughput.mfu, throughput.recent.mfu = whole.share, lately.share
    throughput.mfu_of_program = _of_the_program(state, cards, work, whole.share)
    if whole.share is not None:
        throughput.mfu_formula = [*whole.formula, *_of_lower_limits(cards), *_of_one_rank(state)]
        if running and lately.of_ceiling is not None:
            throughput.mfu_formula.append(f"lately: {lately.formula[0]}; {lately.formula[-1]}")
    elif cards:
        throughput.mfu_unknown = whole.unknown


def matrix_product(state: RunState, throughput: Throughput, products: Products) -> MatrixProduct | None:
    """What the GPUs of the MFU reach in a plain matrix product of its format; None where there is no MFU."""
    kind = format_of(_work(state.main, throughput, state.facts))
    if throughput.mfu is None or kind is None:
        return None
    return product_of(_cards(state), kind, products)


def _share(work: Work, rates: Rates, cards: list[Gpu], reason: str | None, live: bool) -> Mfu:
    if reason is not None:
        return Mfu(unknown=reason)
    clocks = [card.sm_clock if live and (card.utilization or 0.0) >= UNDER_LOAD else None for card in cards]
    devices = [Device(card.name, clock) for card, clock in zip(cards, clocks, strict=True)]
    told = mfu(work, rates.tokens_per_second, devices, rates.samples_per_second)
    if told.share is not None and told.share > 1.0:
        counted = "more is counted than is trained on here"
        return Mfu(unknown=f"more than the peak would be needed: {counted}, or the peak is not that card's")
    return told


def _cards(state: RunState) -> list[Gpu]:
    """The newest readings of the GPUs that the shown rank uses; none where one of them is not read."""
    used: list[str] = []
    for process in newest(state):
        if process.rank == state.main.rank:
            used += [uuid for uuid in process.devices if uuid not in used]
    seen = [found(state, [uuid]) for uuid in used]
    if not all(len(each) == 1 for each in seen):
        return []
    return [state.gpus[uuid][-1] for each in seen for uuid in each]


def _work(main: Figures, rates: Rates, facts: Mapping[str, Any]) -> Work:
    tokens, samples = rates.tokens_per_second, rates.samples_per_second
    seen = operations(facts, _precision(facts))
    return Work(model_of(_table(facts, "model")), tokens / samples if tokens and samples else None, _dtype(facts), seen)


def _called_otherwise(main: Figures, rates: Rates, seen: Operations | None) -> str | None:
    """Why what one call does is not what a batch takes: the model is called on it again, for a second view or head."""
    samples, steps = rates.samples_per_second, rates.steps_per_second
    calls = [step.forwards or 1 for step in main.latest]
    if seen is None or seen.unknown or not seen.batch or not (samples and steps) or not calls:
        return None
    often = median(calls)
    if often > 1 and often * seen.batch > MORE_OFTEN * samples / steps:
        return f"the model is called {often:,.0f} times a step, on more than its batch"
    return None


def _unsuited(state: RunState, cards: list[Gpu], seen: Operations | None) -> str | None:
    """Why the tokens and the seconds of this run are no measure of its GPUs' training."""
    main, facts = state.main, state.facts
    if not cards:
        return "the GPUs that are used are not known"
    if any(card.mig for card in cards):
        return "the GPU is split into MIG instances: what the one that is used can do is not listed"
    if main.source == "console":
        return "what the program prints does not tell what it computes on"
    if _table(facts, "optimizer").get("device") == "cpu":
        return "the trained parameters are not on a GPU"
    if any(name in main.phases for name in _WITHOUT_GRADIENTS):
        return "the steps also generate or score: the formula is of training alone"
    if len({kind.partition("\n")[0] for kind in main.baselines}) > 1:
        return "several roles train: their tokens pass through different models"
    config = _table(facts, "config")
    is_seen = seen is not None and not seen.unknown
    if not is_seen and (config.get("packing") is True or config.get("padding_free") is True):
        return "sequences are packed: how far attention reaches is not known"
    if config.get("parallelism_config") not in (None, "None"):
        return "the work on a token is shared out among ranks"
    return None


def _dtype(facts: Mapping[str, Any]) -> str | None:
    """The format of the matrix products, by all that the facts tell of it; None where they disagree or lack it."""
    config = _table(facts, "config")
    dtypes = list(_table(_table(facts, "model"), "dtypes"))
    if "transformer-engine" in str(config.get("precision")):
        return None
    autocast, accelerate = facts.get("autocast"), _table(facts, "accelerate").get("mixed_precision")
    mixed = {compute_dtype([], each) for each in (autocast, accelerate) if isinstance(each, str) and each not in _OFF}
    mixed |= {compute_dtype([], name) for name in ("bf16", "fp16") if config.get(name) is True}
    if mixed:
        return mixed.pop() if len(mixed) == 1 else None
    kind = compute_dtype(dtypes, None, _precision(facts))
    # Whether fp32 is what it is computed in, only those know who would have seen an autocast.
    return kind if autocast == "off" or kind in ("bf16", "fp16") else None


def _precision(facts: Mapping[str, Any]) -> str | None:
    """Of fp32 matrix products: "highest" where they run as fp32, something else where as TF32; None is unknown."""
    forced = _table(facts, "environment").get("NVIDIA_TF32_OVERRIDE")
    if forced in ("0", "1"):
        return "high" if forced == "1" else "highest"
    if _table(facts, "config").get("tf32") is True:
        return "high"
    precision = _table(facts, "torch").get("matmul_precision")
    return precision if isinstance(precision, str) else None


def _of_lower_limits(cards: list[Gpu]) -> list[str]:
    """The peak stays that of the data sheet: a card that is allowed less power cannot hold its clock."""
    lower = [(card.power_limit, card.power_limit_default) for card in cards]
    told = {f"{limit:.0f} W of {usual:.0f} W" for limit, usual in lower if limit and usual and limit < AS_USUAL * usual}
    return [f"the power limit is {each}: the peak is that of the full limit" for each in sorted(told)]


def _of_the_program(state: RunState, cards: list[Gpu], work: Work, ours: float | None) -> str | None:
    names = {card.name for card in cards}
    kind = format_of(work) or "bf16"  # as nanoGPT has it
    peak = peak_of(cards[0].name) if len(names) == 1 else None
    tflops = peak.tflops(kind) if peak is not None else None
    if any(card.mig for card in cards):
        return None
    return mfu_of_program(state.metrics, state.notes, ours, tflops, next(iter(names), None))


def _of_one_rank(state: RunState) -> list[str]:
    others = {each.rank for each in newest(state)} - {state.main.rank}
    return [f"of rank {state.main.rank}: its own tokens on its own GPUs"] if others else []


def _table(facts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    told = facts.get(name)
    return told if isinstance(told, dict) else {}
