"""Lightning, as `lightning` and as `pytorch_lightning`: totals, settings, logged metrics, validation, checkpoints.

No callback is added: the functions that the Trainer calls are wrapped, so its lists and its output stay the same.
"""

from __future__ import annotations

import math
import sys
from types import ModuleType
from typing import Any, Callable, Dict, Optional

from trainhooks.auto import unseen
from trainhooks.auto.batch_parts import known_length
from trainhooks.auto.imports import when_imported
from trainhooks.auto.instrumentation import (
    EVAL,
    batch_used,
    call_safely,
    forward_begins,
    framework,
    phase,
    put_facts,
    put_metrics,
    time_functions,
    training_begins,
    training_ended,
    wrap,
)
from trainhooks.auto.models.program_facts import model_facts
from trainhooks.protocol.vocabulary import LOSS, phase_name

Function = Callable[..., Any]

TRAINING_STEP, TO_DEVICE = "training_step", "batch_to_device"  # calls of a strategy that are phases of a step
EVALUATIONS = {"loops.evaluation_loop": "_EvaluationLoop", "loops.prediction_loop": "_PredictionLoop"}
NO_METRICS = ("epoch", "step")
LOADER_SETTINGS = (
    ("dataloader_num_workers", "num_workers"),
    ("dataloader_pin_memory", "pin_memory"),
    ("dataloader_prefetch_factor", "prefetch_factor"),
    ("per_device_train_batch_size", "batch_size"),
)


@when_imported("lightning.pytorch.trainer.trainer")
@when_imported("pytorch_lightning.trainer.trainer")
def wrap_trainer(module: ModuleType) -> None:
    package = module.__name__.rpartition(".trainer.trainer")[0]
    time_functions(module.Trainer, {"save_checkpoint": "checkpoint"})
    calls = sys.modules[f"{package}.trainer.call"]
    wrap(calls, "_call_callback_hooks", _call_callback_hooks)
    wrap(calls, "_call_strategy_hook", _call_strategy_hook)
    for place, name in EVALUATIONS.items():
        loop = getattr(sys.modules.get(f"{package}.{place}"), name, None)
        if loop is not None:
            time_functions(loop, {"run": EVAL})
    connector = sys.modules.get(f"{package}.trainer.connectors.logger_connector.logger_connector")
    if connector is not None:
        wrap(connector._LoggerConnector, "log_metrics", _log_metrics)


def _call_callback_hooks(original: Function) -> Function:
    def wrapper(trainer: Any, hook_name: str, *args: Any, **kwargs: Any) -> Any:
        if hook_name == "on_fit_start":
            framework.plans = True  # before the loaders are iterated, whose lengths it knows
        elif hook_name == "on_train_start":
            call_safely(_begin, trainer)
        elif hook_name == "on_train_batch_start":
            batch_used()
        elif hook_name == "on_train_end":
            training_ended()
        try:
            return original(trainer, hook_name, *args, **kwargs)
        except BaseException as error:
            unseen.drop_own_frames(error)
            raise

    return wrapper


def _call_strategy_hook(original: Function) -> Function:
    def wrapper(trainer: Any, hook_name: str, *args: Any, **kwargs: Any) -> Any:
        if hook_name == TRAINING_STEP:
            forward_begins()
        elif hook_name == TO_DEVICE and trainer.strategy.root_device.type != "cpu":
            with phase(phase_name(hook_name) or hook_name):
                return original(trainer, hook_name, *args, **kwargs)
        try:
            return original(trainer, hook_name, *args, **kwargs)
        except BaseException as error:
            unseen.drop_own_frames(error)
            raise

    return wrapper


def _log_metrics(original: Function) -> Function:
    def wrapper(self: Any, metrics: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(metrics, dict) and not getattr(self.trainer, "sanity_checking", False):
            values = put_metrics({name: value for name, value in metrics.items() if name not in NO_METRICS})
            if LOSS in values:
                framework.logs_loss = True
        return original(self, metrics, *args, **kwargs)

    return wrapper


def _begin(trainer: Any) -> None:
    framework.prefetched_batches = 1  # for data without a length
    # A call of its own, since the facts below may fail.
    training_begins(start_step=trainer.global_step, total_steps=call_safely(total_steps, trainer))
    facts = call_safely(_facts, trainer)
    if facts:
        put_facts(**facts)


def total_steps(trainer: Any) -> Optional[int]:
    """Return the optimizer steps of the whole fit; None where unknown (endless data, manual optimization)."""
    totals = []
    if trainer.max_steps is not None and trainer.max_steps > 0:
        totals.append(trainer.max_steps)
    batches, epochs = trainer.num_training_batches, trainer.max_epochs
    if epochs is not None and epochs > 0 and batches != math.inf:
        totals.append(math.ceil(batches / trainer.accumulate_grad_batches) * epochs)
    if not trainer.lightning_module.automatic_optimization or not totals:
        return None
    return int(min(totals))


def _facts(trainer: Any) -> Dict[str, Any]:
    settings: Dict[str, Any] = {
        "precision": str(trainer.precision),
        "strategy": type(trainer.strategy).__name__,
        "accelerator": type(trainer.accelerator).__name__,
        "gradient_accumulation_steps": trainer.accumulate_grad_batches,
        "gradient_clip_val": trainer.gradient_clip_val,
        "log_every_n_steps": trainer.log_every_n_steps,
        "num_devices": trainer.num_devices,
        "num_nodes": trainer.num_nodes,
        "detect_anomaly": bool(getattr(trainer, "_detect_anomaly", False)),
    }
    loader = trainer.train_dataloader
    for name, attribute in LOADER_SETTINGS:
        value = getattr(loader, attribute, None)
        if isinstance(value, (bool, int)):
            settings[name] = value
    facts: Dict[str, Any] = {"framework": "lightning", "config": settings}
    facts["model"] = model_facts(trainer.lightning_module)
    if trainer.max_epochs is not None and trainer.max_epochs > 0:
        facts["epochs"] = trainer.max_epochs
    dataset: Any = getattr(loader, "dataset", None)
    samples = known_length(dataset)
    if samples is not None:
        facts["dataset"] = {"train_samples": samples}
    return facts
