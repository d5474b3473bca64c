"""W&B: what a program logs to its run."""

from types import ModuleType

from trainhooks.auto.imports import when_imported
from trainhooks.auto.trackers import wrap_log


@when_imported("wandb.sdk.wandb_run")
def wrap_run(module: ModuleType) -> None:
    wrap_log(module.Run, "log", "wandb")
