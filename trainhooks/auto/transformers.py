"""Callback for Hugging Face's Trainer (versions 4 and 5): totals, settings and logged metrics.

    Trainer(..., callbacks=[TrainmonCallback()])        # under `trainmon run` it is added automatically

Its steps come from torch, as in any program.
"""

from __future__ import annotations

import importlib
import sys
import weakref
from typing import Any, Dict, Optional, Tuple

from trainhooks.auto import imports
from trainhooks.auto.batch_parts import known_length
from trainhooks.auto.instrumentation import call_safely, framework, put_metrics, training_begins, training_ended
from trainhooks.auto.models.program_facts import model_facts

NO_METRICS = frozenset(("epoch", "step", "total_flos"))


class _Owner:
    """The callback that reports the current training: a Trainer may have a user's and the automatic one."""

    def __init__(self) -> None:
        self._of: Optional[Tuple[weakref.ReferenceType[Any], Any]] = None
        self.steps_before = 0  # of earlier trainings of this process

    def take(self, callback: Any, state: Any) -> None:
        if self._of is None or self._of[0]() is not state:
            self._of = (weakref.ref(state), callback)

    def is_other(self, callback: Any, state: Any) -> bool:
        return self._of is None or self._of[1] is not callback or self._of[0]() is not state


_owner = _Owner()


class _Callback:
    """The methods of the callbacks, mixed into `transformers.TrainerCallback`, which cannot be imported here."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        _owner.take(self, state)
        if _owner.is_other(self, state):
            return
        framework.logs_loss = True
        framework.prefetched_batches = args.gradient_accumulation_steps + 1
        training_begins(
            start_step=state.global_step,
            total_steps=_owner.steps_before + state.max_steps if state.max_steps > 0 else None,
            config=call_safely(args.to_dict) or {},
            facts=call_safely(_facts, state, kwargs) or {},
        )

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if _owner.is_other(self, state) or not isinstance(logs, dict):
            return
        metrics = {name: value for name, value in logs.items() if type(value) in (int, float)}
        put_metrics({name: value for name, value in metrics.items() if name not in NO_METRICS})

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not _owner.is_other(self, state):
            training_ended()
            framework.prefetched_batches = 1  # accelerate's
            _owner.steps_before += state.global_step


def _facts(state: Any, kwargs: Dict[str, Any]) -> Dict[str, Any]:
    facts: Dict[str, Any] = {"framework": "transformers"}
    model = kwargs.get("model")
    if model is not None:
        facts["model"] = model_facts(model)
    epochs = getattr(state, "num_train_epochs", None)
    if isinstance(epochs, (int, float)) and epochs < sys.maxsize:  # it is maxsize with an endless dataset
        facts["epochs"] = epochs
    samples = call_safely(_samples, kwargs.get("train_dataloader"))
    if samples is not None:
        facts["dataset"] = {"train_samples": samples}
    return facts


def _samples(loader: Any) -> Optional[int]:
    dataset: Any = getattr(loader, "dataset", None)
    return known_length(dataset)


_classes: Dict[str, type] = {}


def __getattr__(name: str) -> Any:
    """Make the two callback classes on first use. They differ, so that a Trainer's list may hold both."""
    if name not in ("TrainmonCallback", "AutomaticTrainmonCallback"):
        raise AttributeError(name)
    if name not in _classes:
        base = importlib.import_module("transformers.trainer_callback").TrainerCallback
        members: Dict[str, Any] = {"__module__": __name__}
        if name == "TrainmonCallback":
            members["__init__"] = _install
        else:  # a Trainer that is pickled with it must load where there is no trainmon
            members["__reduce__"] = lambda _: (base, ())
        _classes[name] = type(name, (_Callback, base), members)
    return _classes[name]


def _install(self: Any) -> None:
    """Install the import hooks unless `trainmon run` has done so."""
    imports.install()
