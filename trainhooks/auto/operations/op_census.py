"""The census of one forward pass, call by call: its operations, where it waits for the device, what it copies.

Module hooks do not see `x @ w`, `F.linear` or fused attention; a mode for torch's functions sees all of them. It is on
the thread's stack during one call of the model, in one step of a run, and never where something compiles. Of tensors
only shapes, dtypes and devices are read: nothing waits for the device, and nothing is kept.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any, Dict, List, Optional, Tuple

from trainhooks.auto.operations.op_attention import Attention, GradientTracker, tensor_bytes
from trainhooks.auto.operations.op_flops import (
    CONVOLUTIONS,
    FUSED_ATTENTION,
    KNOWN_FUNCTIONS,
    Product,
    Unknown,
    argument,
    products,
    shape_of,
)
from trainhooks.device import cuda
from trainhooks.program_errors import pass_on, show
from trainhooks.protocol import calls
from trainhooks.protocol.limits import clean
from trainhooks.protocol.places import Line
from trainhooks.recording import frames

# Where the pass waits for the device, and what it copies between host and device, by lines of the program.

MAX_SENT_PLACES = 8  # places that are reported
MAX_COUNTED_PLACES = 200  # places that are counted
MAX_PIN_QUERIES = 4  # copies for which the driver is queried whether the source is pinned
MAX_PLACE_FRAMES = 60  # of the stack that are searched for the program's line

# Calls that return a number to the host, or a shape that depends on values: the host waits for the device.
_WAITING = {
    **{name: "." + name for name in calls.torch_functions(calls.TORCH_SYNCHRONIZES)},
    "__bool__": "bool()", "__int__": "int()", "__float__": "float()", "__complex__": "complex()",
    "__index__": "index()", "__array__": "numpy()", "__contains__": "in", "__format__": "format()",
    "__repr__": "repr()",
}  # fmt: skip
_COPYING = calls.torch_functions(calls.TORCH_COPIES)
INSPECTED = _COPYING.union(_WAITING, ("__getitem__", "__setitem__", "where", "repeat_interleave"))

_OWN = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep


class Transfers:
    """Count waits and copies during one forward pass."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._masks = (torch.bool, torch.uint8)
        self._passed = (_OWN, os.path.dirname(os.path.abspath(torch.__file__)) + os.sep)
        self._names: Dict[str, str] = {}
        self._waits: Dict[Line, int] = {}
        self._copies: Dict[Line, int] = {}  # bytes
        self._pin_queries = 0
        self._pageable = 0  # bytes of the queried copies: those from pageable memory, and all (`_queried`)
        self._queried = 0
        self.h2d = self.h2d_calls = self.d2h = self.d2h_calls = 0

    def add_call(self, name: str, args: Tuple[Any, ...], kwargs: Dict[str, Any], result: Any) -> None:
        """Record a call of torch whose name is in INSPECTED."""
        if name in _COPYING:
            self._copied(name, args, kwargs, result)
        elif self._waits_in(name, args, kwargs):
            self._waited(_WAITING.get(name) or ("[mask]" if name.endswith("item__") else "." + name))

    def _waits_in(self, name: str, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> bool:
        tensor = self._torch.Tensor
        given = args[0] if args else kwargs.get("input")
        if name == "__contains__" and len(args) > 1 and isinstance(args[1], tensor):
            return bool(args[1].is_cuda)
        if not (isinstance(given, tensor) and given.is_cuda):
            return False
        if name == "where":
            return len(args) + len(kwargs) == 1
        if name == "repeat_interleave":
            repeats = args[1] if len(args) > 1 else kwargs.get("repeats", given)
            return isinstance(repeats, tensor) and kwargs.get("output_size") is None
        if name in ("__getitem__", "__setitem__"):
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            if not any(isinstance(item, tensor) and item.dim() and item.dtype in self._masks for item in index):
                return False
            # Setting one number where a mask is true needs no shape.
            value = args[2] if name == "__setitem__" else None
            return name == "__getitem__" or (isinstance(value, tensor) and value.numel() != 1)
        return True

    def _waited(self, call: str) -> None:
        key = self.place()._replace(call=call)
        if key in self._waits or len(self._waits) < MAX_COUNTED_PLACES:
            self._waits[key] = self._waits.get(key, 0) + 1

    def _copied(self, name: str, args: Tuple[Any, ...], kwargs: Dict[str, Any], result: Any) -> None:
        tensor = self._torch.Tensor
        if name in ("tensor", "as_tensor"):  # from Python's numbers, or an array
            source = args[0] if args else None
            if isinstance(result, tensor) and result.is_cuda and not (isinstance(source, tensor) and source.is_cuda):
                self._to_device(result, None)
            return
        if name == "copy_":
            target, source = args[0], args[1] if len(args) > 1 else kwargs.get("src")
            on_device: Optional[bool] = bool(target.is_cuda)
        else:
            source = args[0] if args else None
            on_device = {"cuda": True, "cpu": False}.get(name) if name != "to" else self._target(args, kwargs)
        if not isinstance(source, tensor) or on_device is None or bool(source.is_cuda) == on_device:
            return
        if on_device:
            self._to_device(source, source)
            return
        self.d2h += tensor_bytes(source)
        self.d2h_calls += 1
        self._from_device(source)
        if not (kwargs.get("non_blocking") or (name == "copy_" and len(args) > 2 and args[2])):
            self._waited("." + name)

    def _target(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Optional[bool]:
        """Return whether `.to` copies to the device; None if it copies nothing."""
        torch = self._torch
        for target in (*args[1:2], kwargs.get("device"), kwargs.get("other")):
            if isinstance(target, torch.Tensor):
                return bool(target.is_cuda)
            if isinstance(target, (str, torch.device)):
                return str(target).partition(":")[0] not in ("cpu", "meta")
            if type(target) is int:
                return True
        return None

    def _to_device(self, moved: Any, source: Any) -> None:
        size = tensor_bytes(moved)
        self.h2d += size
        self.h2d_calls += 1
        if self._pin_queries < MAX_PIN_QUERIES and (cuda.started_cuda() is None or cuda.is_quiet()):
            self._pin_queries += 1
            self._queried += size
            self._pageable += size if source is None or not source.is_pinned() else 0
        self._from_device(moved)

    def _from_device(self, moved: Any) -> None:
        place = self.place()
        if place in self._copies or len(self._copies) < MAX_COUNTED_PLACES:
            self._copies[place] = self._copies.get(place, 0) + tensor_bytes(moved)

    def place(self) -> Line:
        """Return the innermost line outside torch and trainhooks; "?" if there is none."""
        frame = sys._getframe(1)
        for _ in range(MAX_PLACE_FRAMES):
            code = frame.f_code
            path = code.co_filename
            if not path.startswith(self._passed) and not path.startswith("<"):
                name = self._names.get(path)
                if name is None:
                    inside = os.sep.join(path.split(os.sep)[-2:]) if "-packages" + os.sep in path else path
                    name = self._names[path] = inside if inside is not path else frames._short(path)
                return Line(name, frame.f_lineno or 0)
            if frame.f_back is None:
                break
            frame = frame.f_back
        return Line("?", 0)

    def waits(self) -> List[Dict[str, Any]]:
        """Return the calls that wait for the device, the most frequent first."""
        rows = sorted(self._waits.items(), key=lambda row: -row[1])[:MAX_SENT_PLACES]
        return [{"place": str(line), "call": line.call, "count": count} for line, count in rows]

    def copies(self) -> Dict[str, Any]:
        """Return what was copied. The pageable share is that of the first copies."""
        pageable = self.h2d * self._pageable // self._queried if self._queried else 0
        lines = sorted(self._copies, key=lambda line: -self._copies[line])[:MAX_SENT_PLACES]
        return {
            "h2d": self.h2d,
            "h2d_pageable": pageable,
            "h2d_calls": self.h2d_calls,
            "d2h": self.d2h,
            "d2h_calls": self.d2h_calls,
            "places": [str(line) for line in lines],
        }


# The census.

# Properties and queries, which start no kernel; what makes views shows in its results.
_PROPERTIES = frozenset(("__get__", "__set__", "__delete__"))
_NO_LAUNCH = frozenset((
    "empty", "empty_like", "new_empty", "empty_strided", "requires_grad_", "detach_", "_set_grad_enabled",
))  # fmt: skip
_SEVERAL = {"multi_head_attention_forward": 8, "cross_entropy": 2, "lstm": 4, "gru": 4}  # kernels of one function
_IN_PLACE = frozenset(("__iadd__", "__isub__", "__imul__", "__itruediv__", "__ipow__", "__iand__", "__ior__"))
_MULTIPLE = {"bfloat16": 8, "float16": 8, "float32": 4}  # elements that tensor cores take at a time
MIN_DIMENSION = 64  # of both other dimensions; below that padding the third one gains nothing
# Packages with kernels that no function of torch starts, as their autograd functions name them.
_UNSEEN = frozenset((
    "flash_attn", "flash_attn_interface", "xformers", "mamba_ssm", "transformer_engine", "fla", "megablocks",
    "grouped_gemm", "natten", "sageattention", "scattermoe", "spconv", "torchsparse", "MinkowskiEngine",
))  # fmt: skip
# Names of operators that others register with torch, and that compute products.
_LIKE_A_PRODUCT = re.compile(
    r"attn|attention|linear|conv|gem[mv]|matmul|scan|moe|expert|lstm|gru|(?:^|_)[a-z]?mm(?:_|$)|mha"
)


class Census:
    """The operations, waits and copies of one forward pass.

    Attributes:
        open: whether calls are recorded.
        failed: why nothing is reported of this pass; None if it is.
        unknown: why its floating point operations are unknown; None if they are known.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.open = True
        self.failed: Optional[str] = None
        self.unknown: Optional[str] = None
        self._gradients = GradientTracker(torch)
        self._attention = Attention(torch)
        self._transfers = Transfers(torch)
        self._calls = self._launches = 0
        self._counts_all = True  # no other package's kernels were started beside those that were counted
        self._forward = self._backward = self._recompute = 0
        self._by_dtype: Dict[str, int] = {}
        self._misaligned: Dict[Tuple[int, int, int], int] = {}
        self._conv = self._conv_flops = self._channels_last = 0
        self._largest: Tuple[int, str] = (0, "")

    def add_call(self, func: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], result: Any) -> None:
        """Record a call of torch that has returned. Never raises."""
        try:
            name = getattr(func, "__name__", "")
            if name not in _PROPERTIES:
                self._add_call(name.partition(".")[0], func, args, kwargs, result)
        except Exception as error:  # a tensor of a foreign class may raise anything
            pass_on(error)
            self.open = False
            self.failed = type(error).__name__
            show(error)

    def _add_call(self, name: str, func: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], result: Any) -> None:
        self._calls += 1
        self._launches += self._count_launches(name, args, result)
        if name in INSPECTED:
            self._transfers.add_call(name, args, kwargs, result)
        self._find_unseen(name, func, args)
        try:
            found = products(name, args, kwargs, result)
        except Unknown as error:
            self.unknown = self.unknown or str(error)
            found = []
        if not found:
            self._attention.add_call(name, args, kwargs, result)
            self._gradients.add_call(args, kwargs, result)
            return
        for product in found:
            self._count(product, result)
        if name in CONVOLUTIONS:
            self._add_convolution(args, kwargs, found[0].flops)
        elif name in FUSED_ATTENTION:
            self._attention.fused += 1
        elif name == "multi_head_attention_forward":
            self._multi_head(args, kwargs)
        self._gradients.add_call(args, kwargs, result)

    def _count_launches(self, name: str, args: Tuple[Any, ...], result: Any) -> int:
        """Estimate how many kernels the call has started."""
        first = result[0] if isinstance(result, (tuple, list)) and result else result
        if not isinstance(first, self._torch.Tensor) or name in _NO_LAUNCH:
            return 0
        if args and first is args[0]:  # in place, or there was nothing to do
            return int(name in _IN_PLACE or (name.endswith("_") and not name.startswith("__")))
        return _SEVERAL.get(name) or int(not first._is_view())

    def _count(self, found: Product, result: Any) -> None:
        needs_grad, repeated = self._gradients.for_call()
        backward = sum(flops for flops, factors in found.backward if any(map(needs_grad, factors)))
        self._forward += found.flops
        self._backward += backward
        if repeated:
            self._recompute += found.flops
        factors = [factor for _, pair in found.backward for factor in pair if isinstance(factor, self._torch.Tensor)]
        dtype = self._dtype(factors[0])
        flops = found.flops + backward
        self._by_dtype[dtype] = self._by_dtype.get(dtype, 0) + flops
        self._attention.add_product(found, flops, result, factors, self._transfers.place() if found.scores else None)
        if found.shape is not None and _is_misaligned(found.shape, _MULTIPLE.get(dtype)):
            self._misaligned[found.shape] = self._misaligned.get(found.shape, 0) + flops
        if self._transformed():
            self.unknown = self.unknown or "torch.func transforms the model: its shapes are partial"
        for factor in factors:
            if type(factor).__name__ == "DTensor" and factor.device_mesh.size() > 1:
                self.unknown = self.unknown or "products are split among ranks (DTensor)"

    def _transformed(self) -> bool:
        """Return whether torch.func's vmap or grad is active."""
        functorch = getattr(self._torch._C, "_functorch", None)
        level = getattr(functorch, "maybe_current_level", None)
        return level is not None and level() is not None

    def _dtype(self, tensor: Any) -> str:
        """Return the dtype that the product is computed in."""
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

    def _add_convolution(self, args: Tuple[Any, ...], kwargs: Dict[str, Any], flops: int) -> None:
        given, weight = (argument((args, kwargs, None), place, key) for place, key in ((0, "input"), (1, "weight")))
        self._conv += 1
        self._conv_flops += flops
        if given.dim() == 4 and given.shape[1] > 1:
            self._channels_last += int(given.is_contiguous(memory_format=self._torch.channels_last))
        if flops > self._largest[0]:
            sizes = ["x".join(map(str, shape_of(tensor))) for tensor in (given, weight)]
            self._largest = (flops, " by ".join(sizes))

    def _multi_head(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> None:
        """Count `nn.MultiheadAttention`: unfused if it returns its weights, as by default."""
        call = (args, kwargs, None)
        if not (args[15] if len(args) > 15 else kwargs.get("need_weights", True)):
            self._attention.fused += 1
            return
        query, heads = argument(call, 0, "query"), int(argument(call, 4, "num_heads"))
        queries, keys = int(query.shape[0]), int(argument(call, 1, "key").shape[0])
        batch = int(query.shape[1]) if query.dim() == 3 else 1
        tensors = 3 if argument(call, 10, "dropout_p") else 2
        size = tensors * batch * heads * queries * keys * int(query.element_size())
        self._attention.add_unfused(size, keys, self._transfers.place())

    def _find_unseen(self, name: str, func: Any, args: Tuple[Any, ...]) -> None:
        """Detect kernels of other packages, whose operations are unknown."""
        namespace = getattr(func, "namespace", None)  # of an operator that was registered with torch
        module = str(getattr(func, "__module__", ""))
        if namespace is None and module.startswith("torch._ops."):
            namespace = module.rpartition(".")[2]
        if namespace not in (None, "aten") and name not in KNOWN_FUNCTIONS and _LIKE_A_PRODUCT.search(name):
            self.unknown = self.unknown or f"operations of {namespace}::{name} unknown"
            return
        if name == "grad" and module == "torch.autograd":
            self.unknown = self.unknown or "gradients are computed inside the model: their operations are not seen"
            return
        self._inspect_grad_fn(args[0] if args else None)

    def _inspect_grad_fn(self, value: Any) -> None:
        """Find autograd functions of other packages, which may start kernels that no function of torch shows."""
        # A view may have to make its own `grad_fn` anew, and warn of what was done to it.
        grad_fn = value.grad_fn if isinstance(value, self._torch.Tensor) and not value._is_view() else None
        if grad_fn is None:
            return
        package = getattr(getattr(grad_fn, "_forward_cls", None), "__module__", "torch").partition(".")[0]
        self._counts_all = self._counts_all and package == "torch"
        if package in _UNSEEN and not (package.startswith("flash_attn") and self._attention.fused):
            self.unknown = self.unknown or f"operations of {package} not seen"

    def model_returned(self, result: Any) -> None:
        """Inspect the `result` of the model's call."""
        values = result.values() if hasattr(result, "values") and hasattr(result, "get") else (result,)
        for value in list(values)[:MAX_SENT_PLACES]:
            self._inspect_grad_fn(value[0] if isinstance(value, (tuple, list)) and value else value)

    def facts(self, inputs: Dict[str, Any]) -> Dict[str, Any]:
        """Return the facts of the pass, with those of its inputs."""
        flops = self._forward + self._backward
        facts: Dict[str, Any] = {
            "calls": self._calls,
            **({"launches": self._launches} if self._counts_all else {}),
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
            "misaligned": self._misalignment(flops),
        }
        if self._recompute:
            facts["flops_recompute"] = self._recompute
        if self._transfers.h2d_calls or self._transfers.d2h_calls:
            facts["copies"] = self._transfers.copies()
        unfused = self._attention.facts()
        if unfused is not None:
            facts["attention_written_out"] = unfused
        unknown = self.unknown or (None if flops else "no matrix product was seen")
        if unknown:
            facts["flops_unknown"] = clean(unknown)
        return facts

    def _tf32(self) -> Dict[str, bool]:
        """Return whether convolutions in fp32 may run as TF32, a setting of cuDNN."""
        try:
            return {"tf32": bool(self._torch.backends.cudnn.allow_tf32)}
        except RuntimeError:  # it was set by torch's newer names, and the older one refuses
            return {}

    def _misalignment(self, flops: int) -> Dict[str, Any]:
        rows: List[Tuple[int, int, int]] = sorted(self._misaligned, key=lambda row: -self._misaligned[row])
        share = sum(self._misaligned.values()) / flops if flops else 0.0
        return {"share": round(share, 4), "shapes": ["x".join(map(str, row)) for row in rows[:MAX_SENT_PLACES]]}


def _is_misaligned(shape: Tuple[int, int, int], multiple: Optional[int]) -> bool:
    """Return whether a row length is no multiple of what tensor cores take at a time, while all sizes are large.

    The number of rows does not matter: texts of odd lengths give an odd number, and each row is still aligned.
    """
    if not multiple:
        return False
    m, n, k = shape
    return any(size % multiple and min(others) >= MIN_DIMENSION for size, others in ((n, (m, k)), (k, (m, n))))
