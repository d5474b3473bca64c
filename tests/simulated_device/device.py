"""The device: streams that work through what the host has launched, and a host that is charged for launching.

Everything is worked out when it is launched: a stream does one thing after the other, so begin and end of a piece of
work are known at once, and the ledger holds them. The host's clock is moved by what launching costs, and by waits.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import get_native_id
from typing import NamedTuple

from tests.simulated_device.allocator import Allocator
from tests.simulated_device.clock import SECOND, Clock
from tests.simulated_device.ledger import COLLECTIVE, COPY, FOREIGN, KERNEL, Ledger, Work

QUEUE = 1024  # launches under way; the next one waits for the oldest
LATENCY = 4_000  # nanoseconds from a launch to the earliest begin on an idle device
RESOLUTION = 500  # nanoseconds, of an event's time
MEMORY = 79 * 2**30  # bytes that a process can have
HELD = 48 * 2**30  # bytes of a training whose tensors are not followed
PAGEABLE, PINNED = 5.1e9, 25e9  # bytes a second that copies to the device reach

KERNEL_NAME = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"

Hold = Callable[[int], int]  # the earliest begin of a piece of work -> how much longer it is held up


class DeviceError(RuntimeError):
    """What torch raises for an error of CUDA's."""


@dataclass
class CostTable:
    """Nanoseconds of the host's time that calls cost, as measured on the machine of the recordings.

    `record` is the exception. A pooled event's record is 12 us of it; but a timed step costs 0.45 ms there, all that a
    lane does around its eight marks included, and Python costs nothing in virtual time. So the rest is charged here.
    """

    launch: int = 8_000
    record: int = 50_000
    make_event: int = 2_000
    query: int = 680
    elapsed_time: int = 900
    current_stream: int = 900
    is_capturing: int = 650
    pinned: int = 4_700  # a small pinned tensor, from the allocator's own pool
    copy: int = 7_200
    item: int = 10_000  # with nothing queued
    memory: int = 151_000  # the allocator's figures
    view: int = 1_500  # an operation that starts no kernel
    driver: int = 500_000  # a call that gives or takes memory of the device
    # Of torch's profiler: to begin a session, for each of its first calls and for each call, to end it, for each event.
    session: int = 6_000_000
    buffer: int = 2_400_000
    traced: int = 1_500
    session_end: int = 15_000_000
    event: int = 12_000
    detach: int = 30_000_000  # after its end, until the device can be traced again


class Stream:
    """A queue of the device's. `free` is when it will have done all that it was given."""

    def __init__(self, device: Device, handle: int, name: str = "compute") -> None:
        self.device, self.handle, self.name = device, handle, name
        self.free = 0


class Mark(NamedTuple):
    """What an event holds once it is recorded: when its stream comes by, in the host's time."""

    at: int
    stream: Stream


class Piece(NamedTuple):
    """A kernel, copy or memset, as the device ran it: in nanoseconds of the host's clock."""

    name: str
    start: int
    end: int
    stream: int
    size: int  # bytes


class Call(NamedTuple):
    """A call of the CUDA runtime, and what the device ran for it; `label` and `step` as in the ledger."""

    name: str
    began: int
    ended: int
    thread: int
    label: str
    step: int
    pieces: tuple[Piece, ...]


class Graph:
    """Launches that were captured, replayed by one."""

    def __init__(self) -> None:
        self.work: list[tuple[int, str, str, float, str]] = []
        self.broken: str | None = None  # by whom


def copy_name(back: bool, pageable: bool) -> str:
    """What a profiler calls a copy between host and device."""
    host = "Pageable" if pageable else "Pinned"
    return f"Memcpy DtoH (Device -> {host})" if back else f"Memcpy HtoD ({host} -> Device)"


class Device:
    """One device and the host that launches to it.

    Args:
        clock: the host's.
        costs: what the host is charged.
        offset, drift: the device's clock against the host's, in nanoseconds and as a rate.
        foreign: the period in seconds and the share of it that another process takes for itself.
    """

    def __init__(
        self,
        clock: Clock,
        index: int = 0,
        costs: CostTable | None = None,
        offset: int = 7_654_321_987_654,
        drift: float = 40e-6,
        foreign: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        self.clock, self.index, self.costs = clock, index, costs or CostTable()
        self.offset, self.drift = offset, drift
        self.ledger = Ledger()
        self.compute = Stream(self, 0)
        self.communication = Stream(self, 99, "communication")
        self.stream = self.compute  # what the training's launches go to
        self.step = 0
        self.arrivals: list[int] = []  # when the device would have come by the begin of each batch
        self.label = "other"
        self.slowness = 1.0  # of kernels: clocks that fall
        self.kernels: Mapping[str, Sequence[str]] = {}  # names of those that are launched in each phase, in turns
        self.calls: deque[Call] = deque(maxlen=QUEUE)  # the newest, or all from `keep_calls` on
        self.before_call: Callable[[], None] = lambda: None  # where somebody watches
        self.memory = Allocator(MEMORY, driver=self._allocates)
        self.memory.allocated = self.memory.peak_allocated = HELD  # by what is not simulated in detail
        self.memory.reserved = self.memory.peak_reserved = HELD
        self.swept: Callable[[], None] = lambda: None  # gives memory back that no tensor holds any more
        self.capture: Graph | None = None
        self.error: str | None = None  # sticky: from then on every call raises it
        self.blocked = 0  # nanoseconds that the host waited for room in the queue
        self.waited = 0  # nanoseconds that it waited for the device otherwise
        self._queue: deque[int] = deque()  # when each launch under way will be done
        self._copier = 0  # when the copy engine is free
        self._foreign = (int(foreign[0] * SECOND), int(foreign[0] * foreign[1] * SECOND))
        self._began = clock.now

    def _allocates(self, what: str) -> None:
        """cudaMalloc and cudaFree: the first is a call that takes its time, the second waits for the device."""
        began = self.begins_call()
        if what == "free":
            self._wait()
        self.clock.pass_by(self.costs.driver)
        self.called("cudaFree" if what == "free" else "cudaMalloc", began)

    # Calls

    def keep_calls(self) -> None:
        """Forget no call from here on."""
        self.calls = deque(self.calls)

    def begins_call(self) -> int:
        """A call of the CUDA runtime is made. Returns when."""
        self.before_call()
        return self.clock.now

    def called(self, name: str, began: int, label: str | None = None, *pieces: Piece) -> None:
        """It has returned."""
        call = Call(name, began, self.clock.now, get_native_id(), label or self.label, self.step, pieces)
        self.calls.append(call)

    # The host

    def host(self, seconds: float) -> None:
        """Python runs, or waits for something that is not the device."""
        self.clock.pass_by(int(seconds * SECOND))

    @contextmanager
    def phase(self, label: str) -> Iterator[None]:
        """What the ledger says that launches are for."""
        before, self.label = self.label, label
        try:
            yield
        finally:
            self.label = before

    def check(self) -> None:
        if self.error is not None:
            raise DeviceError(f"CUDA error: {self.error}")

    def arrives(self) -> None:
        """A batch is asked for: a mark made now would be passed when the stream comes by."""
        self.arrivals.append(max(self.stream.free, self.clock.now + LATENCY))

    # Work

    def launch(
        self,
        count: int,
        seconds: float,
        label: str | None = None,
        stream: Stream | None = None,
        occupancy: float = 0.9,
        *uses: float,
        name: str | None = None,
    ) -> None:
        """Launch so many kernels of so many seconds each. Waits where the queue is full.

        Args:
            uses: the shares of what the tensor cores can do, and the memory.
            name: of the kernel; else those of the phase take turns.
        """
        self.check()
        label, stream = label or self.label, stream or self.stream
        duration = int(seconds * SECOND * self.slowness)
        names = (name,) if name is not None else self.kernels.get(label, (KERNEL_NAME,))
        for number in range(count):
            began = self.begins_call()
            self.clock.pass_by(self.costs.launch)
            name = names[number % len(names)]
            if self.capture is not None:
                self.capture.work.append((duration, label, KERNEL, occupancy, name))
            else:
                piece = self._enqueue(duration, label, stream, KERNEL, occupancy, uses=uses, name=name)
                self.called("cudaLaunchKernel", began, label, piece)

    def copy(
        self,
        size: float,
        pageable: bool = False,
        label: str | None = None,
        stream: Stream | None = None,
        back: bool = False,
        blocking: bool = False,
    ) -> None:
        """Bytes to the device: from pageable memory the host waits for all that is queued and for the copy itself.

        Args:
            back: to the host.
            blocking: the host waits for a copy of pinned memory, too.
        """
        self.check()
        label, stream = label or self.label, stream or self.stream
        began = self.begins_call()
        self.clock.pass_by(self.costs.copy)
        if pageable:
            self._wait(stream)
        rate = PAGEABLE if pageable else PINNED
        link = (0.0, 0.0, -rate if back else rate)
        name = copy_name(back, pageable)
        piece = self._enqueue(int(size / rate * SECOND), label, stream, COPY, 0.0, uses=link, name=name, size=int(size))
        if pageable:
            self._wait(stream)
        self.called("cudaMemcpyAsync", began, label, piece)
        if blocking:
            self.synchronize(stream)

    def collective(self, seconds: float, late: float = 0.0, label: str | None = None) -> None:
        """A reduction on the stream of communication, after what is queued; the last peer is so many seconds late."""
        self.check()
        label, began = label or self.label, self.begins_call()
        self.clock.pass_by(self.costs.launch)
        there = self.communication
        there.free = max(there.free, self.stream.free)
        piece = self._enqueue(int((seconds + late) * SECOND), label, there, COLLECTIVE, 0.1, name=ALL_REDUCE)
        self.called("cudaLaunchKernel", began, label, piece)

    def wait_stream(self, other: Stream, stream: Stream | None = None) -> None:
        """What is launched from here on begins after all that `other` was given."""
        began = self.begins_call()
        self.clock.pass_by(self.costs.query)
        stream = stream or self.stream
        stream.free = max(stream.free, other.free)
        self.called("cudaStreamWaitEvent", began)

    def replay(self, graph: Graph) -> None:
        """One launch for everything captured."""
        self.check()
        began = self.begins_call()
        self.clock.pass_by(self.costs.launch)
        pieces = [
            self._enqueue(duration, label, self.stream, kind, occupancy, room=False, name=name)
            for duration, label, kind, occupancy, name in graph.work
        ]
        self._queue.append(self.stream.free)
        self.called("cudaGraphLaunch", began, None, *pieces)

    def _enqueue(
        self,
        duration: int,
        label: str,
        stream: Stream,
        kind: str,
        occupancy: float,
        room: bool = True,
        uses: tuple[float, ...] = (),
        name: str = KERNEL_NAME,
        size: int = 0,
    ) -> Piece:
        if room:
            self._make_room()
        earliest = max(self.clock.now + LATENCY, stream.free)
        if kind == COPY:
            earliest = max(earliest, self._copier)
        first = end = earliest
        for place, (start, end) in enumerate(self._turns(earliest, duration)):
            first = first if place else start
            self.ledger.add(Work(start, end, label, kind, self.step, occupancy, *uses))
        stream.free = end
        if kind == COPY:
            self._copier = end
        if room:
            self._queue.append(end)
        return Piece(name, first, end, stream.handle, size)

    def _make_room(self) -> None:
        queue, now = self._queue, self.clock.now
        while queue and queue[0] <= now:
            queue.popleft()
        if len(queue) >= QUEUE:
            self.blocked += self.clock.wait_until(queue.popleft())
            self.called("Command Buffer Full", now)

    def _turns(self, start: int, duration: int) -> Iterator[tuple[int, int]]:
        """When the work runs: whole, or in the turns that another process leaves it."""
        period, taken = self._foreign
        if not taken:
            yield start, start + duration
            return
        while duration > 0:
            into = (start - self._began) % period
            if into < taken:
                start += taken - into
                continue
            run = min(duration, period - into)
            yield start, start + run
            start, duration = start + run, duration - run

    # Waits

    def synchronize(self, stream: Stream | None = None) -> None:
        """The host waits until the device has done everything, or one stream."""
        self.check()
        began = self.begins_call()
        self._wait(stream)
        self.called("cudaDeviceSynchronize" if stream is None else "cudaStreamSynchronize", began)

    def _wait(self, stream: Stream | None = None) -> None:
        ends = [self.compute.free, self.communication.free, self.stream.free] if stream is None else [stream.free]
        self.waited += self.clock.wait_until(max(ends))

    def item(self, stream: Stream | None = None) -> None:
        """A number is read: a small copy behind everything, and the wait for it."""
        self.check()
        began = self.begins_call()
        self.clock.pass_by(self.costs.item)
        stream = stream or self.stream
        stream.free = at = max(stream.free, self.clock.now)
        self.called("cudaMemcpyAsync", began, None, Piece(copy_name(True, False), at, at, stream.handle, 4))
        self.synchronize(stream)

    # Events

    def mark(self, stream: Stream) -> Mark:
        """Record an event: it takes a place in the queue as a launch does."""
        self._make_room()
        stream.free = max(stream.free, self.clock.now + LATENCY)
        self._queue.append(stream.free)
        return Mark(stream.free, stream)

    def milliseconds(self, first: Mark, last: Mark) -> float:
        """Between two marks, by the device's own clock, in steps of its resolution and as a float of 32 bits."""
        ticks = self._ticks(last.at) - self._ticks(first.at)
        single: float = struct.unpack("f", struct.pack("f", ticks * RESOLUTION / 1e6))[0]
        return single

    def _ticks(self, at: int) -> int:
        return round((self.offset + (at - self._began) * (1.0 + self.drift)) / RESOLUTION)

    # The truth

    def finish(self) -> None:
        """The other process's turns enter the ledger up to now."""
        period, taken = self._foreign
        if taken:
            for start in range(self._began, self.clock.now, period):
                self.ledger.work.append(Work(start, start + taken, "", FOREIGN, 0, 0.9))

    def readings(self) -> list[dict[str, float]]:
        """What the driver tells, a reading a second, from the device's first second on."""
        return self.ledger.readings(self._began, max(self.clock.now, self.compute.free), SECOND)
