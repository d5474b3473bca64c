"""Calls of `generate()` in transformers: phase `generation`, how many a step, and how much each of them did.

From shapes alone: what is counted as new tokens is what was computed, the padding after an end token included.
"""

from __future__ import annotations

import sys
import threading
from types import ModuleType
from typing import Any, Callable, Dict, Optional, Tuple

from trainhooks import session
from trainhooks.auto import sections
from trainhooks.entries import TALLY

GENERATION = "generation"


def install(module: ModuleType) -> None:
    """Called after `transformers.generation.utils` has been imported."""
    sections.replace(module.GenerationMixin, "generate", _told)


class _Here(threading.local):
    busy = False


_here = _Here()


def _told(generate: Callable[..., Any]) -> Callable[..., Any]:
    def ours(self: Any, *args: Any, **kwargs: Any) -> Any:
        # A call inside a call (an assistant's, a deprecated strategy's) is a part of it.
        if _is_compiling() or _here.busy:
            return generate(self, *args, **kwargs)
        _here.busy = True
        try:
            with sections.phase(GENERATION):
                output = generate(self, *args, **kwargs)
        finally:
            _here.busy = False
        told = sections.harmless(figures, self, args, kwargs, output)
        if told is not None:
            session.quiet_put()((TALLY, *told))
        return output

    return ours


def _is_compiling() -> bool:
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    is_compiling = getattr(compiler, "is_compiling", None)
    return is_compiling is not None and bool(is_compiling())


def figures(model: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], output: Any) -> Tuple[Dict[str, int], Any]:
    """What one call did: sums (calls, prompt tokens, new tokens) and means (batch)."""
    sums = {"generate_calls": 1}
    prompt = _shape(args[0] if args else _first(kwargs, "inputs", "input_ids"))
    written = _shape(getattr(output, "sequences", output))
    if len(prompt) == 1:
        prompt = (1, *prompt)
    given = _shape(_first(kwargs, "inputs", "input_ids", "inputs_embeds", "input_features", "pixel_values"))
    batch = prompt[0] if prompt else given[0] if given else None
    if len(prompt) == 2:
        sums["prompt_tokens"] = prompt[0] * prompt[1]
    if len(written) == 2:
        sums["new_tokens"] = written[0] * max(0, written[1] - _not_new(model, prompt, kwargs))
    return sums, {} if batch is None else {"generate_batch": float(batch)}


def _not_new(model: Any, prompt: Tuple[int, ...], kwargs: Dict[str, Any]) -> int:
    """Columns of what generate() returned that it was given: the prompt, or a decoder's start token."""
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        start = _shape(kwargs.get("decoder_input_ids"))
        return start[1] if len(start) == 2 else 1
    return prompt[1] if len(prompt) == 2 else 0


def _first(kwargs: Dict[str, Any], *names: str) -> Optional[Any]:
    for name in names:
        if kwargs.get(name) is not None:
            return kwargs[name]
    return None


def _shape(value: Any) -> Tuple[int, ...]:
    shape = getattr(value, "shape", None)
    return () if shape is None else tuple(int(size) for size in shape)
