"""A training in the manner of a public program, on the simulated device: what the program itself knows is written down.

PUBLIC='{"program": "nanogpt", "hooks": true}' python -m tests.simulated_device.public_program

Any model will do: each call of a linear layer launches kernels, and so do its gradients and an optimizer's step.
"""

from __future__ import annotations

import atexit
import json
import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

VARIABLE, TRUTH = "PUBLIC", "truth.json"
FORWARD, BACKWARD, OPTIMIZER = (4, 0.0004), (8, 0.0004), (4, 0.0005)  # kernels, and seconds each; of a layer, a step


class Program:
    """What a loop tells of itself while it runs, beside its own work.

    Attributes:
        device: the simulated one.
        options: of the program.
    """

    def __init__(self, device: Any, clock: Any, options: dict[str, Any]) -> None:
        self.device, self.clock, self.options = device, clock, options
        self.losses: list[str] = []
        self.beside: list[tuple[str, int, int]] = []  # what is no part of a step
        self.steps: list[int] = []  # when each was done with, by the host

    def host(self, seconds: float) -> None:
        """Python runs so long."""
        self.device.host(seconds)

    def loss(self, value: float) -> None:
        self.losses.append(float(value).hex())

    def stepped(self) -> None:
        """An optimizer has stepped: what is launched from here on is the next step's."""
        self.steps.append(self.clock.now)
        self.device.step = len(self.steps) + 1
        if self.device.step % 100 == 0:
            from tests.simulated_device.workloads import breathe

            breathe()

    @contextmanager
    def apart(self, name: str) -> Iterator[None]:
        """An evaluation or a checkpoint."""
        began, step, self.device.step = self.clock.now, self.device.step, 0
        try:
            yield
        finally:
            self.device.step = step
            self.beside.append((name, began, self.clock.now))


def main() -> None:
    order: dict[str, Any] = json.loads(os.environ[VARIABLE])
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.urandom = random.Random(order.get("seed", 1)).randbytes  # type: ignore[assignment]
    from tests.simulated_device import begin

    device, clock = begin()
    from tests.simulated_device.install import install

    face = install(device)
    program = Program(device, clock, order.get("options", {}))
    atexit.register(lambda: _write(face, program))  # runs after all that the hooks do at the end
    if order.get("hooks", True):
        from trainhooks.auto import imports

        imports.install()
    import torch

    made = torch.cuda.Stream
    # A class, as libraries name it in their annotations.
    torch.cuda.Stream = type("Stream", (), {"__new__": lambda _, *args, **kwargs: made(*args, **kwargs)})  # type: ignore[misc]
    _compute_on(torch, device)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device.step = 1
    from tests.simulated_device.public_frameworks import LOOPS

    LOOPS[order["program"]](program)
    device.synchronize()


def _compute_on(torch: Any, device: Any) -> None:
    """Linear layers, losses and optimizers launch on the device; what gradients are wanted of lies there."""
    from tests.simulated_device.install import place

    class Kernels(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            recomputed = torch._C._current_graph_task_id() != -1
            grads = torch.is_grad_enabled() or x.requires_grad
            device.launch(*FORWARD, "backward" if recomputed else "forward" if grads or device.step else "eval")
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:  # type: ignore[override]
            device.launch(*BACKWARD, "backward")
            return gradient

    linear = torch.nn.Linear.forward
    torch.nn.Linear.forward = lambda self, x: Kernels.apply(linear(self, x))
    functional = torch.nn.functional
    for name in ("cross_entropy", "mse_loss"):
        setattr(functional, name, _placed(getattr(functional, name), place))
    marked = torch.Tensor.is_cuda.fget
    torch.Tensor.is_cuda = property(lambda self: self.requires_grad or marked(self))
    torch.Tensor.is_cpu = property(lambda self: not self.is_cuda)

    def launches(optimizer: Any, *_: Any) -> None:
        device.launch(*OPTIMIZER, "optimizer")

    sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook(launches)


def _placed(compute: Any, place: Any) -> Any:
    return lambda *args, **kwargs: place(compute(*args, **kwargs))


def _write(face: Any, program: Program) -> None:
    device = face.devices[0]
    device.finish()
    truth = {
        "losses": program.losses,
        "beside": program.beside,
        "stepped": program.steps,
        "misdeeds": face.misdeeds,
        "steps": device.ledger.of_steps(),
        "calls": face.calls,
    }
    with open(TRUTH, "w") as file:
        json.dump(truth, file)


if __name__ == "__main__":
    main()
