"""What stack samples show a program doing, by the names of its functions and calls. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trainhooks.protocol import calls
from trainhooks.protocol.calls import effects_of
from trainhooks.protocol.places import Place

CHECKPOINT, EVAL, LOGGING = "checkpoint", "eval", "logging"

# The user's functions, by their whole names: `log_prob` is no logging, and `save` alone may save anything.
_FUNCTIONS = {
    EVAL: re.compile(
        r"_?(?:run_|do_)?(?:eval|evaluate|evaluation|validate|validation)"
        r"(?:_(?:model|policy|agent|epoch|loop|once|all|set))?|estimate_loss"
    ),
    CHECKPOINT: re.compile(r"_?(?:save|write|dump|store)_(?:\w+_)?(?:checkpoint|ckpt|model|weights|state|snapshot)s?"),
    LOGGING: re.compile(
        r"on_log|_?log|_?(?:write|do)_(?:logs?|csv|metrics|scalars|row)|_?log_(?:metrics|stats|scalars|step|row)"
        r"|print_(?:metrics|stats|progress|tensors?|weights|losses)|add_(?:scalars?|histogram|images?|figure)"
    ),
}
# What libraries do, where it is one of these whatever it is called for.
_KINDS = {**dict.fromkeys(calls.LOGGED, LOGGING), calls.TORCH_SAVE: CHECKPOINT, calls.COLLECTION: calls.COLLECTION}


def kind_of(place: Place) -> str | None:
    """Return what a rule is about: `checkpoint`, `eval`, `logging`, `garbage collection`; None: unclear.

    By the names of the program's function and of its call, and by the activity.
    """
    known = next((what for what, functions in _FUNCTIONS.items() if functions.fullmatch(place.function)), None)
    if known is None and (done := effects_of(place.call)) & (calls.SAVES | calls.LOGS):
        known = CHECKPOINT if done & calls.SAVES else LOGGING
    return known or _KINDS.get(place.activity)


def kinds_of(places: Iterable[Place]) -> dict[Place, str | None]:
    """Return the same of several places, where a function that saves a checkpoint opens and syncs its file for that."""
    kinds = {place: kind_of(place) for place in places}
    saving = {(place.file, place.function) for place, what in kinds.items() if what == CHECKPOINT}
    saving = {function for function in saving if function[1].isidentifier()}  # a script's own lines are in none
    own = (place for place in kinds if place.activity in (calls.FILE, calls.FSYNC))
    return kinds | {place: CHECKPOINT for place in own if (place.file, place.function) in saving}


MIN_LOOKS = 30  # stack samples: a share of 20% is then known to within 12 percentage points


@dataclass(frozen=True, slots=True)
class Seen:
    """How often stack samples show calls of a kind."""

    share: float = 0.0  # of the stack samples
    whole: int = 0  # all stack samples
    places: tuple[Place, ...] = ()  # where, most often first
    phases: frozenset[str] = frozenset()  # open phases in these samples


def calls_seen(
    samples: Mapping[str, Mapping[Place, int]], what: int, phases: tuple[str, ...] = (), at_least: int = MIN_LOOKS
) -> Seen:
    """Return how often the innermost call of a stack sample does `what`, as `calls.effects_of` says.

    Args:
        samples: open phase -> place -> number of stack samples.
        phases: to count; empty: all.
        at_least: stack samples; fewer give an empty result.
    """
    places: Counter[Place] = Counter()
    found = set()
    whole = 0
    for phase, table in samples.items():
        if phases and phase not in phases:
            continue
        for place, times in table.items():
            whole += times
            if effects_of(place.innermost_call) & what:
                places[place] += times
                found.add(phase)
    if whole < at_least:
        return Seen()
    return Seen(
        share=places.total() / whole,
        whole=whole,
        places=tuple(place for place, _ in places.most_common(3)),
        phases=frozenset(found),
    )


def alternating(samples: Mapping[Place, int], what: int, at_least: float, steps: Iterable[Place]) -> float:
    """Return the share of stack samples in functions of the program whose calls often do `what`.

    Args:
        samples: place -> number of stack samples.
        at_least: of a function's own samples in such calls.
        steps: places in the model's passes; a function that these show runs the steps themselves.
    """
    own = {(place.file, place.function) for place in steps}
    whole: Counter[tuple[str, str]] = Counter()
    doing: Counter[tuple[str, str]] = Counter()
    for place, times in samples.items():
        function = place.file, place.function
        if function in own or not place.function.isidentifier():  # a script's own lines are in no function
            continue
        whole[function] += times
        if effects_of(place.innermost_call) & what:
            doing[function] += times
    found = sum(times for function, times in whole.items() if doing[function] >= at_least * times)
    return found / sum(samples.values()) if samples else 0.0


RANGE_SIGMAS = 1.96  # of the 95% range of a share


def sampled_range(times: int, of: int) -> tuple[float, float]:
    """Return the 95% range (Wilson's) of a share, counted in `times` of `of` stack samples."""
    share, spread = times / of, RANGE_SIGMAS**2 / of
    middle = (share + spread / 2) / (1 + spread)
    half = RANGE_SIGMAS * math.sqrt(share * (1 - share) / of + spread / (4 * of)) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)
