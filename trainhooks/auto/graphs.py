"""Our functions are kept out of what torch.compile makes of a program."""

from __future__ import annotations

from types import FunctionType, ModuleType
from typing import Any, Callable

from trainhooks.auto import (
    configuration,
    models,
    op_attention,
    op_census,
    op_flops,
    op_look,
    op_transfers,
    op_wants,
    precision,
    repeats,
)

_OTHERS = (
    *(configuration, models, precision, repeats),
    *(op_attention, op_census, op_flops, op_look, op_transfers, op_wants),
)


def keep_out(torch: Any, *modules: ModuleType) -> None:
    """Where a compiled function breaks off and calls us, our functions run as they are; none becomes a graph."""
    try:
        frames = torch._C._dynamo.eval_frame
        if hasattr(frames, "set_code_exec_strategy"):
            skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)
            mark: Callable[[Any], None] = lambda code: frames.set_code_exec_strategy(code, skip)  # noqa: E731
        else:
            mark = frames.skip_code
    except AttributeError:  # a torch that cannot compile
        return
    for module in (*modules, *_OTHERS):
        for owner in (module, *(each for each in vars(module).values() if isinstance(each, type))):
            if getattr(owner, "__module__", module.__name__) != module.__name__:
                continue
            for function in list(vars(owner).values()):
                if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                    _mark_all(function.__code__, mark)


def _mark_all(code: Any, mark: Callable[[Any], None]) -> None:
    mark(code)
    for inner in code.co_consts:
        if hasattr(inner, "co_code"):
            _mark_all(inner, mark)
