"""What a program does: the work of a call by its operations; activities by the names in stack samples. Pure.

A place reads `train.py:41 (json.dump) in write_row`, as the hooks write it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from monitor.model.steps.stack_samples import Place
from monitor.units import share
from trainhooks.protocol import stack_activities
from trainhooks.protocol.facts import Census, RunFacts

# The work of a sample by the recorded operations of one forward pass early in the run.
#
# Work that grows with the square of the length is kept apart, so that the work of other lengths is known. Recomputation
# is not counted: it saves memory and is not the model's own work.

MAX_FORMULA_ERROR = 0.10  # of the formula against the recorded operations; beyond it, these are used
_DTYPES = {"bfloat16": "bf16", "float16": "fp16"}


@dataclass(frozen=True, slots=True)
class Operations:
    """The work of one call of the model, forward and backward.

    Attributes:
        attention: the part of `flops` that grows with the square of the length.
        batch: samples of the call; None: unknown.
        length: positions of a sample; None where the input has none.
        input: the shape of the input, as text.
        step: the step of the call.
        unknown: why the work is unknown; None: it is known.
    """

    flops: float = 0.0
    attention: float = 0.0
    batch: int | None = None
    length: int | None = None
    input: str = ""
    step: int = 0
    dtype: str | None = None  # fp32 | tf32 | bf16 | fp16, of most of them
    unknown: str | None = None

    def a_sample(self, length: float | None) -> float | None:
        """Return the FLOPs of a sample, forward and backward: of this length; None: of the recorded one."""
        if self.unknown or not self.batch:
            return None
        if length is None or not self.length:
            return self.flops / self.batch
        longer = length / self.length
        return ((self.flops - self.attention) * longer + self.attention * longer**2) / self.batch

    def a_token(self, length: float | None) -> float | None:
        """Return the FLOPs of a token of sequences of this length; None where the input has no length."""
        whole = self.a_sample(length) if self.length and length else None
        return whole / length if whole is not None and length else None


def operations(facts: RunFacts, precision: str | None = None) -> Operations | None:
    """Return the operations that the hooks reported; None where they reported none.

    Args:
        facts: all facts of a run.
        precision: torch's setting for fp32 matrix products; below "highest" they run as TF32.
    """
    ops = facts.ops
    if ops == Census():
        return None
    unknown = ops.flops_unknown or (None if ops.flops_forward else "no operations recorded")
    if facts.model.is_encoder_decoder and not unknown:
        unknown = "encoder-decoder: two sequence lengths"
    flops = ops.flops_forward + ops.flops_backward
    return Operations(
        flops=flops,
        attention=min(ops.flops_attention, flops),
        batch=ops.batch,
        length=ops.length,
        input=ops.input or "",
        step=ops.step or 0,
        dtype=_dtype(ops, precision),
        unknown=unknown,
    )


def _dtype(ops: Census, precision: str | None) -> str | None:
    """Return the format of most of the operations; None: unknown, or no peaks are listed for it."""
    amounts = ops.flops_by_dtype
    if not sum(amounts.values()):
        return None
    most = max(amounts, key=lambda name: amounts[name])
    if most != "float32":
        return _DTYPES.get(most)
    if ops.conv.share > 0.5 and ops.conv.tf32 is not None:
        return "tf32" if ops.conv.tf32 else "fp32"  # convolutions have their own setting; torch allows TF32 by default
    if precision is None:
        return None
    return "fp32" if precision == "highest" else "tf32"


def in_words(seen: Operations, length: float | None) -> str:
    """Return the calculation of the work of a token, or of a sample where `length` is None."""
    where = f"from the operations of step {seen.step} on {seen.input}"
    if length and seen.length and seen.batch:
        linear = (seen.flops - seen.attention) / seen.batch / seen.length
        quadratic = seen.attention / seen.batch / seen.length**2
        return f"{flop(linear)} + {flop(quadratic)} x {length:,.0f} tokens, {where}"
    return f"{flop(seen.flops)} / {seen.batch:,} samples, {where}"


def apart(measured: float, formula: float) -> str | None:
    """Return a note where the formula differs from the measured work, both in FLOPs a token; None where they agree."""
    if abs(measured / formula - 1) <= MAX_FORMULA_ERROR:
        return None
    return f"the formula gives {flop(formula)}, {share(formula / measured)} of the measured work"


def flop(value: float) -> str:
    for size, name in ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP")):
        if value >= size:
            return f"{value / size:,.3g} {name}"
    return f"{value / 1e3:,.3g} kFLOP"


# Activities by the names in stack samples

CHECKPOINT, EVAL, LOGGING = "checkpoint", "eval", "logging"

_PLACE = re.compile(r"(?: \((?P<call>[\w.]+)\))? in (?P<function>\S+)$")

# The user's functions, by their whole names: `log_prob` is no logging, and `save` alone may save anything.
_FUNCTIONS = (
    (
        EVAL,
        re.compile(
            r"_?(?:run_|do_)?(?:eval|evaluate|evaluation|validate|validation)"
            r"(?:_(?:model|policy|agent|epoch|loop|once|all|set))?|estimate_loss"
        ),
    ),
    (
        CHECKPOINT,
        re.compile(r"_?(?:save|write|dump|store)_(?:\w+_)?(?:checkpoint|ckpt|model|weights|state|snapshot)s?"),
    ),
    (
        LOGGING,
        re.compile(
            r"on_log|_?log|_?(?:write|do)_(?:logs?|csv|metrics|scalars|row)|_?log_(?:metrics|stats|scalars|step|row)"
            r"|print_(?:metrics|stats|progress|tensors?|weights|losses)|add_(?:scalars?|histogram|images?|figure)"
        ),
    ),
)

# Calls: a method's last name where it is unambiguous, else with the module before it.
_CALLS = (
    (
        CHECKPOINT,
        re.compile(
            r"(?:torch|np|numpy)\.(?:save|savez|savez_compressed)|(?:pickle|joblib|dill|cloudpickle|marshal)\.dumps?"
            r"|(?:.*\.)?(?:save_file|save_model|save_pretrained|save_checkpoint|save_state|save_weights)"
        ),
    ),
    (
        LOGGING,
        re.compile(
            r"print|pprint|(?:pprint|rich)\.p?print|(?:logging|logger|log|LOG|_?logger|self\.logger)\.\w+"
            r"|(?:wandb|mlflow|run|tracker|experiment|accelerator|fabric|trainer|aim_run|task)\.log(?:_\w+)?"
            r"|(?:.*\.)?(?:log_metrics|add_(?:scalars?|histogram|images?|figure|text|embedding|video|audio|pr_curve)"
            r"|writerows?|writelines|set_postfix(?:_str)?|set_description(?:_str)?|savefig|to_csv)"
            r"|(?:json|yaml)\.(?:safe_)?dumps?|(?:.*\.)?(?:write|flush|fsync|fdatasync)"
        ),
    ),
)


# What libraries do, as the hooks name it, where it is one of these whatever it is called for.
_KINDS = {
    **dict.fromkeys(
        (
            stack_activities.FSYNC, stack_activities.CSV, stack_activities.PRINT, stack_activities.LOGGING,
            stack_activities.PLOT, stack_activities.TRACKER, stack_activities.PROGRESS_BAR,
            stack_activities.TENSOR_TEXT, stack_activities.FILE,
        ),
        LOGGING,
    ),
    stack_activities.TORCH_SAVE: CHECKPOINT, stack_activities.COLLECTION: stack_activities.COLLECTION,
}  # fmt: skip


def kind_of(place: Place) -> str | None:
    """Return what a rule is about: `checkpoint`, `eval`, `logging`, `garbage collection`; None: unclear.

    By the names in a place and the activity.
    """
    return activity(place.line) or _KINDS.get(place.activity)


def activity(place: str) -> str | None:
    """Return `checkpoint`, `eval` or `logging`, by the names in a place; None: none of these, or unclear."""
    match = _PLACE.search(place)
    if match is None:
        return None
    for what, functions in _FUNCTIONS:
        if functions.fullmatch(match["function"]):
            return what
    return next((what for what, calls in _CALLS if match["call"] and calls.fullmatch(match["call"])), None)


# Calls that wait for all work queued on the device, by their last names; calls that move data to or from it.
SYNCHRONIZES = frozenset((
    "item", "cpu", "numpy", "tolist", "synchronize", "nonzero", "masked_select", "unique", "float", "int", "bool",
    "print",
))  # fmt: skip
COPIES = frozenset(("to", "cuda", "copy_", "cpu", "pin_memory", "to_device", "send_to_device", "move_data_to_device"))
# Calls of a model, by common names: in the user's own rollout or decoder.
MODELS = frozenset((
    "model", "net", "network", "policy", "policy_net", "actor", "critic", "agent", "generator", "decoder", "student",
    "teacher", "forward", "generate", "get_action", "get_action_and_value",
))  # fmt: skip
MIN_LOOKS = 30  # stack samples: a share of 20% is then known to within 12 percentage points

_CALL = re.compile(r" \(([\w.]+)\)")


@dataclass(frozen=True, slots=True)
class Seen:
    """How often stack samples show calls of a kind."""

    share: float = 0.0  # of the stack samples
    whole: int = 0  # all stack samples
    places: tuple[str, ...] = ()  # where, most often first
    phases: frozenset[str] = frozenset()  # open phases in these samples


def calls_seen(
    frames: Mapping[str, Mapping[str, int]],
    names: frozenset[str],
    where: tuple[str, ...] = (),
    at_least: int = MIN_LOOKS,
) -> Seen:
    """Return how often the innermost call of a stack sample is one of `names`.

    Args:
        frames: open phase -> place -> number of stack samples.
        where: phases to count; empty: all.
        at_least: stack samples; fewer give an empty result.
    """
    places: Counter[str] = Counter()
    phases = set()
    whole = 0
    for name, table in frames.items():
        if where and name not in where:
            continue
        for place, times in table.items():
            whole += times
            call = _CALL.search(place)
            if call is not None and call[1].rpartition(".")[2] in names:
                places[place] += times
                phases.add(name)
    if whole < at_least:
        return Seen()
    return Seen(
        share=places.total() / whole,
        whole=whole,
        places=tuple(place for place, _ in places.most_common(3)),
        phases=frozenset(phases),
    )


_FUNCTION = re.compile(r"(?:^|, from )([^ ]+):\d+(?: \([^)]*\))? in (\w+)$")  # the program's own, behind a library's


def alternating(samples: Mapping[str, int], names: frozenset[str], at_least: float, steps: Iterable[str]) -> float:
    """Return the share of stack samples in functions of the program whose calls are often of `names`.

    Args:
        samples: place -> number of stack samples.
        at_least: of a function's own samples in calls of `names`.
        steps: places in the model's passes; a function that these show runs the steps themselves.
    """
    own = {_function(place) for place in steps}
    whole: Counter[tuple[str, str]] = Counter()
    named: Counter[tuple[str, str]] = Counter()
    for place, times in samples.items():
        function = _function(place)
        if function is None or function in own:
            continue
        whole[function] += times
        call = _CALL.search(place)
        if call is not None and call[1].rpartition(".")[2] in names:
            named[function] += times
    found = sum(times for function, times in whole.items() if named[function] >= at_least * times)
    return found / sum(samples.values()) if samples else 0.0


def _function(place: str) -> tuple[str, str] | None:
    """Return file and name of the program's function at a place; None outside of any, as in a script's own lines."""
    found = _FUNCTION.search(place)
    return None if found is None else (found[1], found[2])
