"""vLLM inside a training: `LLM.generate` and `LLM.chat` as the phase `generation`, with what they wrote."""

from __future__ import annotations

import threading
from functools import partial
from types import ModuleType
from typing import Any, Callable, Dict

from trainhooks.auto.imports import when_imported
from trainhooks.auto.instrumentation import call_safely, wrap
from trainhooks.auto.rl import decoding
from trainhooks.auto.rl.generations import Generation
from trainhooks.auto.rl.id_windows import padded_rows

# vLLM decodes at least so many sequences together by default (max_num_seqs). Of more some wait for others to end, and
# lengths alone do not tell when they decode.
MAX_SEQUENCES = 256


@when_imported("vllm.entrypoints.llm")
def wrap_llm(module: ModuleType) -> None:
    for name in ("generate", "chat"):
        wrap(module.LLM, name, _generate)


class _ThreadState(threading.local):
    is_generating = False


_thread_state = _ThreadState()


def _generate(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if _thread_state.is_generating:  # `chat` calls `generate`
            return original(*args, **kwargs)
        _thread_state.is_generating = True
        try:
            with Generation() as generation:
                outputs = original(*args, **kwargs)
        finally:
            _thread_state.is_generating = False
        figures = call_safely(request_figures, outputs)
        generation.ended(partial(_new_ids, outputs), (figures, {}) if figures else None)
        return outputs

    return wrapper


def _new_ids(outputs: Any) -> Any:
    return padded_rows([completion.token_ids for request in outputs for completion in request.outputs])


def request_figures(outputs: Any) -> Dict[str, int]:
    """Return what a call wrote, by its `RequestOutput`s: tokens of prompts, completions and their tokens."""
    lengths = [len(completion.token_ids) for request in outputs for completion in request.outputs]
    prompts = [request.prompt_token_ids for request in outputs]
    figures = {"completions": len(lengths), "new_tokens": sum(lengths)}
    if all(prompt is not None for prompt in prompts):
        figures["prompt_tokens"] = sum(map(len, prompts))
    if len(lengths) <= MAX_SEQUENCES:
        figures.update(decoding.tail_steps(lengths))
    return figures
