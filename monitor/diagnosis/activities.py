"""What a program does where its stack was seen, by the names of its functions and of what they call. Pure.

A place reads `train.py:41 (json.dump) in write_row`, as the hooks tell it.
"""

from __future__ import annotations

import re

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
