"""Parts of a model for the real torch that launch work on the simulated device. Their numbers mean nothing."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import torch

from tests.simulated_device.device import Device
from tests.simulated_device.install import place

SAMPLES = 64  # of a batch
Kernels = tuple[int, float]  # how many, and seconds each


class _Run(torch.autograd.Function):
    """Launches a layer's kernels on the way there and on the way back."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, layer: Layer) -> Any:
        ctx.layer = layer
        label = "forward" if layer.training else "eval"
        layer.device.launch(*layer.forward_kernels, label)
        return x * weight

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:  # type: ignore[override]
        ctx.layer.device.launch(*ctx.layer.backward_kernels, "backward")
        return gradients[0], gradients[0].sum().reshape(1), None


class Layer(torch.nn.Module):
    """One layer, of one weight."""

    def __init__(self, device: Device, forward: Kernels, backward: Kernels, waits: bool, python: float) -> None:
        super().__init__()
        self.device, self.forward_kernels, self.backward_kernels = device, forward, backward
        self.waits, self.python = waits, python
        self.weight = place(torch.nn.Parameter(torch.ones(1, dtype=torch.bfloat16)))

    def forward(self, x: Any) -> Any:
        self.device.host(self.python)
        result = place(_Run.apply(x, self.weight, self))
        if self.waits:
            result.sum().item()
        return result


class Model(torch.nn.Module):
    """Layers one after the other.

    Args:
        forward, backward: kernels of the whole model, spread over its layers.
        waits: each layer reads a number from the device.
        python: seconds of Python a layer.
    """

    def __init__(
        self, device: Device, layers: int, forward: Kernels, backward: Kernels, waits: bool, python: float
    ) -> None:
        super().__init__()
        parts = [_part(forward, layers), _part(backward, layers)]
        self.layers = torch.nn.ModuleList(Layer(device, parts[0], parts[1], waits, python) for _ in range(layers))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return place(x.sum())


def _part(kernels: Kernels, layers: int) -> Kernels:
    assert kernels[0] % layers == 0, "kernels are spread evenly over the layers"
    return kernels[0] // layers, kernels[1]


class Optimizer(torch.optim.SGD):
    """Launches its kernels where others compute."""

    def __init__(self, parameters: Any, device: Device, kernels: Kernels) -> None:
        super().__init__(parameters, lr=0.1)
        self.device, self.kernels = device, kernels

    def step(self, closure: Any = None) -> None:
        self.device.launch(*self.kernels, "optimizer")


class Batches(torch.utils.data.IterableDataset[Any]):
    """Batches that take the host so many seconds each."""

    def __init__(self, device: Device, count: int, seconds: float, trains: bool = True) -> None:
        self.device, self.count, self.seconds, self.trains = device, count, seconds, trains

    def __iter__(self) -> Iterator[Any]:
        for number in range(1, self.count + 1):
            if self.trains:
                self.device.arrives()
            self.device.host(self.seconds)
            yield torch.full((SAMPLES, 1), 1.0 + 1.0 / number)


class SlowFile(io.BytesIO):
    """A disk on which a checkpoint takes so long."""

    def __init__(self, device: Device, seconds: float) -> None:
        super().__init__()
        self._device, self._left = device, seconds

    def write(self, data: Any) -> int:
        self._device.host(self._left)
        self._left = 0.0
        return super().write(data)
