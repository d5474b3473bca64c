"""Run the script that is named first, with its arguments, and print what it leaves alive: tensors and modules.

Also of the tensors that were alive at the optimizer's first step: a reference that is held too long shows there, even
where the sums are right by chance. Ranks that the script spawns print the same.
"""

from __future__ import annotations

import gc
import importlib
import os
import runpy
import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.multiprocessing
from torch.optim.optimizer import register_optimizer_step_pre_hook

_first: list[Any] = []  # weak references


def _tensors() -> list[Any]:
    return [found for found in gc.get_objects() if issubclass(type(found), torch.Tensor)]


def _at_first_step(optimizer: Any, *_: object) -> None:
    if not _first:
        # A gradient gets its Python object when somebody looks at it, as the step that follows does.
        looked_at = [parameter.grad for group in optimizer.param_groups for parameter in group["params"]]
        del looked_at
        _first.extend(weakref.ref(tensor) for tensor in _tensors())


def _bytes(tensors: list[Any]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _print_living(rank: str) -> None:
    gc.collect()
    tensors = _tensors()
    modules = [found for found in gc.get_objects() if issubclass(type(found), torch.nn.Module)]
    kept = [tensor for reference in _first if (tensor := reference()) is not None]
    sums = f"{len(tensors)} tensors of {_bytes(tensors)} bytes, {len(modules)} modules"
    line = f"rank {rank}: {sums}; of the first step {len(kept)} of {len(_first)}, {_bytes(kept)} bytes\n"
    sys.stdout.flush()
    os.write(1, line.encode())  # in one call: ranks share the descriptor


def spawned(rank: int, function: Callable[..., object], *args: object) -> None:
    """Run one spawned rank and print what it leaves alive."""
    register_optimizer_step_pre_hook(_at_first_step)
    try:
        function(rank, *args)
    finally:
        _print_living(str(rank))


def main() -> None:
    """Run the script as `python script arguments` does."""
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # where a spawned rank finds this file
    spawn = vars(torch.multiprocessing)["spawn"]

    def ours(fn: Callable[..., object], args: tuple[object, ...] = (), *further: Any, **named: Any) -> object:
        launcher: Any = importlib.import_module("living")  # by the name that a spawned rank finds
        return spawn(launcher.spawned, (fn, *args), *further, **named)

    vars(torch.multiprocessing)["spawn"] = ours
    register_optimizer_step_pre_hook(_at_first_step)
    kept: dict[str, object] = {}  # its variables live until the end, as they do without this file
    try:
        kept = runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        _print_living(os.environ.get("RANK", "main"))
        kept.clear()


if __name__ == "__main__":
    main()
