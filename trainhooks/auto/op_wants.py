"""Which tensors a gradient will be asked for, also where torch does not say so while the forward pass runs.

Inside an autograd function, activation checkpoints of the older kind among them, nothing is recorded: results do not
say whether a gradient reaches them. There it is passed on from call to call, by weak references.
"""

from __future__ import annotations

import sys
import weakref
from types import CodeType
from typing import Any, Callable, Dict, Optional, Tuple

MAX_FRAMES = 80
_CONTEXTS = ("ctx", "context", "_ctx")  # the first argument of an autograd function's forward
_CHECKPOINTS = ("torch/utils/checkpoint.py", "activation_checkpointing/checkpointing.py")
_GRADIENTS_AT_ONCE = "fused_linear"  # in a file's name: Liger's kernels compute them in the forward pass

_PLAIN, _FUNCTION, _CHECKPOINT, _AT_ONCE = range(4)


class Followed:
    """Something known of tensors, as long as they live."""

    def __init__(self) -> None:
        self._known: Dict[int, Tuple[Any, Any]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, tensor: Any) -> Any:
        found = self._known.get(id(tensor))
        return found[1] if found is not None and found[0]() is tensor else None

    def put(self, tensor: Any, what: Any) -> None:
        key, known = id(tensor), self._known

        def forget(gone: Any) -> None:
            if key in known and known[key][0] is gone:  # else another tensor has taken its place
                del known[key]

        known[key] = (weakref.ref(tensor, forget), what)


class Wants:
    """Made with torch at hand."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._derived = Followed()
        self._kinds: Dict[CodeType, int] = {}

    def around(self) -> Tuple[Callable[[Any], bool], bool]:
        """For the call that has just returned: what tells whether a tensor wants a gradient, and whether the call is
        made again in the backward pass."""
        inside, repeated = self._around()
        if self._torch.is_grad_enabled():
            return self._says, repeated
        return (self._is_reached if inside == _FUNCTION else _never), repeated

    def passed(self, args: Tuple[Any, ...], kwargs: Dict[str, Any], result: Any) -> None:
        """A call has made `result`: where nothing is recorded, it is kept in mind what a gradient would reach."""
        if self._torch.is_grad_enabled() or self._around()[0] != _FUNCTION:
            return
        given = [*args, *kwargs.values()]
        flat = [each for one in given for each in (one if isinstance(one, (tuple, list)) else (one,))]
        if not any(map(self._is_reached, flat)):
            return
        for each in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(each, self._torch.Tensor) and each.dtype.is_floating_point:
                self._derived.put(each, True)

    def _says(self, value: Any) -> bool:
        return isinstance(value, self._torch.Tensor) and bool(value.requires_grad)

    def _is_reached(self, value: Any) -> bool:
        return self._says(value) or self._derived.get(value) is not None

    def _around(self) -> Tuple[int, bool]:
        """Whether an autograd function's forward is on the stack, and whether an activation checkpoint is."""
        inside, repeated = _PLAIN, False
        frame: Any = sys._getframe(1)
        for _ in range(MAX_FRAMES):
            if frame is None:
                break
            kind = self._kinds.get(frame.f_code)
            if kind is None:
                kind = self._kinds[frame.f_code] = _kind(frame.f_code)
            if kind == _CHECKPOINT:
                repeated = True
            elif kind and inside == _PLAIN:
                inside = kind
            frame = frame.f_back
        return inside, repeated


def _kind(code: CodeType) -> int:
    path = code.co_filename.replace("\\", "/")
    is_forward = code.co_name == "forward" and code.co_varnames[:1] and code.co_varnames[0] in _CONTEXTS
    if is_forward and _GRADIENTS_AT_ONCE in path:
        return _AT_ONCE
    if path.endswith(_CHECKPOINTS):
        # Its autograd function's forward is both: that it is a checkpoint shows one frame further out.
        return _FUNCTION if is_forward else _CHECKPOINT
    return _FUNCTION if is_forward else _PLAIN


def _never(_: Optional[Any]) -> bool:
    return False
