"""What a program does where its stack was seen, by the names of its functions and of what they call. Pure.

A place reads `train.py:41 (json.dump) in write_row`, as the hooks tell it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

CHECKPOINT, EVAL, LOGGING = "checkpoint", "eval", "logging"

_PLACE = re.compile(r"(?: \((?P<call>[\w.]+)\))? in (?P<function>\S+)$")

# Functions of the user's own, by whole names: `log_prob` is no logging, and `save` alone may save anything.
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

# What they call: a method's last name where it is plain enough by itself, else with the module before it.
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


def activity(place: str) -> str | None:
    """The one of these that the program was at there; None where its names do not say."""
    found = _PLACE.search(place)
    if found is None:
        return None
    for what, functions in _FUNCTIONS:
        if functions.fullmatch(found["function"]):
            return what
    return next((what for what, calls in _CALLS if found["call"] and calls.fullmatch(found["call"])), None)


# Calls that wait for all that the device has queued, by their last names; and calls that move data to or from it.
SYNCHRONIZES = frozenset(
    (
        "item",
        "cpu",
        "numpy",
        "tolist",
        "synchronize",
        "nonzero",
        "masked_select",
        "unique",
        "float",
        "int",
        "bool",
        "print",
    )
)
COPIES = frozenset(("to", "cuda", "copy_", "cpu", "pin_memory", "to_device", "send_to_device", "move_data_to_device"))
# Calls of a model, by the names that people give to one: in a rollout or a decoder of one's own.
MODELS = frozenset(
    (
        "model",
        "net",
        "network",
        "policy",
        "policy_net",
        "actor",
        "critic",
        "agent",
        "generator",
        "decoder",
        "student",
        "teacher",
        "forward",
        "generate",
        "get_action",
        "get_action_and_value",
    )
)
ENOUGH_LOOKS = 30  # of which a share of a fifth is seen within a dozen points

_CALL = re.compile(r" \(([\w.]+)\)")


@dataclass(frozen=True, slots=True)
class Seen:
    """How often a program was seen in calls of a kind."""

    share: float = 0.0  # of the looks
    whole: int = 0  # looks
    places: tuple[str, ...] = ()  # where, most often first
    phases: frozenset[str] = frozenset()  # what was open then


def calls_seen(
    frames: Mapping[str, Mapping[str, int]],
    names: frozenset[str],
    where: tuple[str, ...] = (),
    at_least: int = ENOUGH_LOOKS,
) -> Seen:
    """How often the innermost call that a look names was one of these; nothing on few looks.

    Args:
        frames: what was open -> place -> looks.
        where: only while one of these was open; of all looks where none is named.
        at_least: looks; of fewer, nothing is told.
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
    return Seen(places.total() / whole, whole, tuple(place for place, _ in places.most_common(3)), frozenset(phases))
