"""Settings that `trainmon try` may change in a program: their names, their values, and how they are handed over."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Dict, Mapping, Tuple, Union

VARIABLE = "TRAINMON_TRY"  # a JSON object of settings; without it no program is changed
WRITES_VARIABLE = "TRAINMON_TRY_WRITES"  # set: what the program writes and removes is listed in the run's directory
APPLIED = "trial-applied"  # in the run's directory: a line for each setting that found its place
WRITES = "trial-writes"  # likewise, a line of JSON for each path

Value = Union[bool, int, str]


@dataclass(frozen=True)
class Setting:
    """One setting. `values` are the words it may have; without them it is a number from `least` to `most`."""

    values: Tuple[Value, ...] = ()
    least: int = 0
    most: int = 0
    changes_results: bool = False  # whether the same numbers come out, but for the order of random ones


_SWITCH: Tuple[Value, ...] = (False, True)
_OFF: Tuple[Value, ...] = (False,)

BATCH_SIZE = "batch_size"  # by the program's own argument; all others are set within the program

SETTINGS: Dict[str, Setting] = {
    BATCH_SIZE: Setting(least=1, most=10**6, changes_results=True),
    "num_workers": Setting(least=0, most=256),
    "prefetch_factor": Setting(least=1, most=256),
    "persistent_workers": Setting(_SWITCH),
    "pin_memory": Setting(_SWITCH),
    "threads": Setting(least=1, most=1024),
    "matmul_precision": Setting(("highest", "high", "medium"), changes_results=True),
    "cudnn_benchmark": Setting(_SWITCH, changes_results=True),
    "fused": Setting(_SWITCH, changes_results=True),
    "foreach": Setting(_SWITCH, changes_results=True),
    "compile": Setting((True,), changes_results=True),
    "compile_dynamic": Setting(_SWITCH, changes_results=True),
    "use_cache": Setting((True,)),  # of generate() in transformers
    "detect_anomaly": Setting(_OFF),
    "profiler": Setting(_OFF),
    "gc_collect": Setting(_OFF),
    # Arguments of transformers' Trainer.
    "logging_steps": Setting(least=1, most=10**9),
    "save_steps": Setting(least=1, most=10**9),
    "eval_steps": Setting(least=1, most=10**9),
}

Settings = Dict[str, Value]


class BadSetting(ValueError):
    """A setting that is not known, or not with this value. The message is one line that says what to do."""


def checked(settings: Mapping[str, object]) -> Settings:
    """Return the settings, each known and within its limits.

    Raises:
        BadSetting: one is not.
    """
    found: Settings = {}
    for name, value in settings.items():
        known = SETTINGS.get(name)
        if known is None:
            raise BadSetting(f"no setting called '{name[:40]}'; there are: {', '.join(SETTINGS)}")
        if known.values:
            is_right = any(value is one if isinstance(one, bool) else value == one for one in known.values)
            wanted = " or ".join(_word(one) for one in known.values)
        else:
            is_right = type(value) is int and known.least <= value <= known.most
            wanted = f"a number from {known.least} to {known.most}"
        if not is_right or not isinstance(value, (bool, int, str)):
            raise BadSetting(f"{name}: write {wanted}")
        found[name] = value
    return found


def read_words(text: str) -> Settings:
    """Return `num_workers=4,pin_memory=true` as settings.

    Raises:
        BadSetting: a part is not of this form.
    """
    found: Dict[str, object] = {}
    for part in text.split(","):
        name, equals, word = (piece.strip() for piece in part.partition("="))
        if not name or not equals:
            raise BadSetting(f"'{part.strip()[:40]}': write NAME=VALUE, as num_workers=4")
        lower = word.lower()
        number = int(word) if re.fullmatch(r"-?\d{1,12}", word) else None
        found[name] = lower == "true" if lower in ("true", "false") else word if number is None else number
    return checked(found)


def words(settings: Mapping[str, Value]) -> str:
    """Return settings as `read_words` reads them."""
    return ",".join(f"{name}={_word(value)}" for name, value in settings.items())


def _word(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def decode(text: str) -> Settings:
    """Return the settings in the variable's text.

    Raises:
        BadSetting: it is no object of known settings.
    """
    try:
        table = json.loads(text)
    except (ValueError, RecursionError):
        table = None
    if not isinstance(table, dict):
        raise BadSetting(f"{VARIABLE}: no JSON object")
    return checked(table)
