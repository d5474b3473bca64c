"""Stable-Baselines3: the steps of its vectorized environments, advantages, evaluations, and what its logger records."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Callable

from trainhooks.auto.imports import when_imported
from trainhooks.auto.instrumentation import EVAL, call_safely, put_metrics, time_functions, wrap
from trainhooks.auto.rl.environments import watch_package, wrap_collection


@when_imported("stable_baselines3.common.vec_env")
def watch_environments(module: ModuleType) -> None:
    watch_package(module, module.VecEnv)


@when_imported("stable_baselines3.common.on_policy_algorithm")
def time_rollouts_on_policy(module: ModuleType) -> None:
    wrap(module.OnPolicyAlgorithm, "collect_rollouts", wrap_collection)


@when_imported("stable_baselines3.common.off_policy_algorithm")
def time_rollouts_off_policy(module: ModuleType) -> None:
    wrap(module.OffPolicyAlgorithm, "collect_rollouts", wrap_collection)


@when_imported("stable_baselines3.common.buffers")
def time_advantages(module: ModuleType) -> None:
    for name in ("RolloutBuffer", "DictRolloutBuffer"):
        owner = getattr(module, name, None)
        if owner is not None:
            time_functions(owner, {"compute_returns_and_advantage": "advantage"}, is_span=False)


@when_imported("stable_baselines3.common.evaluation")
def time_evaluations(module: ModuleType) -> None:
    time_functions(module, {"evaluate_policy": EVAL})


@when_imported("stable_baselines3.common.logger")
def read_logger(module: ModuleType) -> None:
    wrap(module.Logger, "dump", _dump)


def _dump(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        call_safely(_put, self)
        return original(self, *args, **kwargs)

    return wrapper


def _put(logger: Any) -> None:
    put_metrics({name: value for name, value in logger.name_to_value.items() if not name.startswith("time/")})
