"""Follow tensors through a forward pass: which of them need gradients, and which are attention scores.

Inside an autograd function, activation checkpoints of the older kind among them, torch records no gradients: results do
not say whether a gradient reaches them. There this is passed on from call to call, by weak references.
"""

from __future__ import annotations

import sys
from types import CodeType
from typing import Any, Callable, Dict, List, Optional, Tuple

from trainhooks.auto.operations.op_flops import Product
from trainhooks.program_errors import until_gone
from trainhooks.protocol.places import Line

MAX_CONTEXT_FRAMES = 80  # of the stack that are searched for an autograd function or a checkpoint
_CONTEXTS = ("ctx", "context", "_ctx")  # the first argument of an autograd function's forward
_CHECKPOINTS = ("torch/utils/checkpoint.py", "activation_checkpointing/checkpointing.py")
_FUSED_GRADIENTS = "fused_linear"  # in a file's name: Liger's kernels compute them in the forward pass

# Kinds of functions on the stack.
_PLAIN, _FUNCTION, _CHECKPOINT, _FUSED = range(4)


class TensorMap:
    """Values by tensor, kept as long as the tensor lives."""

    def __init__(self) -> None:
        self._known: Dict[int, Tuple[Any, Any]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, tensor: Any) -> Any:
        found = self._known.get(id(tensor))
        return found[1] if found is not None and found[0]() is tensor else None

    def put(self, tensor: Any, value: Any) -> None:
        self._known[id(tensor)] = (until_gone(tensor, self._known, id(tensor)), value)


class GradientTracker:
    """Track which tensors need a gradient."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._derived = TensorMap()
        self._kinds: Dict[CodeType, int] = {}

    def for_call(self) -> Tuple[Callable[[Any], bool], bool]:
        """Return, for the call that has just returned, a function that returns whether a tensor needs a gradient, and
        whether the call is repeated in the backward pass."""
        inside, repeated = self._enclosing()
        if self._torch.is_grad_enabled():
            return self._requires_grad, repeated
        return (self._is_reached if inside == _FUNCTION else _never), repeated

    def add_call(self, args: Tuple[Any, ...], kwargs: Dict[str, Any], result: Any) -> None:
        """Record whether a gradient would reach the `result` of a call, if torch does not record gradients."""
        if self._torch.is_grad_enabled() or self._enclosing()[0] != _FUNCTION:
            return
        given = [*args, *kwargs.values()]
        flat = [item for value in given for item in (value if isinstance(value, (tuple, list)) else (value,))]
        if not any(map(self._is_reached, flat)):
            return
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, self._torch.Tensor) and tensor.dtype.is_floating_point:
                self._derived.put(tensor, True)

    def _requires_grad(self, value: Any) -> bool:
        return isinstance(value, self._torch.Tensor) and bool(value.requires_grad)

    def _is_reached(self, value: Any) -> bool:
        return self._requires_grad(value) or self._derived.get(value) is not None

    def _enclosing(self) -> Tuple[int, bool]:
        """Return the kind of an autograd function on the stack, and whether an activation checkpoint is on it."""
        inside, repeated = _PLAIN, False
        frame: Any = sys._getframe(1)
        for _ in range(MAX_CONTEXT_FRAMES):
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
    if is_forward and _FUSED_GRADIENTS in path:
        return _FUSED
    if path.endswith(_CHECKPOINTS):
        # The forward of its autograd function is both: one frame further out it shows that it is a checkpoint.
        return _FUNCTION if is_forward else _CHECKPOINT
    return _FUNCTION if is_forward else _PLAIN


def _never(_: Optional[Any]) -> bool:
    return False


# Attention without a fused kernel: a product of two batches, its softmax, and the product of that with the values.
# Between them the matrix of scores is scaled, masked, cast and dropped out; each of these writes it to memory again.

MIN_SCORES = 128 * 128  # positions squared: below that a fused kernel saves almost nothing
_SOFTMAX = frozenset(("softmax", "_softmax", "_safe_softmax", "softmax_", "exp", "exp_"))
_MAX_ARGUMENTS = 3  # that are searched for scores


class Scores:
    """One matrix of attention scores."""

    __slots__ = ("bytes", "flops", "place", "shape", "softmaxed", "used")

    def __init__(self, flops: int, size: int, shape: Tuple[int, int], place: Optional[Line]) -> None:
        self.flops = flops  # forward and backward
        self.bytes = size  # of all tensors that hold it
        self.shape = shape
        self.place = place
        self.softmaxed = False
        self.used = False


class Attention:
    """Follow scores through one forward pass.

    Attributes:
        flops: forward and backward, of all attention that was recognized, fused or not.
        fused: calls of a fused kernel.
    """

    def __init__(self, torch: Any) -> None:
        self._tensor = torch.Tensor
        self._followed = TensorMap()
        self.flops = 0
        self.fused = 0
        self._count = 0
        self._bytes = 0
        self._length = 0
        self._place: Optional[Line] = None

    def add_product(self, found: Product, flops: int, result: Any, factors: List[Any], place: Optional[Line]) -> None:
        """Record a product; `flops` are those of forward and backward."""
        if found.attends:
            self.flops += flops
            return
        for factor in factors:
            scores = self._followed.get(factor)
            if scores is not None and scores.softmaxed:
                self.flops += flops
                self._confirm(scores)
                return
        if found.scores and isinstance(result, self._tensor) and result.dim() > 2:
            queries, keys = int(result.shape[-2]), int(result.shape[-1])
            if queries > 1 and keys > 1:
                self._followed.put(result, Scores(flops, tensor_bytes(result), (queries, keys), place))

    def add_call(self, name: str, args: Tuple[Any, ...], kwargs: Dict[str, Any], result: Any) -> None:
        """Record any other call: results made from scores are scores."""
        if not self._followed or not isinstance(result, self._tensor):
            return
        given = args[:_MAX_ARGUMENTS] if args else (kwargs.get("input"),)
        for tensor in given:
            scores = self._followed.get(tensor)
            if scores is None:
                continue
            if result is not tensor:
                if result.numel() != tensor.numel():
                    return
                if not result._is_view():
                    scores.bytes += tensor_bytes(result)
                self._followed.put(result, scores)
            scores.softmaxed = scores.softmaxed or name in _SOFTMAX
            return

    def add_unfused(self, size: int, length: int, place: Line) -> None:
        """Count attention whose scores torch itself writes to memory."""
        if length * length >= MIN_SCORES:
            self._count += 1
            self._bytes += size
            self._length, self._place = max(self._length, length), self._place or place

    def facts(self) -> Optional[Dict[str, Any]]:
        """Return facts of the scores that were written to memory; None if there were none of at least MIN_SCORES."""
        if not self._count:
            return None
        return {"count": self._count, "bytes": self._bytes, "length": self._length, "place": str(self._place)}

    def _confirm(self, scores: Scores) -> None:
        """Count scores as attention, once they are multiplied with values."""
        if scores.used:
            return
        scores.used = True
        self.flops += scores.flops
        queries, keys = scores.shape
        if queries * keys >= MIN_SCORES:
            self._count += 1
            self._bytes += scores.bytes
            self._length, self._place = max(self._length, keys), self._place or scores.place


def tensor_bytes(tensor: Any) -> int:
    return int(tensor.numel()) * int(tensor.element_size())
