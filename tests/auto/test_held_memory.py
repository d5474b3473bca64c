"""What weights, gradients and optimizers hold of a GPU's memory, once there is a state."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from trainhooks.auto.models import program_facts
from trainhooks.auto.steps.parameter_updates import Optimizers


class Tensor:
    """A tensor in a storage at an address, on a GPU or not."""

    def __init__(self, address: int, size: int, is_cuda: bool = True) -> None:
        self.is_cuda, self.dtype, self._size = is_cuda, "torch.float32", size
        self.device = SimpleNamespace(index=None, type="cuda" if is_cuda else "cpu")
        self._storage = SimpleNamespace(data_ptr=lambda: address, nbytes=lambda: size)

    def untyped_storage(self) -> Any:
        return self._storage

    def numel(self) -> int:
        return self._size // 4


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    facts: list[dict[str, Any]] = []
    monkeypatch.setattr(program_facts, "put_facts", lambda **known: facts.append(known))
    monkeypatch.setattr(program_facts, "known", program_facts._Known())
    return facts


class Optimizer:
    def __init__(self, *parameters: Tensor) -> None:
        self.param_groups = [{"params": list(parameters)}]
        self.state: dict[Any, dict[str, Any]] = {}


def test_storages_count_once_and_frozen_weights_have_no_gradient(
    told: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    part, other, frozen = Tensor(1, 400), Tensor(1, 400), Tensor(2, 1000)
    monkeypatch.setattr(program_facts, "trained_model", lambda: SimpleNamespace(parameters=lambda: [part, frozen]))
    optimizer = Optimizer(part, other)
    optimizer.state[part] = {"exp_avg": Tensor(3, 400), "exp_avg_sq": Tensor(4, 400), "step": Tensor(5, 4, False)}
    program_facts.optimizer_remembers(optimizer)
    assert told == [{"held": {"weights": 1400, "gradients": 400, "optimizer": 800}}]


def test_it_is_asked_once_after_the_first_step(told: list[dict[str, Any]]) -> None:
    parameter = Tensor(1, 400)
    optimizer, optimizers = Optimizer(parameter), Optimizers()
    optimizers.record_step(id(optimizer), optimizer)
    assert not [facts for facts in told if "held" in facts]
    optimizer.state[parameter] = {"momentum_buffer": Tensor(2, 400)}
    for _ in range(3):
        optimizers.record_step(id(optimizer), optimizer)
    assert [facts["held"]["optimizer"] for facts in told if "held" in facts] == [400]


def test_an_optimizer_on_the_cpu_holds_none(told: list[dict[str, Any]]) -> None:
    optimizer, optimizers = Optimizer(Tensor(1, 400, is_cuda=False)), Optimizers()
    for _ in range(3):
        optimizers.record_step(id(optimizer), optimizer)
    assert not [facts for facts in told if "held" in facts]
