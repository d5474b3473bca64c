"""One early forward pass is looked at call by call: its operations, where it waits for the device, what it copies.

Module hooks do not see `x @ w`, `F.linear` or fused attention; a mode for torch's functions sees all of them. It stands
on the thread's stack strictly around one call of the model, in one step of a run, and is never there where something
compiles. Of tensors only shapes, dtypes and places are read: nothing waits for the device, and nothing is kept.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any, Dict, List, Optional, Tuple

from trainhooks import session
from trainhooks.auto.op_attention import Attention
from trainhooks.auto.op_flops import (
    CONVOLUTIONS,
    FUSED_ATTENTION,
    KNOWN,
    Product,
    Unknown,
    argument,
    products,
    shape_of,
)
from trainhooks.auto.op_transfers import LOOKED_AT, MAX_ROWS, Transfers
from trainhooks.auto.op_wants import Wants
from trainhooks.events import clean

# Properties and questions, which start no kernel; what makes views is told by its results.
_NO_CALLS = frozenset(("__get__", "__set__", "__delete__"))
_NO_LAUNCH = frozenset((
    "empty", "empty_like", "new_empty", "empty_strided", "requires_grad_", "detach_", "_set_grad_enabled",
))  # fmt: skip
_SEVERAL = {"multi_head_attention_forward": 8, "cross_entropy": 2, "lstm": 4, "gru": 4}  # kernels of one function
_IN_PLACE = frozenset(("__iadd__", "__isub__", "__imul__", "__itruediv__", "__ipow__", "__iand__", "__ior__"))
_MULTIPLE = {"bfloat16": 8, "float16": 8, "float32": 4}  # elements that tensor cores take at a time
WIDE = 64  # what both other dimensions have to be for a third one to be worth padding
# What computes in kernels that no function of torch starts, by the package of its autograd functions.
_UNSEEN = frozenset((
    "flash_attn", "flash_attn_interface", "xformers", "mamba_ssm", "transformer_engine", "fla", "megablocks",
    "grouped_gemm", "natten", "sageattention", "scattermoe", "spconv", "torchsparse", "MinkowskiEngine",
))  # fmt: skip
# And by the names of the operators that others register with torch.
_LIKE_A_PRODUCT = re.compile(
    r"attn|attention|linear|conv|gem[mv]|matmul|scan|moe|expert|lstm|gru|(?:^|_)[a-z]?mm(?:_|$)|mha"
)


class Census:
    """What one forward pass does.

    Attributes:
        failed: something was not foreseen; nothing is told of this pass.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.open = True
        self.failed: Optional[str] = None
        self.unknown: Optional[str] = None
        self._wants = Wants(torch)
        self._attention = Attention(torch)
        self._transfers = Transfers(torch)
        self._calls = self._launches = 0
        self._whole = True  # no kernels of somebody else's were started beside those that were counted
        self._forward = self._backward = self._recompute = 0
        self._by_dtype: Dict[str, int] = {}
        self._misaligned: Dict[Tuple[int, int, int], int] = {}
        self._conv = self._conv_flops = self._channels_last = 0
        self._largest: Tuple[int, str] = (0, "")

    def saw(self, func: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], result: Any) -> None:
        """One call of torch has returned. Never raises."""
        try:
            name = getattr(func, "__name__", "")
            if name not in _NO_CALLS:
                self._saw(name.partition(".")[0], func, args, kwargs, result)
        except Exception as error:  # a tensor of a foreign class may lack anything
            self.open = False
            self.failed = type(error).__name__
            if os.environ.get(session.DEBUG_VARIABLE):
                sys.excepthook(*sys.exc_info())

    def _saw(self, name: str, func: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], result: Any) -> None:
        self._calls += 1
        self._launches += self._launched(name, args, result)
        if name in LOOKED_AT:
            self._transfers.saw(name, args, kwargs, result)
        self._look_for_unseen(name, func, args)
        try:
            found = products(name, args, kwargs, result)
        except Unknown as error:
            self.unknown = self.unknown or str(error)
            found = []
        if not found:
            self._attention.passed(name, args, kwargs, result)
            self._wants.passed(args, kwargs, result)
            return
        for each in found:
            self._count(name, each, result)
        if name in CONVOLUTIONS:
            self._convolved(args, kwargs, found[0].flops)
        elif name in FUSED_ATTENTION:
            self._attention.fused += 1
        elif name == "multi_head_attention_forward":
            self._multi_head(args, kwargs)
        self._wants.passed(args, kwargs, result)

    def _launched(self, name: str, args: Tuple[Any, ...], result: Any) -> int:
        """How many kernels the call has started, roughly."""
        first = result[0] if isinstance(result, (tuple, list)) and result else result
        if not isinstance(first, self._torch.Tensor) or name in _NO_LAUNCH:
            return 0
        if args and first is args[0]:  # in place, or nothing was to be done
            return int(name in _IN_PLACE or (name.endswith("_") and not name.startswith("__")))
        return _SEVERAL.get(name) or int(not first._is_view())

    def _count(self, name: str, found: Product, result: Any) -> None:
        wants, repeated = self._wants.around()
        backward = sum(flops for flops, factors in found.backward if any(map(wants, factors)))
        self._forward += found.flops
        self._backward += backward
        if repeated:
            self._recompute += found.flops
        factors = [factor for _, each in found.backward for factor in each if isinstance(factor, self._torch.Tensor)]
        dtype = self._dtype(factors[0])
        whole = found.flops + backward
        self._by_dtype[dtype] = self._by_dtype.get(dtype, 0) + whole
        self._attention.multiplied(found, whole, result, factors, self._transfers.place() if found.scores else "")
        if found.shape is not None and _is_misaligned(found.shape, _MULTIPLE.get(dtype)):
            self._misaligned[found.shape] = self._misaligned.get(found.shape, 0) + whole
        if self._transformed():
            self.unknown = self.unknown or "torch.func transforms the model: its shapes are not whole"
        for each in factors:
            if type(each).__name__ == "DTensor" and each.device_mesh.size() > 1:
                self.unknown = self.unknown or "the work on a product is shared out among ranks (DTensor)"

    def _transformed(self) -> bool:
        """Whether torch.func's vmap or grad is at work."""
        functorch = getattr(self._torch._C, "_functorch", None)
        level = getattr(functorch, "maybe_current_level", None)
        return level is not None and level() is not None

    def _dtype(self, tensor: Any) -> str:
        """What the product is computed in."""
        torch, kind = self._torch, tensor.device.type
        dtype = tensor.dtype
        if dtype.is_floating_point and dtype is not torch.float64:
            try:
                if torch.is_autocast_enabled(kind):
                    dtype = torch.get_autocast_dtype(kind)
            except (TypeError, RuntimeError):  # before torch 2.4 of CUDA alone; or a device without autocast
                if kind == "cuda" and torch.is_autocast_enabled():
                    dtype = torch.get_autocast_gpu_dtype()
        return str(dtype).rpartition(".")[2]

    def _convolved(self, args: Tuple[Any, ...], kwargs: Dict[str, Any], flops: int) -> None:
        given, weight = (argument((args, kwargs, None), place, key) for place, key in ((0, "input"), (1, "weight")))
        self._conv += 1
        self._conv_flops += flops
        if given.dim() == 4 and given.shape[1] > 1:
            self._channels_last += int(given.is_contiguous(memory_format=self._torch.channels_last))
        if flops > self._largest[0]:
            sizes = ["x".join(map(str, shape_of(each))) for each in (given, weight)]
            self._largest = (flops, " by ".join(sizes))

    def _multi_head(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> None:
        """Asked for its weights, torch's own attention writes them out; it is so by default."""
        call = (args, kwargs, None)
        if not (args[15] if len(args) > 15 else kwargs.get("need_weights", True)):
            self._attention.fused += 1
            return
        query, heads = argument(call, 0, "query"), int(argument(call, 4, "num_heads"))
        queries, keys = int(query.shape[0]), int(argument(call, 1, "key").shape[0])
        batch = int(query.shape[1]) if query.dim() == 3 else 1
        tensors = 3 if argument(call, 10, "dropout_p") else 2
        size = tensors * batch * heads * queries * keys * int(query.element_size())
        self._attention.whole(size, keys, self._transfers.place())

    def _look_for_unseen(self, name: str, func: Any, args: Tuple[Any, ...]) -> None:
        """Kernels of other packages: what they compute is not known."""
        namespace = getattr(func, "namespace", None)  # of an operator that was registered with torch
        module = str(getattr(func, "__module__", ""))
        if namespace is None and module.startswith("torch._ops."):
            namespace = module.rpartition(".")[2]
        if namespace not in (None, "aten") and name not in KNOWN and _LIKE_A_PRODUCT.search(name):
            self.unknown = self.unknown or f"what {namespace}::{name} computes is not known"
            return
        if name == "grad" and module == "torch.autograd":
            self.unknown = self.unknown or "gradients are asked for inside the model: their operations are not seen"
            return
        self._look_at_maker(args[0] if args else None)

    def _look_at_maker(self, value: Any) -> None:
        """An autograd function of somebody else's may start kernels of its own, which no function of torch's shows."""
        # A view may have to make its own anew, and complain of what was done to it.
        made_by = value.grad_fn if isinstance(value, self._torch.Tensor) and not value._is_view() else None
        if made_by is None:
            return
        package = getattr(getattr(made_by, "_forward_cls", None), "__module__", "torch").partition(".")[0]
        self._whole = self._whole and package == "torch"
        if package in _UNSEEN and not (package.startswith("flash_attn") and self._attention.fused):
            self.unknown = self.unknown or f"what {package} computes is not seen"

    def returned(self, result: Any) -> None:
        """The model's call has returned this."""
        values = result.values() if hasattr(result, "values") and hasattr(result, "get") else (result,)
        for each in list(values)[:MAX_ROWS]:
            self._look_at_maker(each[0] if isinstance(each, (tuple, list)) and each else each)

    def facts(self, inputs: Dict[str, Any]) -> Dict[str, Any]:
        """What is told of the pass, with what is known of its inputs."""
        whole = self._forward + self._backward
        facts: Dict[str, Any] = {
            "calls": self._calls,
            **({"launches": self._launches} if self._whole else {}),
            "flops_forward": self._forward,
            "flops_backward": self._backward,
            "flops_attention": self._attention.flops,
            "flops_by_dtype": self._by_dtype,
            **inputs,
            "sdpa": self._attention.fused,
            "syncs": self._transfers.waits(),
            "conv": {
                "count": self._conv,
                "share": round(self._conv_flops / self._forward, 4) if self._forward else 0.0,
                "channels_last": self._channels_last,
                **({"largest": self._largest[1], **self._tf32()} if self._conv else {}),
            },
            "misaligned": self._misalignment(whole),
        }
        if self._recompute:
            facts["flops_recompute"] = self._recompute
        if self._transfers.h2d_calls or self._transfers.d2h_calls:
            facts["copies"] = self._transfers.copies()
        written = self._attention.told()
        if written is not None:
            facts["attention_written_out"] = written
        unknown = self.unknown or (None if whole else "no matrix product was seen")
        if unknown:
            facts["flops_unknown"] = clean(unknown)
        return facts

    def _tf32(self) -> Dict[str, bool]:
        """Whether convolutions in fp32 may run as TF32: a setting of cuDNN's own."""
        try:
            return {"tf32": bool(self._torch.backends.cudnn.allow_tf32)}
        except RuntimeError:  # set by torch's newer names, which the older one does not tell of
            return {}

    def _misalignment(self, whole: int) -> Dict[str, Any]:
        rows: List[Tuple[int, int, int]] = sorted(self._misaligned, key=lambda row: -self._misaligned[row])
        share = sum(self._misaligned.values()) / whole if whole else 0.0
        return {"share": round(share, 4), "shapes": ["x".join(map(str, row)) for row in rows[:MAX_ROWS]]}


def _is_misaligned(shape: Tuple[int, int, int], multiple: Optional[int]) -> bool:
    """Whether the length of a row is no multiple of what tensor cores take at a time, while all sizes are wide.

    How many rows there are does not matter: texts of odd lengths make an odd number, and each row begins as it should.
    """
    if not multiple:
        return False
    m, n, k = shape
    return any(size % multiple and min(others) >= WIDE for size, others in ((n, (m, k)), (k, (m, n))))
