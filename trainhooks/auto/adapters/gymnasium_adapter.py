"""gymnasium: the steps of single and vectorized environments, as rollouts."""

from __future__ import annotations

from types import ModuleType

from trainhooks.auto.imports import when_imported
from trainhooks.auto.rl.environments import watch_package


@when_imported("gymnasium")
def watch(module: ModuleType) -> None:
    watch_package(module, module.Env, module.vector.VectorEnv)
