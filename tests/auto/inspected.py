"""A model's second call, inspected as in a training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from trainhooks.auto.operations import op_inspection

Facts = dict[str, Any]
X = torch.randn(4, 128, 64)


def inspect_call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Return the result of a model's second call, which is inspected."""
    found = op_inspection.OpInspection()
    assert not found.is_due(module, 1) and found.is_due(module, 2)
    call = found.call_for(torch, module)
    assert found.done and not found.is_due(module, 3)
    return call(*args, **kwargs)


class Function(nn.Module):
    """A function with weights."""

    def __init__(self, function: Callable[..., Any], *shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(shape) * 0.1) for shape in shapes])
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args, *self.weights)
