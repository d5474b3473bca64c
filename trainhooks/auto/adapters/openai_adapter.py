"""openai: completions that a training asks of a server of its own (vLLM, SGLang) as the phase `generation`.

What a hosted service answers is no text of the trained model: a judge's verdict, or data. Calls of other threads and of
asyncio tasks overlap and are not timed.
"""

from __future__ import annotations

from threading import get_ident
from types import ModuleType
from typing import Any, Callable, Dict
from urllib.parse import urlparse

from trainhooks import session
from trainhooks.auto.imports import when_imported
from trainhooks.auto.instrumentation import call_safely, framework, phase, wrap
from trainhooks.lane_entries import AGGREGATE

HOSTED = ("openai.com", "azure.com", "openrouter.ai", "anthropic.com", "googleapis.com", "together.xyz")


@when_imported("openai.resources.completions")
@when_imported("openai.resources.chat.completions")
def wrap_completions(module: ModuleType) -> None:
    wrap(module.Completions, "create", _create)


def _create(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        # A stream is answered before its text is written.
        if kwargs.get("stream") or not _may_train() or not call_safely(is_own_server, self):
            return original(self, *args, **kwargs)
        with phase("generation"):
            answer = original(self, *args, **kwargs)
        figures = call_safely(answer_figures, answer)
        if figures:
            session.quiet_put()((AGGREGATE, figures, {}))
        return answer

    return wrapper


def _may_train() -> bool:
    """Return whether this thread may train, and is in no part of it that has a name: a reward may ask a model, too.

    What comes before the first step is kept back until the process has trained.
    """
    tracker = framework.tracker
    if tracker is None or tracker.silent or tracker.thread != get_ident():
        return False
    tracker.fast_path.leave()
    return not (framework.open_phases or framework.open_evaluations)


def is_own_server(resource: Any) -> bool:
    """Return whether the client of these completions talks to a server that is no hosted service."""
    host = urlparse(str(resource._client.base_url)).hostname or ""
    return not any(host == name or host.endswith(f".{name}") for name in HOSTED)


def answer_figures(answer: Any) -> Dict[str, int]:
    """Return what an answer says of itself: completions, and tokens where it counts them."""
    figures = {"completions": len(answer.choices)}
    usage = getattr(answer, "usage", None)
    for name, counted in (("prompt_tokens", "prompt_tokens"), ("new_tokens", "completion_tokens")):
        value = getattr(usage, counted, None)
        if type(value) is int:
            figures[name] = value
    return figures
