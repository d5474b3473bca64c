"""Runs on a GPU, told by both clocks: the host's steps, the device's times of a sample of them, the driver's readings.

The loops named after recordings have the figures of real runs on one H100: what the host's clock tells of them, what
CUDA events do, and what the driver read meanwhile.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

from trainhooks.protocol.events import Facts, Frames, Gpu, GpuTime

from .conftest import Story

H100 = "NVIDIA H100 80GB HBM3"
GIB = 2**30
CARD = {"name": H100, "memory_used": 60 * GIB, "memory_total": 80 * GIB}
# Percent, and bytes a second, as the driver tells them of a GPU that has enough to do.
AT_WORK = {
    "utilization": 97.0,
    "sm_active": 88.0,
    "sm_occupancy": 40.0,
    "tensor_active": 30.0,
    "memory_active": 50.0,
    "pcie_rx": 2e7,
    "pcie_tx": 1e7,
}
NO_GPM = {"utilization": 97.0}  # before the H100, drivers tell no activity of the SMs
ALWAYS_FIRST = 4  # steps that are timed one by one; then one at random in each block
DRAINED, AHEAD = 0.0003, 0.5  # seconds; of a step: how far the device is behind the host at its marks

# Of a typical step, in seconds, by the two clocks.
ITEM_EACH_STEP = {"data": 0.0003, "forward": 0.017, "backward": 0.020, "optimizer": 0.0014, "other": 0.114}
GPT2 = {"data": 0.0003, "forward": 0.058, "backward": 0.084, "optimizer": 0.0018, "other": 0.0075}
COPYING = {"forward": 0.0027, "backward": 0.0037, "optimizer": 0.0004, "other": 0.058}
COPIED = {"forward": 0.0104, "backward": 0.0109, "optimizer": 0.0001, "other": 0.0436}
QUEUEING = {"forward": 0.0004, "backward": 0.0007, "optimizer": 0.0002, "other": 0.0002}
PRODUCTS = {"forward": 0.0121, "backward": 0.0237, "optimizer": 0.0003, "other": 0.0001}
SMALL = {"forward": 0.0031, "backward": 0.0052, "optimizer": 0.0021, "other": 0.0003}  # by both clocks


def optimizer(**more: Any) -> dict[str, Any]:
    known = {"class": "AdamW", "parameters": 124_000_000, "tensors": 148, "dtypes": {"float32": 124_000_000}}
    return {**known, "device": "cuda", "fused": True, "foreach": None, **more}


class OnDevice(Story):
    """A story whose steps run on a GPU."""

    def __init__(
        self, reading: Mapping[str, Any] | None = AT_WORK, every: int = 1, timed: bool = True, **known: Any
    ) -> None:
        """
        Args:
            reading: what the driver tells each second; None where nobody reads it.
            every: of so many steps one is timed, at random.
            timed: whether any is.
            known: facts.
        """
        super().__init__()
        self.tell(Facts, facts={"devices": ["GPU-1"], "optimizer": optimizer(), "autocast": "bfloat16", **known})
        self.reading = None if reading is None else {**CARD, **reading}
        self._every = every
        self._timed = timed
        self._noise = random.Random(3)
        self._next = 1  # step to be timed
        self._since: int | None = None
        self._stretch = 0.0
        self._read = math.ceil(self.now)

    def both(
        self,
        host: Mapping[str, float],
        device: Mapping[str, float] | None = None,
        queued: float = 0.9,
        lag: float | None = None,
        **fields: Any,
    ) -> OnDevice:
        """A step of these phases by the host's clock and by the device's; by both alike where only one is told.

        Args:
            queued: the share of each phase in which the device certainly had work in its queue.
            lag: seconds that the device is behind at most; by default it has half a step queued if it has any.
        """
        wobble = 1 + 0.03 * self._noise.random()
        device = {name: seconds * wobble for name, seconds in (device or host).items()}
        self.step_with(fields, **{name: seconds * wobble for name, seconds in host.items()})
        self._read_on()
        if self._timed and self._index == self._next:
            self._time(device, queued, lag)
        self._stretch += sum(device.values())
        return self

    @property
    def is_timed_next(self) -> bool:
        """Whether the next step is one of those that the device's clock times."""
        return self._timed and self._index + 1 == self._next

    def stop(self, name: str, seconds: float, step: int | None = None) -> OnDevice:
        """An evaluation or a checkpoint between two steps; the device's time goes on meanwhile."""
        self.span(name, seconds)
        self._stretch += seconds
        self._read_on()
        return self

    def look(self, *rows: tuple[str, str, int]) -> OnDevice:
        """Looks at the training's stack: what was open, the place, how many."""
        self.tell(Frames, rows=list(rows))
        return self

    def _time(
        self,
        device: Mapping[str, float],
        queued: float,
        lag: float | None,
    ) -> None:
        seconds, every = sum(device.values()), self._every if self._index > ALWAYS_FIRST else 1
        busy = {name: queued * each for name, each in device.items()}
        told = GpuTime(
            self._producer,
            len(self.events),
            self.now,
            step=self._index,
            seconds=seconds,
            phases=[(name, each) for name, each in device.items() if name != "other"],
            busy=sum(busy.values()),
            busy_phases=list(busy.items()),
            lag=(AHEAD * seconds if queued > 0.5 else DRAINED) if lag is None else lag,
            every=every,
            since=self._since,
            stretch=None if self._since is None else self._stretch,
        )
        self.events.append(told)
        self._since, self._stretch = self._index, 0.0
        if self._index < ALWAYS_FIRST:
            self._next += 1
        else:  # blocks begin behind the first steps
            block = (self._index - ALWAYS_FIRST - 1) // self._every + 1
            self._next = ALWAYS_FIRST + 1 + block * self._every + self._noise.randrange(self._every)

    def _read_on(self) -> None:
        """The driver's readings up to now, one at each full second."""
        while self._read <= self.now:
            if self.reading is not None:
                told = Gpu(self._producer, len(self.events), float(self._read), uuid="GPU-1", **self.reading)
                self.events.append(told)
            self._read += 1


def looped(
    host: Mapping[str, float],
    device: Mapping[str, float] | None = None,
    seconds: float = 12.0,
    queued: float = 0.9,
    every: int = 1,
    timed: bool = True,
    reading: Mapping[str, Any] | None = AT_WORK,
    looks: tuple[tuple[str, str, int], ...] = (),
    step: Mapping[str, Any] | None = None,
    **known: Any,
) -> OnDevice:
    """A loop of like steps for so many seconds, after a first one that takes a second more.

    Args:
        looks: at the stack: what was open, the place, how many.
        step: what each step tells besides: samples, tokens.
    """
    told = OnDevice(reading, every, timed, **known)
    first = {"forward": 1.0}
    told.both({**host, **first}, {**(device or host), **first}, queued, **(step or {}))
    until = told.now + seconds
    while told.now < until:
        told.both(host, device, queued, **(step or {}))
    return told.look(*looks) if looks else told


# Healthy ones


def hf_trainer(**more: Any) -> OnDevice:
    """HF Trainer, GPT-2, packed: the loss is read in each step, and three quarters of the host's time is that wait."""
    reading = {**AT_WORK, "utilization": 94.0, "sm_active": 88.0, "tensor_active": 13.0, "memory_active": 66.0}
    looks = (("other", "train.py:83 (loss.item) in <module>", 81), ("backward", "train.py:81 (.backward) in step", 28))
    usual = {"queued": 0.87, "reading": reading, "looks": looks, "step": {"samples": 24, "tokens": 24576}}
    return looped(ITEM_EACH_STEP, GPT2, **{**usual, **more})


def matmul(seconds: float = 30.0, every: int = 1, timed: bool = True, **known: Any) -> OnDevice:
    """Matrix products; the loss is read each 20th step, in which the host waits for all twenty."""
    told = OnDevice({**AT_WORK, "utilization": 100.0, "sm_active": 96.0, "tensor_active": 82.0}, every, timed, **known)
    for i in range(int(seconds / 0.036)):
        host = {**QUEUEING, "other": 0.6938} if i % 20 == 19 else QUEUEING
        told.both(host, PRODUCTS, queued=0.98, samples=16384)
    return told.look(("other", "train.py:73 (loss.item) in <module>", 284), ("forward", "train.py:60 (net) in step", 5))


def evaluating(every: int = 1, each: int = 50, seconds: float = 0.3) -> OnDevice:
    """An evaluation between the steps now and then: no step is slow for it."""
    told = OnDevice(every=every)
    for i in range(400):
        told.both(ITEM_EACH_STEP, GPT2, queued=0.87)
        if i % each == each - 1:
            told.stop("eval", seconds)
    return told


def just_in_time() -> OnDevice:
    """The queue is empty at each mark, and the SMs are active all the same: the host keeps up, just so."""
    return looped(SMALL, queued=0.05, reading={**AT_WORK, "sm_active": 85.0})


# Sick ones


def pageable_copies(**known: Any) -> OnDevice:
    """Each batch goes to the GPU by a blocking copy from pageable memory."""
    reading = {
        **AT_WORK, "utilization": 38.0, "sm_active": 29.7, "tensor_active": 4.8, "pcie_rx": 5.19e9, "pcie_tx": 3.1e8,
        "pcie_gen": 5, "pcie_gen_max": 5, "pcie_width": 16, "pcie_width_max": 16,
    }  # fmt: skip
    looks = (
        ("other", "copies.py:86 (.to) in fetch", 63),
        ("other", "copies.py:112 in <module>", 9),
        ("other", "copies.py:65 (self.stem) in forward", 4),
    )
    return looped(COPYING, COPIED, queued=0.28, reading=reading, looks=looks, step={"samples": 512}, **known)


def llama_sft(timed: bool = False) -> OnDevice:
    """HF Trainer, 300M Llama, while another program holds 4.6 GiB on the same card."""
    host = {"data": 0.0001, "forward": 0.019, "backward": 0.042, "optimizer": 0.0009, "other": 0.034}
    others = [(0, "python3", 4_915_724_288, False)]
    reading = {**AT_WORK, "utilization": 91.0, "sm_active": 80.0, "tensor_active": 16.0, "processes": others}
    return looped(host, seconds=30.0, reading=reading, timed=timed, step={"samples": 8, "tokens": 8192})


def launching(reading: Mapping[str, Any] | None = None, queued: float = 0.05, **more: Any) -> OnDevice:
    """Kernels shorter than their launches: the queue is empty all the time."""
    reading = {**AT_WORK, "utilization": 96.0, "sm_active": 9.0} if reading is None else reading
    return looped(SMALL, queued=queued, reading=reading, **{"step": {"samples": 512}, "seconds": 8.0, **more})
