"""Trainings whose truth is known: what bounds each, and why. They run as any program does.

Times are near those of the machine of the recordings: a launch costs 8 us, so kernels that are shorter leave the
device waiting, and longer ones let the host run ahead.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.simulated_device.device import Device

Kernels = tuple[int, float]  # how many a step, and seconds each

# What bounds a training, by the ledger: kernels, the host's launching, the wait for batches, copies that it waits for,
# or the turns of another process.
# What is none of these is mixed.
DEVICE, HOST, DATA, COPIES, FOREIGN, MIXED = "device", "host", "data", "copies", "foreign", "mixed"
BREATH = 500  # steps after which a script lets the background thread catch up: that one lives in real time


# Of an H100, as its profiler tells them; those of a phase take turns.
KERNELS: dict[str, tuple[str, ...]] = {
    "forward": (
        "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT",
        "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 11, false, false>(int)",
        "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel_generic<c10::BFloat16, int>(int)",
        "void at::native::vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl(int)>(int)",
    ),
    "backward": (
        "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
        "void (anonymous namespace)::softmax_warp_backward<c10::BFloat16, c10::BFloat16, float, 10, false, false>(int)",
        "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<c10::BFloat16, float, unsigned int> >(int)",
        "nvjet_sm90_tst_128x128_64x6_2x2_h_bz_splitK_NTT",
    ),
    "optimizer": (
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<"
        "at::native::FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<c10::BFloat16, 4> >(int)",
    ),
}


@dataclass(frozen=True)
class Workload:
    """One training, and what there is to say about it.

    Attributes:
        bound: what bounds it, by the ledger.
        cause: the code of the finding that comes first; empty: not settled here.
        healthy: nothing is wrong with it, so nothing loud may be said.
    """

    name: str
    bound: str = DEVICE
    cause: str = ""
    healthy: bool = False
    steps: int = 500
    forward: Kernels = (16, 0.0002)
    backward: Kernels = (16, 0.0004)
    optimizer: Kernels = (4, 0.0001)
    layers: int = 2
    python: float = 0.0  # seconds of the host in each layer
    data: float = 0.0001  # seconds of the host for a batch
    batch_bytes: float = 0.0
    pageable: bool = False
    read_every: int = 1  # steps after which the loss is read; 0: never
    waits: bool = False  # each layer reads a number
    micro: int = 1  # batches a step
    evaluate_every: int = 0
    checkpoint_every: int = 0
    spike: int = 0  # the step that takes the device ten times as long
    slower: float = 0.0  # by how much kernels take longer at the end than at the begin
    foreign: tuple[float, float] = (0.0, 0.0)
    warm: float = 0.0  # seconds more that the first step takes

    def scaled(self, seconds: float) -> Workload:
        """The same with steps of about that many seconds on the device: longer kernels, and not more of them."""
        now = sum(count * each for count, each in (self.forward, self.backward, self.optimizer))
        factor = seconds / now
        kernels = [(count, each * factor) for count, each in (self.forward, self.backward, self.optimizer)]
        return replace(self, forward=kernels[0], backward=kernels[1], optimizer=kernels[2])


HEALTHY = Workload("healthy", healthy=True)  # its loss is read at each step
SHORT_KERNELS: dict[str, Kernels] = {"forward": (60, 2e-6), "backward": (120, 2e-6), "optimizer": (24, 2e-6)}
# The host is as long at a layer as the device: waiting for each other, both take twice as long.
READS_IN_LAYERS: dict[str, Any] = {
    "layers": 8,
    "forward": (16, 0.0003),
    "backward": (16, 0.0001),
    "optimizer": (4, 0.00005),
    "python": 0.0005,
}
_ALL = (
    HEALTHY,
    replace(HEALTHY, name="reads-each-20th", read_every=20),
    replace(HEALTHY, name="never-reads", read_every=0),
    replace(HEALTHY, name="pinned", batch_bytes=10e6, steps=600),
    replace(HEALTHY, name="accumulation", micro=8, steps=80),
    replace(HEALTHY, name="evaluates", evaluate_every=50, checkpoint_every=100),
    replace(HEALTHY, name="spike", spike=200),
    Workload("slow-drift", slower=0.5),
    Workload("optimizer-heavy", optimizer=(200, 60e-6), read_every=20, steps=300),
    Workload("mixed", forward=(40, 4e-6), python=0.003, backward=(16, 0.0006), steps=300),
    Workload("launch-bound", HOST, "launch-bound", **SHORT_KERNELS, read_every=20, steps=800),  # type: ignore[arg-type]
    Workload("sync-in-layers", HOST, layers=8, forward=(16, 20e-6), python=0.0008, waits=True),
    Workload("waits-for-data", DATA, "input-bound", data=0.03, steps=150),
    Workload("pageable", COPIES, batch_bytes=100e6, pageable=True, steps=250),
    Workload("foreign", FOREIGN, foreign=(0.02, 0.5), steps=300),
    Workload("reads-in-layers", MIXED, "synchronizing", **READS_IN_LAYERS, waits=True, steps=700),  # type: ignore[arg-type]
    Workload("another-process", FOREIGN, "gpu-shared", foreign=(0.02, 0.5), steps=1500),
    replace(HEALTHY.scaled(0.0005), name="half-a-millisecond", read_every=20, steps=3500),
    replace(HEALTHY.scaled(0.001), name="one-millisecond", read_every=20, steps=2500),
    replace(HEALTHY.scaled(0.01), name="ten-milliseconds", read_every=20, steps=800),
    replace(HEALTHY.scaled(0.1), name="hundred-milliseconds", steps=200),
)
WORKLOADS = {each.name: each for each in _ALL}


def anything(seed: int) -> dict[str, Any]:
    """Changes that make a training of any kind, none of which anybody thought of."""
    lots = random.Random(seed)

    def kernels(longest: float) -> Kernels:
        return lots.choice([4, 16, 64]), 10 ** lots.uniform(-5.5, longest)

    return {
        "bound": MIXED,
        "steps": lots.choice([120, 300]),
        "forward": kernels(-2.5),
        "backward": kernels(-2.5),
        "optimizer": kernels(-3.5),
        "python": lots.choice([0.0, 0.0, 0.001, 0.01]),
        "data": 10 ** lots.uniform(-4.5, -1.0),
        "read_every": lots.choice([0, 1, 3, 20]),
        "batch_bytes": lots.choice([0.0, 0.0, 1e6, 1e8]),
        "pageable": lots.random() < 0.5,
        "waits": lots.random() < 0.2,
        "micro": lots.choice([1, 1, 1, 4]),
        "evaluate_every": lots.choice([0, 0, 50]),
        "checkpoint_every": lots.choice([0, 0, 70]),
        "slower": lots.choice([0.0, 0.0, 1.0]),
        "spike": lots.choice([0, 0, 77]),
    }


def train(device: Device, workload: Workload) -> None:
    """The training itself, on the real torch."""
    import torch

    from tests.simulated_device.layers import Batches, Model, Optimizer, SlowFile

    device.kernels = KERNELS
    model = Model(device, workload.layers, workload.forward, workload.backward, workload.waits, workload.python)
    optimizer = Optimizer(model.parameters(), device, workload.optimizer)
    torch.set_float32_matmul_precision("high")
    count = workload.steps * workload.micro
    loader = torch.utils.data.DataLoader(Batches(device, count, workload.data), batch_size=None)
    held_out = torch.utils.data.DataLoader(Batches(device, 10, workload.data, trains=False), batch_size=None)
    device.step = 1
    for number, batch in enumerate(loader):
        step, last_micro = number // workload.micro + 1, (number + 1) % workload.micro == 0
        device.step = step
        _set_pace(device, workload, step)
        if workload.batch_bytes:
            device.copy(workload.batch_bytes, workload.pageable, "other")
        loss = model(batch)
        loss.backward()
        if not last_micro:
            continue
        optimizer.step()
        optimizer.zero_grad()
        if workload.read_every and step % workload.read_every == 0:
            loss.item()
        if workload.evaluate_every and step % workload.evaluate_every == 0:
            _evaluate(torch, device, model, held_out)
        if workload.checkpoint_every and step % workload.checkpoint_every == 0:
            torch.save({"step": step}, SlowFile(device, 0.5))
        if step % BREATH == 0:
            breathe()
    device.synchronize()


def _set_pace(device: Device, workload: Workload, step: int) -> None:
    device.slowness = 1.0 + workload.slower * step / workload.steps
    if step == workload.spike:
        device.slowness = 10.0
    if step == 1 and workload.warm:
        device.host(workload.warm)


def _evaluate(torch: Any, device: Device, model: Any, held_out: Any) -> None:
    model.eval()
    total = 0.0
    with torch.no_grad():
        for batch in held_out:
            total += model(batch).item()
    model.train()


def train_by_graph(device: Device, workload: Workload) -> None:
    """The whole step captured once and replayed: nothing of it can be seen but the replay. Told by the API."""
    import torch

    import trainhooks

    device.kernels = KERNELS
    graph = torch.cuda.CUDAGraph()
    for each in trainhooks.steps(range(workload.steps)):
        device.step = each + 1
        device.arrives()
        device.host(workload.data)
        if each == 3:
            with torch.cuda.graph(graph):
                _launch_all(device, workload)
        if each >= 3:
            graph.replay()  # type: ignore[no-untyped-call]
        else:
            _launch_all(device, workload)
        if workload.read_every and (each + 1) % workload.read_every == 0:
            device.item()
        if (each + 1) % BREATH == 0:
            breathe()
    device.synchronize()


def train_by_phases(device: Device, workload: Workload) -> None:
    """The same steps told by the public calls; works without the real torch."""
    import trainhooks

    device.kernels = KERNELS
    for each in trainhooks.steps(range(workload.steps)):
        device.step = each + 1
        device.arrives()
        _set_pace(device, workload, each + 1)
        device.host(workload.data)
        for name in ("forward", "backward", "optimizer"):
            with trainhooks.phase(name):
                device.host(workload.python)
                device.launch(*getattr(workload, name), name)
        if workload.read_every and (each + 1) % workload.read_every == 0:
            device.item()
        if (each + 1) % BREATH == 0:
            breathe()
    device.synchronize()


def _launch_all(device: Device, workload: Workload) -> None:
    for name in ("forward", "backward", "optimizer"):
        device.launch(*getattr(workload, name), name)


WAYS: dict[str, Callable[[Device, Workload], None]] = {
    "auto": train,
    "graph": train_by_graph,
    "phases": train_by_phases,
}


def breathe() -> None:
    """Let the background thread catch up; where it lives in real time, wait for it there."""
    import sys

    from tests.simulated_device import beat

    if beat.installed is not None:
        beat.installed.now()
        return
    session = sys.modules.get("trainhooks.session")
    here = getattr(session, "_session", None)
    if here is None or not here.started:
        return
    for _ in range(500):
        time.sleep(0.005)
        if here.writer is not None and not any(lane.entries for lane in list(here.lanes)):
            break
    time.sleep(0.06)  # one pass more, for what came of it
