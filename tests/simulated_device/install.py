"""The simulated device in place of torch's: in the real torch of this process, or in one that is made up.

In the real torch every tensor lies in host memory, and computes there; those marked by `place` say that they are on the
device, and reading their value waits for it. What cannot be stood in for is `device="cuda"` as an argument, which
torch's own C++ refuses: workloads place their tensors with `place` instead.
"""

from __future__ import annotations

import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

from tests.simulated_device.cuda import Face, by_hooks
from tests.simulated_device.device import Device, copy_name
from tests.simulated_device.kineto import CUDA, HOST, ON_DEVICE, Kineto
from tests.simulated_device.ledger import COPY

_ON = "_simulated"  # an attribute of tensors on the device
_PINNED = "_simulated_pinned"
# What a tensor on the device makes is on the device.
_PASSED_ON = ("detach", "reshape", "view", "clone", "float", "mean", "sum", "__getitem__", "__mul__", "__truediv__")


def place(tensor: Any) -> Any:
    """Mark a tensor of the real torch as one on the device."""
    setattr(tensor, _ON, True)
    return tensor


def install(*devices: Device) -> Face:
    """Into the real torch, imported before or now."""
    import torch
    import torch.utils._device

    face = Face(*devices)
    for name, value in face.names().items():
        setattr(torch.cuda, name, value)
    torch.version.cuda = "13.0"  # type: ignore[assignment]
    torch._C._cuda_hasPrimaryContext = face.context  # type: ignore[attr-defined]
    _stand_in_profiler(torch, face)
    _stand_in_tensors(torch, face)
    return face


def install_fake(*devices: Device) -> Face:
    """A torch that is nothing but this CUDA: quick, for tests of the lane alone."""
    face = Face(*devices)
    torch: Any = ModuleType("torch")
    torch.cuda, torch.__version__ = face.cuda, "9"
    torch.version = SimpleNamespace(cuda="13.0")
    torch.compiler = SimpleNamespace(is_compiling=lambda: face.compiling, is_dynamo_compiling=lambda: face.compiling)
    face.kineto = Kineto(face)
    config = SimpleNamespace(ProfilerConfig=lambda *_: None, ProfilerState=SimpleNamespace(KINETO=1))
    torch.autograd = SimpleNamespace(profiler=config, DeviceType=SimpleNamespace(CPU=HOST, CUDA=ON_DEVICE))
    torch.profiler = SimpleNamespace(ProfilerActivity=SimpleNamespace(CPU="cpu", CUDA=CUDA))
    torch._C = SimpleNamespace(
        _cuda_hasPrimaryContext=face.context,
        _autograd=SimpleNamespace(**face.kineto.functions()),
        _profiler=SimpleNamespace(_ExperimentalConfig=lambda: None),
    )
    time.sleep = face.kineto.sleep(time.sleep)
    sys.modules["torch"] = torch
    return face


def _stand_in_profiler(torch: Any, face: Face) -> None:
    import torch.profiler

    profiler = torch.autograd.profiler
    face.kineto = Kineto(face, torch)
    for name, function in face.kineto.functions().items():
        setattr(torch._C._autograd, name, function)
        if hasattr(profiler, name):  # bound by torch's own classes, which a program uses
            setattr(profiler, name, function)
    activities = {torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA}
    profiler._supported_activities = lambda: activities
    time.sleep = face.kineto.sleep(time.sleep)


def _stand_in_tensors(torch: Any, face: Face) -> None:
    tensor, base = torch.Tensor, torch._C.TensorBase
    tensor.is_cuda = property(lambda self: getattr(self, _ON, False))
    tensor.is_cpu = property(lambda self: not getattr(self, _ON, False))
    tensor.is_pinned = lambda self, *_: getattr(self, _PINNED, False)

    def passing_on(name: str) -> Any:
        plain = getattr(tensor, name)

        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            made = plain(self, *args, **kwargs)
            for mark in (_ON, _PINNED):
                if mark in self.__dict__:
                    setattr(made, mark, True)
            return made

        return method

    def reading(name: str) -> Any:
        plain = getattr(tensor, name)

        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            if _ON in self.__dict__:
                if by_hooks():
                    face.misdeed(f"{name} waits for the device")
                face.call(name, 0).item()
            return plain(self, *args, **kwargs)

        return method

    for name in _PASSED_ON:
        setattr(tensor, name, passing_on(name))
    for name in ("item", "tolist", "cpu", "__float__", "__bool__", "__int__"):
        setattr(tensor, name, reading(name))

    def copy_(self: Any, source: Any, non_blocking: bool = False) -> Any:
        """Between device and host: behind the stream's work, and waited for unless the host's side is pinned."""
        there, here = _ON in source.__dict__, _ON in self.__dict__
        if there or here:
            pinned = _PINNED in (self if there else source).__dict__
            began = face.devices[face.current_device()].begins_call()
            device = face.call("copy_", face.devices[0].costs.copy)
            name = copy_name(there, not pinned)
            piece = device._enqueue(2_000, device.label, device.stream, COPY, 0.0, name=name, size=source.nbytes)
            device.called("cudaMemcpyAsync", began, None, piece)
            if not (there and here) and not (pinned and non_blocking):
                if by_hooks():
                    face.misdeed("a copy that waits for the device")
                device.synchronize(device.stream)
        return base.copy_(self, source)

    tensor.copy_ = copy_
    torch.utils._device._device_constructors()  # `with torch.device(...)` knows torch's own functions from here on
    for name in ("empty", "zeros"):
        setattr(torch, name, _pinning(face, getattr(torch, name)))


def _pinning(face: Face, make: Any) -> Any:
    def made(*args: Any, pin_memory: bool = False, **kwargs: Any) -> Any:
        tensor = make(*args, **kwargs)
        if pin_memory:
            face.call("pinned memory", face.devices[0].costs.pinned)
            setattr(tensor, _PINNED, True)
        return tensor

    return made
