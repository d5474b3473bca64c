"""The real torch, eager, on the simulated device: each operation that reaches the dispatcher launches its kernels.

Tensors on the device are those that torch calls meta: they have shapes, dtypes and gradients, and no values. They say
that they are on `cuda:0`, and torch's own code makes every operation of a step, backward and optimizer included, as it
would on a GPU. How long a kernel takes is worked out from what it is given (`roofline`), so what makes a program slow
here is what would make it slow there. A value that is read costs the wait, and is a number that means nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.simulated_device import roofline
from tests.simulated_device.allocator import Allocator, Block
from tests.simulated_device.cuda import Face, by_hooks
from tests.simulated_device.device import MEMORY, Device
from tests.simulated_device.roofline import Kernel

CUDA, META = torch.device("cuda", 0), torch.device("meta")
COPIED_BY_HOST = 10e9  # bytes a second of memory that the host copies
_PINNED = "_simulated_pinned"
_PRODUCTS = {"mm": 0, "addmm": 1, "bmm": 0, "baddbmm": 1}  # where the first factor stands
_MADE = ("empty", "detach", "alias", "lift_fresh", "_record_function", "is_same_size", "new_empty", "_unsafe_view")
# Without these, atomics; deterministic algorithms sort first, and take this many times as long.
_SCATTERED, _SORTED = ("index_add", "scatter_add", "embedding_dense_backward", "index_put"), 10.0
_FUSED = (
    "void at::native::multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float> >(int)"
)
# What the profiler calls them, of what is bound by memory.
_NAMES = {
    "_softmax": "void softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 11, false, false>(int)",
    "_softmax_backward_data": "void softmax_warp_backward<c10::BFloat16, c10::BFloat16, float, 11, false, false>(int)",
    "sum": "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<c10::BFloat16, float, unsigned int> >(int)",
    "native_layer_norm": "void at::native::vectorized_layer_norm_kernel<c10::BFloat16, float, false>(int)",
}
_OPTIMIZER = 6.0  # times that each byte of weights, gradients and both moments passes in a fused step, divided by four


class Eager(TorchDispatchMode):
    """Stands around a program.

    Args:
        expandable: whether segments of memory grow (PYTORCH_ALLOC_CONF).
        exact: memory is given back as soon as nobody holds it, not in portions: for what hangs on the allocator.
    """

    def __init__(self, device: Device, face: Face, expandable: bool = False, exact: bool = False) -> None:
        super().__init__()
        self._device, self._face = device, face
        self._memory = device.memory = Allocator(MEMORY, expandable, device._allocates)
        device.swept = self._sweep
        self._live: dict[int, tuple[Any, Block | int]] = {}
        self._every, self._taken = (1 if exact else 64), 0
        self._numbers = itertools.count(1)
        self._known: dict[
            Any, Any
        ] = {}  # operation and what it was given -> whether it gives several, and what they are
        self._library: Any = None
        self.inside = False
        self.host = device.clock.pass_by

    def __enter__(self) -> Any:
        _stand_in(self)
        self._library = torch.library.Library("aten", "IMPL")
        fused = lambda *args, **kwargs: _Fused.apply(self, *_attends(*args, **kwargs))  # noqa: E731
        self._library.impl("scaled_dot_product_attention", fused, "AutogradMeta")
        return super().__enter__()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.inside = True  # torch's own code for shapes is Python, too, and asks where a tensor is
        try:
            return self._dispatch(func, args, dict(kwargs or {}))
        finally:
            self.inside = False

    def _dispatch(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        name = func._schema.name.partition("::")[2]
        if name == "_local_scalar_dense" and args[0].is_meta:
            return self._read(args[0])
        if name in ("_to_copy", "copy_") and (crossed := self._cross(name, args, kwargs)) is not None:
            return crossed
        made_there = kwargs.get("device")
        if made_there is not None and made_there.type == "cuda":
            kwargs["device"] = META
        given = _flat(args)
        if not any(each.is_meta for each in given) and kwargs.get("device") != META:
            return func(*args, **kwargs)
        if name.startswith("_fused_"):  # there is none but on a GPU; it changes what it is given
            for each in given:
                torch._C._increment_version([each])
            self._run(name, func, args, given, given)
            return None
        result = self._made(func, name, args, kwargs)
        if name == "convolution" and any(map(_lies_well, args[:2])) and result.dim() == 4:
            result = torch.empty_like(result, memory_format=torch.channels_last)  # as cuDNN gives it; meta forgets it
        self._run(name, func, args, given, result)
        return result

    def _made(self, func: Any, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """What the operation gives. Torch works its shape out in Python; for what was asked before that is known."""
        if func.is_view or name.startswith(_MADE):
            return func(*args, **kwargs)
        schema = func._schema
        if schema.is_mutable:
            if name.endswith("_") and (not schema.returns or schema.returns[0].alias_info is not None):
                return args[0] if schema.returns else None
            return func(*args, **kwargs)
        try:
            key = (func, _key(args), _key(kwargs.items()))
            known = self._known.get(key)
        except TypeError:  # an argument that is no key
            return func(*args, **kwargs)
        if known is None:
            result = func(*args, **kwargs)
            several = isinstance(result, (tuple, list))
            parts = result if several else (result,)
            if all(isinstance(each, torch.Tensor) for each in parts):
                self._known[key] = several, [(each.shape, each.stride(), each.dtype) for each in parts]
            return result
        made = [torch.empty_strided(size, stride, dtype=dtype, device=META) for size, stride, dtype in known[1]]
        return tuple(made) if known[0] else made[0]

    # Values

    def _read(self, tensor: Any) -> Any:
        if by_hooks():
            self._face.misdeed("a value is read by the hooks")
        self._face.call("item", 0).item()
        return self._number(tensor.dtype)

    def _number(self, dtype: Any) -> Any:
        """One that means nothing: a loss that falls."""
        number = next(self._numbers)
        if dtype == torch.bool:
            return True
        return 3.0 / (1.0 + 0.01 * number) if dtype.is_floating_point else number

    def _cross(self, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """A copy between host and device; None where it is none."""
        if name == "copy_":
            target, source = args[0], args[1]
            pinned = hasattr(source if target.is_meta else target, _PINNED)
            non_blocking = bool(args[2] if len(args) > 2 else kwargs.get("non_blocking"))
            if target.is_meta == source.is_meta:
                return None
            self._copy(source, pinned, non_blocking, back=source.is_meta)
            return target if target.is_meta or target.numel() > 1 else target.fill_(self._number(target.dtype))
        source, to = args[0], kwargs.get("device")
        if to is None or (to.type in ("cuda", "meta")) == source.is_meta:
            return None
        dtype = kwargs.get("dtype") or source.dtype
        self._copy(source, hasattr(source, _PINNED), bool(kwargs.get("non_blocking")), back=source.is_meta)
        made = torch.empty_like(source, dtype=dtype, device="cpu" if source.is_meta else META)
        if source.is_meta and made.numel() <= 1024:
            made.fill_(1)
        return made

    def _copy(self, source: Any, pinned: bool, non_blocking: bool, back: bool) -> None:
        if by_hooks() and not (pinned and non_blocking):
            self._face.misdeed("a copy that waits for the device")
        self._face.call("copy_", 0)
        size = source.numel() * source.element_size()
        self._device.copy(size, not pinned and not (back and non_blocking), back=back, blocking=not non_blocking)

    # Kernels

    def _run(self, name: str, func: Any, args: Any, given: list[Any], result: Any) -> None:
        made = [each for each in _flat((result,)) if each.is_meta]
        if func.is_view or name.startswith(_MADE) or not made:
            self._device.clock.pass_by(self._device.costs.view)
            if name.startswith("empty") or name == "new_empty":
                self._hold(made, given)
            return
        self._hold(made, given)
        for kernel in self._kernels(name, args, given, made):
            self.launch(kernel)

    def launch(self, kernel: Kernel) -> None:
        uses = kernel.tensor, kernel.memory
        self._device.launch(1, kernel.seconds, None, None, kernel.occupancy, *uses, name=kernel.name)

    def _kernels(self, name: str, args: Any, given: list[Any], made: list[Any]) -> list[Kernel]:
        plain = name.rstrip("_")
        if plain in _PRODUCTS:
            a, b = args[_PRODUCTS[plain] : _PRODUCTS[plain] + 2]
            m, k, n, batch = a.shape[-2], a.shape[-1], b.shape[-1], a.shape[0] if a.dim() == 3 else 1
            return [roofline.product(m, n, k, batch, _computed_in(a), a.element_size())]
        if plain == "convolution":
            return _convolved(args[0], args[1], made[0])
        if plain == "convolution_backward":
            return [each for _ in made[:2] for each in _convolved(args[1], args[2], args[0])]
        if name.startswith("_fused_"):
            return [roofline.of_many([_size(each) for each in given], _OPTIMIZER / 4)._replace(name=_FUSED)]
        moved = sum(map(_size, {id(each): each for each in (*given, *made) if each.is_meta}.values()))
        times = _SORTED if plain in _SCATTERED and torch.are_deterministic_algorithms_enabled() else 1.0
        found = roofline.elementwise(times * moved, max(each.numel() for each in made))
        return [found._replace(name=_NAMES.get(plain, found.name))]

    # Memory

    def _hold(self, made: list[Any], given: list[Any]) -> None:
        """Memory of what is new."""
        known = self._live
        for each in made:
            storage = each.untyped_storage()
            key = storage._cdata
            if key in known and not torch.UntypedStorage._expired(known[key][0]):
                continue
            self._forget(key)
            self._taken += 1
            if self._taken % self._every == 0:
                self._sweep()
            block = self._memory.take(storage.nbytes(), self._sweep)
            known[key] = (storage._weak_ref(), block)

    def _sweep(self) -> None:
        expired = torch.UntypedStorage._expired
        for key in [key for key, (held, _) in self._live.items() if expired(held)]:
            self._forget(key)

    def _forget(self, key: int) -> None:
        held = self._live.pop(key, None)
        if held is not None:
            torch.UntypedStorage._free_weak_ref(held[0])
            self._memory.give_back(held[1])


class _Fused(torch.autograd.Function):
    """Fused attention, on the way there and back."""

    @staticmethod
    def forward(ctx: Any, mode: Eager, query: Any, key: Any, value: Any, causal: bool) -> Any:
        ctx.mode, ctx.causal = mode, causal
        ctx.save_for_backward(query, key, value)
        mode.launch(_attention(query, key, causal, 2))
        return torch.empty_like(query)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:  # type: ignore[override]
        query, key, value = ctx.saved_tensors
        ctx.mode.launch(_attention(query, key, ctx.causal, 5))
        return None, torch.empty_like(query), torch.empty_like(key), torch.empty_like(value), None


def _attends(
    query: Any, key: Any, value: Any, mask: Any = None, dropout: float = 0.0, is_causal: bool = False, **_: Any
) -> tuple[Any, ...]:
    return query, key, value, is_causal


def _attention(query: Any, key: Any, causal: bool, products: int) -> Kernel:
    batch, heads, queries, width = query.shape
    flops = 2.0 * products * batch * heads * queries * key.shape[2] * width * (0.5 if causal else 1.0)
    blocks = batch * heads * -(-queries // 64)
    return roofline.attention(flops, 4.0 * _size(query), blocks, _computed_in(query))


def _convolved(image: Any, weight: Any, result: Any) -> list[Kernel]:
    channels, rows = result.shape[1], result.numel() // result.shape[1]
    flops = 2.0 * result.numel() * weight.numel() / weight.shape[0]
    moved = sum(map(_size, (image, weight, result)))
    return roofline.convolution(
        flops, moved, rows, channels, _computed_in(image, convolves=True), 0.0 if _lies_well(image) else 2.0 * moved
    )


def _lies_well(image: Any) -> bool:
    return bool(image.dim() == 4 and image.is_contiguous(memory_format=torch.channels_last))


def _computed_in(tensor: Any, convolves: bool = False) -> str:
    """What tensor cores are given; `float32` where they are not used."""
    if tensor.dtype != torch.float32:
        return str(tensor.dtype).rpartition(".")[2]
    allowed = torch.backends.cudnn.allow_tf32 if convolves else torch.get_float32_matmul_precision() != "highest"
    return "tf32" if allowed else "float32"


def _key(values: Any) -> tuple[Any, ...]:
    found: list[Any] = []
    for each in values:
        if isinstance(each, torch.Tensor):
            found.append((each.shape, each.stride(), each.dtype))
        elif isinstance(each, (list, tuple)):
            found.append(_key(each))
        else:
            found.append((type(each), each))
    return tuple(found)


def _size(tensor: Any) -> int:
    return int(tensor.numel()) * int(tensor.element_size())


def _flat(values: Any) -> list[Any]:
    found: list[Any] = []
    for each in values:
        if isinstance(each, torch.Tensor):
            found.append(each)
        elif isinstance(each, (list, tuple)):
            found += _flat(each)
    return found


def _stand_in(mode: Eager) -> None:
    """Tensors that torch calls meta are on the device."""
    tensor, base = torch.Tensor, torch._C.TensorBase
    kind, was_cuda = base.device, tensor.is_cuda
    where: Callable[[Any], Any] = kind.__get__  # type: ignore[attr-defined]

    def device_of(self: Any) -> Any:
        place = where(self)
        return CUDA if place.type == "meta" and not mode.inside else place

    tensor.device = property(device_of)  # type: ignore
    tensor.is_cuda = property(lambda self: where(self).type == "meta" or was_cuda.fget(self))  # type: ignore
    tensor.is_cpu = property(lambda self: not self.is_cuda)  # type: ignore
    torch.cuda._lazy_init = lambda: None  # type: ignore[assignment]

    def pin_memory(self: Any, *_: Any) -> Any:
        mode.host(int(_size(self) / COPIED_BY_HOST * 1e9))
        made = torch.empty_like(self)
        setattr(made, _PINNED, True)
        return made

    tensor.pin_memory = pin_memory  # type: ignore[assignment,method-assign]
