"""Lightning, as `lightning` and as `pytorch_lightning`: totals, settings, logged metrics, validation, checkpoints.

Nothing joins the user's callbacks: what the Trainer calls is wrapped, so its lists and what it prints stay as they are.
"""

from __future__ import annotations

import math
import sys
from types import ModuleType
from typing import Any, Callable, Dict, Optional

from trainhooks import deferred, session
from trainhooks.auto import claims, sections
from trainhooks.auto.models import model_facts
from trainhooks.auto.vocabulary import phase_name
from trainhooks.entries import FACTS, LOG

TRAINING_STEP, TO_DEVICE = "training_step", "batch_to_device"  # calls of a strategy that are phases of a step
LOSS = "loss"


def install(module: ModuleType) -> None:
    """Called after `lightning.pytorch.trainer.trainer`, or the other package's, has been imported."""
    package = module.__name__.rpartition(".trainer.trainer")[0]
    trainer = module.Trainer
    sections.timed(trainer, "save_checkpoint", "checkpoint")
    calls = sys.modules[f"{package}.trainer.call"]
    sections.replace(calls, "_call_callback_hooks", _hooks)
    sections.replace(calls, "_call_strategy_hook", _strategy)
    for place, name, method in (
        ("loops.evaluation_loop", "_EvaluationLoop", "run"),
        ("loops.prediction_loop", "_PredictionLoop", "run"),
    ):
        loop = getattr(sys.modules.get(f"{package}.{place}"), name, None)
        if loop is not None:
            sections.timed(loop, method, sections.EVAL)
    connector = sys.modules.get(f"{package}.trainer.connectors.logger_connector.logger_connector")
    if connector is not None:
        sections.replace(connector._LoggerConnector, "log_metrics", _logging)


def _hooks(call: Callable[..., Any]) -> Callable[..., Any]:
    def ours(trainer: Any, hook_name: str, *args: Any, **kwargs: Any) -> Any:
        if hook_name == "on_train_start":
            sections.harmless(_begin, trainer)
        elif hook_name == "on_train_batch_start":
            sections.batch_used()
        elif hook_name == "on_train_end":
            sections.training_ended()
        return call(trainer, hook_name, *args, **kwargs)

    return ours


def _strategy(call: Callable[..., Any]) -> Callable[..., Any]:
    def ours(trainer: Any, hook_name: str, *args: Any, **kwargs: Any) -> Any:
        if hook_name == TRAINING_STEP:
            sections.forward_begins()
        elif hook_name == TO_DEVICE and trainer.strategy.root_device.type != "cpu":
            with sections.phase(phase_name(hook_name) or hook_name):
                return call(trainer, hook_name, *args, **kwargs)
        return call(trainer, hook_name, *args, **kwargs)

    return ours


def _logging(log_metrics: Callable[..., Any]) -> Callable[..., Any]:
    def ours(self: Any, metrics: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(metrics, dict) and not getattr(self.trainer, "sanity_checking", False):
            told = deferred.settled({name: value for name, value in metrics.items() if name not in ("epoch", "step")})
            if LOSS in told:
                claims.loss = True
            if told:
                session.quiet_put()((LOG, told))
        return log_metrics(self, metrics, *args, **kwargs)

    return ours


def _begin(trainer: Any) -> None:
    claims.ahead = 1  # where the data has no length
    put = session.quiet_put()
    known: Dict[str, Any] = {"start_step": trainer.global_step}
    total = sections.harmless(total_steps, trainer)
    if total is not None:
        known["total_steps"] = total
    put((FACTS, known))  # by itself, so that what follows may fail
    facts = sections.harmless(_facts, trainer)
    if facts:
        put((FACTS, {"facts": facts}))
    session.announce()


def total_steps(trainer: Any) -> Optional[int]:
    """Optimizer steps of the whole fit; None where that is not known (endless data, optimization by hand)."""
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
    for fact, attribute in (
        ("dataloader_num_workers", "num_workers"),
        ("dataloader_pin_memory", "pin_memory"),
        ("dataloader_prefetch_factor", "prefetch_factor"),
        ("per_device_train_batch_size", "batch_size"),
    ):
        value = getattr(loader, attribute, None)
        if isinstance(value, (bool, int)):
            settings[fact] = value
    facts: Dict[str, Any] = {"framework": "lightning", "config": settings}
    facts["model"] = model_facts(trainer.lightning_module)
    if trainer.max_epochs is not None and trainer.max_epochs > 0:
        facts["epochs"] = trainer.max_epochs
    dataset: Any = getattr(loader, "dataset", None)
    if hasattr(dataset, "__len__"):
        facts["dataset"] = {"train_samples": len(dataset)}
    return facts
