"""The order in which metrics are shown: what people look for, what the program logs besides, the hooks' own. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")

LOOKED_FOR = ("reward", "loss", "accuracy", "acc")  # what tells whether anything is learnt, first where both are there
# Told by the hooks beside what the program logs: of the calls of generate(), and the seconds of each reward function.
OWN = frozenset(("generate_calls", "generate_batch", "prompt_tokens", "new_tokens"))
OWN_FAMILIES = ("reward_seconds/",)

_WORDS = re.compile(r"[a-z]+")


@lru_cache(maxsize=4096)
def place(name: str) -> tuple[int, int]:
    """Where a metric stands; those of the same place stay in the order in which they came."""
    lower = name.lower()
    last = lower.rsplit("/", 1)[-1]
    if last in OWN or any(family in lower for family in OWN_FAMILIES):
        return 3, 0
    if last in LOOKED_FOR:
        return 0, LOOKED_FOR.index(last)
    words = _WORDS.findall(lower)
    for index, wanted in enumerate(LOOKED_FOR):
        if wanted in words or (len(wanted) > 3 and wanted in lower):
            return 1, index
    return 2, 0


def comes_by_itself(name: str) -> bool:
    """Whether the hooks tell this metric of any program, also of one that logs nothing."""
    return name == "loss" or place(name)[0] == 3


def ordered(metrics: Mapping[str, T]) -> dict[str, T]:
    return {name: metrics[name] for name in sorted(metrics, key=place)}
