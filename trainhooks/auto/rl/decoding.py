"""What calls of generation tell besides shapes: how long few of their sequences decode alone, and the KV cache.

Only tokens in host memory are read: reading those of a GPU would wait for it.
"""

from __future__ import annotations

import inspect
from typing import Any, Dict, List, Sequence

from trainhooks.device import cuda
from trainhooks.protocol.vocabulary import DECODE_STEPS, TAIL_STEPS

MIN_SEQUENCES = 8  # in a call; a quarter of fewer is one sequence
# Arguments of a model's forward: transformers has renamed its own.
CACHES = ("past_key_values", "past", "cache", "kv_cache", "cache_params")


def tail_steps(lengths: Sequence[int]) -> Dict[str, int]:
    """Return the decoding steps of sequences that decode together, and those with under a quarter of them at work.

    Args:
        lengths: the new tokens of each sequence, up to and including its end.
    """
    ordered = sorted(lengths, reverse=True)
    if not ordered or ordered[0] <= 0:
        return {}
    # Under a quarter are at work as soon as the sequence has ended that is the quarter's last.
    alone = ordered[0] - ordered[(len(ordered) + 3) // 4 - 1] if len(ordered) >= MIN_SEQUENCES else 0
    return {DECODE_STEPS: ordered[0], TAIL_STEPS: alone}


def tail_of_tokens(model: Any, kwargs: Dict[str, Any], output: Any, given: int) -> Dict[str, int]:
    """Return the same of a call of `generate()`, where its tokens are in host memory and an end token is known.

    Args:
        given: columns of the output that are not new.
    """
    tokens = getattr(output, "sequences", output)
    if not getattr(tokens, "is_cpu", False) or len(tokens.shape) != 2 or cuda.modes_active():
        return {}
    ends = end_tokens(model, kwargs)
    if not ends or (generate_setting(model, kwargs, "num_beams") or 1) != 1:  # beams are not sequences
        return {}
    new = tokens.numpy()[:, given:]
    if not new.size:
        return {}
    ended = new == ends[0]
    for end in ends[1:]:
        ended = ended | (new == end)
    width = new.shape[1]
    firsts, has_ended = ended.argmax(1).tolist(), ended.any(1).tolist()
    lengths = [first + 1 if is_over else width for first, is_over in zip(firsts, has_ended)]
    return {"new_tokens": sum(lengths), **tail_steps(lengths)}


def end_tokens(model: Any, kwargs: Dict[str, Any]) -> List[int]:
    """Return the tokens after which a sequence has ended; none: all sequences have the same length.

    Padding follows an end, but may be written before it, too. It is looked for only where texts or rules of the
    program's own end sequences.
    """
    ends_otherwise = kwargs.get("stopping_criteria") or generate_setting(model, kwargs, "stop_strings")
    found: List[int] = []
    for name in ("eos_token_id", "pad_token_id") if ends_otherwise else ("eos_token_id",):
        value = generate_setting(model, kwargs, name)
        values = value if isinstance(value, (list, tuple)) else [value]
        found += [one for one in values if type(one) is int and one >= 0]
        if not found:
            return []
    return found


def generate_setting(model: Any, kwargs: Dict[str, Any], name: str) -> Any:
    """Return a setting of a call of `generate()`: its argument, else its configuration's, else the model's."""
    for source in (kwargs.get("generation_config"), getattr(model, "generation_config", None)):
        kept = kwargs.get(name)
        value = kept if kept is not None else getattr(source, name, None)
        if value is not None:
            return value
    return None


def can_cache(model: Any) -> bool:
    """Return whether a model's forward takes a cache."""
    return any(name in CACHES for name in inspect.signature(type(model).forward).parameters)
