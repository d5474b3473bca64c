"""A large job that never ran, as its journal: 64 ranks in step, one of which loads its data slowly; one host's GPUs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from trainhooks.protocol.encoding import encoder, to_dict
from trainhooks.protocol.events import Bye, Event, Exit, Facts, Gpu, Hello, Host, Pulse, Span, Step

RANKS, STEPS, GPUS = 64, 150, 8
OTHER, BETWEEN = 0.0006, 0.004  # seconds of each step in no phase, and between two
SLOW = 37
GIB = 1024**3
STARTED = 1_760_000_000.0
BEGIN = 100.0  # on the monotonic clock
LOADING = 21.0  # seconds before the first step
CHECKPOINT_EVERY, CHECKPOINT = 50, 4.2


def _times() -> list[tuple[float, dict[int, tuple[float, float, float, float]]]]:
    """Of each step its begin, and each rank's data, forward, backward and optimizer: who is early waits in backward."""
    noise, now, steps = random.Random(64), BEGIN + LOADING, []
    for step in range(1, STEPS + 1):
        own = {rank: (noise.uniform(0.004, 0.009), 0.21 * noise.uniform(0.98, 1.02)) for rank in range(RANKS)}
        own[SLOW] = (0.14 * noise.uniform(0.8, 1.2), own[SLOW][1])
        longest = max(map(sum, own.values()))
        steps.append((now, {rank: (*mine, 0.44 + longest - sum(mine), 0.03) for rank, mine in own.items()}))
        now += longest + 0.47 + OTHER + BETWEEN + (CHECKPOINT if step % CHECKPOINT_EVERY == 0 else 0.0)
    return steps


def _host(rank: int) -> str:
    return f"h200-box-{rank // GPUS:02}"


def _rank(rank: int, times: list[tuple[float, dict[int, tuple[float, float, float, float]]]]) -> Iterator[Event]:
    name, seq = f"r{rank}", 4
    facts = {"command": ["torchrun", "--nproc-per-node=8", "pretrain.py"], "versions": {"torch": "2.13.0"}}
    yield Hello(name, 1, BEGIN, wall=STARTED, process_started=BEGIN, name="pretrain-8b", rank=rank,
                local_rank=rank % GPUS, world_size=RANKS, host=_host(rank), facts=facts)  # fmt: skip
    yield Span(name, 2, BEGIN + LOADING, "load model", BEGIN + 5, LOADING - 5, own=LOADING - 5)
    yield Facts(name, 3, BEGIN + LOADING, total_steps=STEPS)
    for index, (start, ranks) in enumerate(times, 1):
        phases = list(zip(("data", "forward", "backward", "optimizer"), ranks[rank], strict=True))
        took = sum(seconds for _, seconds in phases) + OTHER
        metrics = {"loss": round(3.1 - 0.004 * index + 0.05 * random.Random(index).random(), 4)} if rank == 0 else {}
        yield Step(name, seq, start + took, index, start, took, [(each, s, "host", 1) for each, s in phases],
                   tokens=16_384, samples=8, metrics=metrics)  # fmt: skip
        seq += 1
        if rank == 0 and index % CHECKPOINT_EVERY == 0:
            at = start + took
            for second in range(1, int(CHECKPOINT) + 1):  # as each running process tells once a second
                yield Pulse(name, seq, at + second, spans=[("checkpoint", float(second))])
                seq += 1
            yield Span(name, seq, at + CHECKPOINT, "checkpoint", at, CHECKPOINT, own=CHECKPOINT, step=index)
            seq += 1
    yield Bye(name, seq, times[-1][0] + CHECKPOINT + 2.0)


def _node(end: float) -> Iterator[Event]:
    yield Hello("node", 1, BEGIN, source="recorder", wall=STARTED, host=_host(0))
    seq = 2
    for second in range(int(end - BEGIN)):
        t, busy = BEGIN + second, second > LOADING
        for index in range(GPUS):
            yield Gpu("node", seq, t, f"GPU-{index}", index, "NVIDIA H200", 93.0 - index if busy else 0.0, 97 * GIB,
                      140 * GIB, 58.0 + index, 640.0 if busy else 120.0, 700.0, 1905 if busy else 345, 1980,
                      simulated=True, reasons=0x4 if busy and index == 3 else 0, temperature_max=87.0, pcie_gen=5,
                      pcie_gen_max=5, pcie_width=16, pcie_width_max=16)  # fmt: skip
            seq += 1
        yield Host("node", seq, t, cores=192, cpu=21.0, load1=40.2, memory_used=310 * GIB, memory_total=2048 * GIB)
        seq += 1
    yield Exit("node", seq, end + 1.0, exit_code=0)


def write(path: Path) -> Path:
    """The journal of all of them, in the order of time."""
    times, encode = _times(), encoder()
    end = times[-1][0] + CHECKPOINT + 2.0
    events = [event for rank in range(RANKS) for event in _rank(rank, times)]
    events = sorted([*events, *_node(end)], key=lambda event: event.t)
    path.write_bytes(b"".join(encode(to_dict(event)).rstrip(b"\n") + b"\n" for event in events))
    return path
