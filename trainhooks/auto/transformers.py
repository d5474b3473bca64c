"""Hugging Face's Trainer: totals, settings, logged metrics, evaluations and checkpoints. Versions 4 and 5.

    Trainer(..., callbacks=[TrainmonCallback()])        # by hand; under `trainmon run` it adds itself

Its steps are told by `boundaries`, as anybody else's.
"""

from __future__ import annotations

import importlib
import sys
import weakref
from types import ModuleType
from typing import Any, Callable, Dict, Optional, Tuple

from trainhooks import session
from trainhooks.auto import claims, imports, sections
from trainhooks.auto.models import model_facts
from trainhooks.entries import FACTS, LOG

NO_METRICS = frozenset(("epoch", "step", "total_flos"))

# What a Trainer does beside its steps, by the name of its method.
SPANS = {
    "_evaluate": sections.EVAL,
    "evaluate": sections.EVAL,
    "predict": sections.EVAL,
    "evaluation_loop": sections.EVAL,
    "prediction_loop": sections.EVAL,
    "_save_checkpoint": "checkpoint",
    "save_model": "checkpoint",
    "_load_from_checkpoint": "load checkpoint",
    "_load_best_model": "load checkpoint",
    "log": "logging",
}


def install(module: ModuleType) -> None:
    """Called after `transformers.trainer` has been imported."""
    trainer = module.Trainer
    for method, label in SPANS.items():
        sections.timed(trainer, method, label)
    sections.replace(trainer, "training_step", _using)
    callbacks = module.DEFAULT_CALLBACKS
    automatic = _classes()[1]
    if automatic not in callbacks:
        callbacks.append(automatic)


def _using(training_step: Callable[..., Any]) -> Callable[..., Any]:
    """Say which batch is used when: the Trainer fetches all of a step's and, through accelerate, one more."""

    def ours(*args: Any, **kwargs: Any) -> Any:
        sections.batch_used()
        return training_step(*args, **kwargs)

    return ours


class _Owner:
    """Which callback speaks for the training that is going on: a user's own and ours may both be there."""

    def __init__(self) -> None:
        self._of: Optional[Tuple[weakref.ReferenceType[Any], Any]] = None
        self.steps_before = 0  # of trainings that this process has done

    def take(self, callback: Any, state: Any) -> None:
        if self._of is None or self._of[0]() is not state:
            self._of = (weakref.ref(state), callback)

    def is_other(self, callback: Any, state: Any) -> bool:
        return self._of is None or self._of[1] is not callback or self._of[0]() is not state


_owner = _Owner()


class _Telling:
    """What our callback says of a training. Mixed into `transformers.TrainerCallback`, which we cannot import."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        _owner.take(self, state)
        if _owner.is_other(self, state):
            return
        claims.loss = True
        claims.ahead = args.gradient_accumulation_steps + 1
        known: Dict[str, Any] = {"start_step": state.global_step}
        if state.max_steps > 0:
            known["total_steps"] = _owner.steps_before + state.max_steps
        known["config"] = sections.harmless(args.to_dict) or {}
        known["facts"] = sections.harmless(_facts, state, kwargs) or {}
        session.quiet_put()((FACTS, known))
        session.announce()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if _owner.is_other(self, state) or not isinstance(logs, dict):
            return
        told = {name: value for name, value in logs.items() if type(value) in (int, float) and name not in NO_METRICS}
        if told:
            session.quiet_put()((LOG, told))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not _owner.is_other(self, state):
            sections.training_ended()
            claims.ahead = 1  # accelerate's
            _owner.steps_before += state.global_step


def _facts(state: Any, kwargs: Dict[str, Any]) -> Dict[str, Any]:
    facts: Dict[str, Any] = {"framework": "transformers"}
    model = kwargs.get("model")
    if model is not None:
        facts["model"] = model_facts(model)
    epochs = getattr(state, "num_train_epochs", None)
    if isinstance(epochs, (int, float)) and epochs < sys.maxsize:  # which is what it is with an endless dataset
        facts["epochs"] = epochs
    samples = sections.harmless(_samples, kwargs.get("train_dataloader"))
    if samples is not None:
        facts["dataset"] = {"train_samples": samples}
    return facts


def _samples(loader: Any) -> Optional[int]:
    dataset: Any = getattr(loader, "dataset", None)
    return len(dataset) if hasattr(dataset, "__len__") else None


_made: Dict[str, Tuple[type, type]] = {}


def _classes() -> Tuple[type, type]:
    """TrainmonCallback and the one that adds itself: of another class, so that both may be in a Trainer's list."""
    if not _made:
        base = importlib.import_module("transformers.trainer_callback").TrainerCallback
        public = type("TrainmonCallback", (_Telling, base), {"__module__": __name__, "__init__": _by_hand})
        automatic = type("AutomaticTrainmonCallback", (_Telling, base), {"__module__": __name__})
        _made["classes"] = (public, automatic)
    return _made["classes"]


def _by_hand(self: Any) -> None:
    """Without `trainmon run` nothing is armed yet: steps and phases come from the same places either way."""
    if imports.FINDER not in sys.meta_path:
        imports.install()


def __getattr__(name: str) -> Any:
    if name in ("TrainmonCallback", "AutomaticTrainmonCallback"):
        return _classes()[name != "TrainmonCallback"]
    raise AttributeError(name)
