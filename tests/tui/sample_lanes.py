"""A training on one GPU that never ran, as its journal: steps of 40 ms of which CUDA events timed a sample.

The host queues its work in 9 ms and waits for the GPU where it logs the loss; one stretch is slow on the GPU.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from trainhooks.protocol.encoding import encoder, to_dict
from trainhooks.protocol.events import Bye, Event, Exit, Facts, Gpu, GpuTime, Hello, Host, Span, Step

STEPS, EVERY, FIRST = 900, 4, 4  # one step in four is timed, and each of the first
GIB = 1024**3
STARTED = 1_760_000_000.0
BEGIN = 100.0  # on the monotonic clock
LOADING = 9.0  # seconds before the first step
DEVICE = {"data": 0.0002, "forward": 0.0121, "backward": 0.0233, "optimizer": 0.0031, "other": 0.0008}
HOST = {"data": 0.0011, "forward": 0.0042, "backward": 0.0031, "optimizer": 0.0012, "other": 0.0299}
SLOW = range(601, 613)  # copies from pageable memory take 60 ms more
LOST = 0.06
EVALUATED, EVALUATION = 450, 2.5
CARD = {
    "utilization": 97.0, "memory_used": 51 * GIB, "memory_total": 80 * GIB, "temperature": 62.0, "power": 598.0,
    "power_limit": 700.0, "sm_clock": 1905, "sm_clock_max": 1980, "sm_active": 84.0, "tensor_active": 38.0,
    "memory_active": 41.0,
}  # fmt: skip


def _training() -> Iterator[Event]:
    name, seq, noise = "r0", 4, random.Random(7)
    facts = {
        "command": ["python", "finetune.py"], "devices": ["GPU-0"],
        "optimizer": {"class": "AdamW", "parameters": 350_000_000, "tensors": 290, "device": "cuda", "fused": True},
    }  # fmt: skip
    yield Hello(name, 1, BEGIN, wall=STARTED, process_started=BEGIN, name="finetune-350m", host="h100-box",
                facts=facts)  # fmt: skip
    yield Span(name, 2, BEGIN + LOADING, "load model", BEGIN + 4, LOADING - 4, own=LOADING - 4)
    yield Facts(name, 3, BEGIN + LOADING, total_steps=STEPS)
    now, since, stretch, chosen = BEGIN + LOADING, None, 0.0, 1
    for index in range(1, STEPS + 1):
        scale = noise.uniform(0.985, 1.02)
        device = {part: scale * seconds for part, seconds in DEVICE.items()}
        host = {part: scale * seconds for part, seconds in HOST.items()}
        if index in SLOW:
            device["other"] += LOST
            host["other"] += LOST
        took = sum(host.values())
        phases = [(part, seconds, "host", 1) for part, seconds in host.items() if part != "other"]
        metrics = {"loss": round(2.4 - 0.001 * index + 0.03 * noise.random(), 4)}
        yield Step(name, seq, now + took, index, now, took, phases, tokens=8_192, samples=8, metrics=metrics)
        seq += 1
        if index == chosen:
            seconds = sum(device.values())
            yield GpuTime(
                name, seq, now + took, step=index, seconds=seconds, busy=0.9 * seconds, lag=0.4 * seconds,
                phases=[(part, each) for part, each in device.items() if part != "other"],
                busy_phases=[(part, 0.9 * each) for part, each in device.items()],
                every=1 if index <= FIRST else EVERY, since=since, stretch=stretch if since is not None else None,
            )  # fmt: skip
            seq, since, stretch = seq + 1, index, 0.0
            block = (index - FIRST - 1) // EVERY + 1
            chosen = index + 1 if index < FIRST else FIRST + 1 + block * EVERY + noise.randrange(EVERY)
        stretch += sum(device.values())
        now += took
        if index == EVALUATED:
            yield Span(name, seq, now + EVALUATION, "eval", now, EVALUATION, own=EVALUATION, step=index)
            seq, now, stretch = seq + 1, now + EVALUATION, stretch + EVALUATION
    yield Bye(name, seq, now + 1.0)


def _node(end: float) -> Iterator[Event]:
    yield Hello("node", 1, BEGIN, source="recorder", wall=STARTED, host="h100-box")
    seconds = int(end - BEGIN)
    for second in range(seconds):
        t = BEGIN + second
        told = CARD if second > LOADING else {**CARD, "utilization": 0.0, "power": 74.0, "sm_active": 0.0}
        yield Gpu("node", 2 + 2 * second, t, "GPU-0", 0, "NVIDIA H100 80GB HBM3", simulated=True, **told)
        yield Host("node", 3 + 2 * second, t, cores=16, cpu=9.0, load1=1.4, memory_used=31 * GIB,
                   memory_total=126 * GIB)  # fmt: skip
    yield Exit("node", 2 + 2 * seconds, end + 1.0, exit_code=0)


def write(path: Path) -> Path:
    """The journal of both, in the order of time."""
    training, encode = list(_training()), encoder()
    events = sorted([*training, *_node(training[-1].t)], key=lambda event: event.t)
    path.write_bytes(b"".join(encode(to_dict(event)).rstrip(b"\n") + b"\n" for event in events))
    return path
