"""gym, the predecessor of gymnasium: the steps of single and vectorized environments, as rollouts."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from trainhooks.auto.imports import when_imported
from trainhooks.auto.rl.environments import watch_package


@when_imported("gym")
def watch(module: ModuleType) -> None:
    vector: Any = getattr(getattr(module, "vector", None), "VectorEnv", module.Env)
    watch_package(module, module.Env, vector)
