"""Trainings with one thing wrong, and the same without it: ordinary programs for the real torch.

Nothing in them says what is wrong but what they do. Each is a function of whether it is mended.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from tests.simulated_device.device import Device
from tests.simulated_device.networks import Images, Transformer

CUDA = "cuda:0"
Batch = Callable[[], Any]


@dataclass(frozen=True)
class Program:
    """One of them.

    Attributes:
        run: takes the device and whether it is mended; returns the samples that it has trained on.
        cause: the code of the finding that comes first.
        promises: whether the finding says what there is to gain.
        loud: whether it is an alarm; else it is worth knowing.
        exact: whether what it shows hangs on each block of memory.
    """

    cause: str
    run: Callable[[Device, bool], int]
    promises: bool = False
    loud: bool = True
    exact: bool = False


class Rows(IterableDataset[Any]):
    """So many batches."""

    def __init__(self, count: int, batch: Batch) -> None:
        self.count, self.batch = count, batch

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self.count):
            yield self.batch()


def loader(count: int, batch: Batch) -> Any:
    return DataLoader(Rows(count, batch), batch_size=None)


def tokens(batch: int, length: int = 1024) -> Batch:
    return lambda: torch.zeros(batch, length, dtype=torch.int64)


def train(model: Any, optimizer: Any, batches: Any, read_every: int = 10, non_blocking: bool = False) -> None:
    """The plain loop."""
    for number, batch in enumerate(batches, 1):
        loss = model(batch.to(CUDA, non_blocking=non_blocking))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if number % read_every == 0:
            loss.item()


def made(network: Callable[[], Any], dtype: Any = torch.bfloat16) -> Any:
    with torch.device(CUDA):
        return network().to(dtype)


def adam(model: Any, **how: Any) -> Any:
    return torch.optim.AdamW(model.parameters(), lr=1e-4, **(how or {"fused": True}))


def exact_fp32(device: Device, mended: bool) -> int:
    torch.set_float32_matmul_precision("highest")
    model, count = made(Transformer, torch.bfloat16 if mended else torch.float32), 50
    train(model, adam(model), loader(count, tokens(16)))
    return count * 16


def attention_written_out(device: Device, mended: bool) -> int:
    model, count = made(lambda: Transformer(width=1024, layers=2, heads=16, written_out=not mended)), 50
    train(model, adam(model), loader(count, tokens(24, 4096)))
    return count * 24


def pageable_batches(device: Device, mended: bool) -> int:
    ring = [torch.empty(64, 3, 512, 512, memory_format=torch.channels_last) for _ in range(2)]
    ring = [each.pin_memory() for each in ring] if mended else ring
    numbers = iter(range(10**6))
    model, count = made(lambda: Images(channels=32, layers=1).to(memory_format=torch.channels_last)), 120
    train(model, adam(model), loader(count, lambda: ring[next(numbers) % 2]), non_blocking=mended)
    return count * 64


def activations_on_host(device: Device, mended: bool) -> int:
    model, count = made(lambda: Transformer(layers=2)), 40
    optimizer = adam(model)
    for batch in loader(count, tokens(16)):
        x = batch.to(CUDA)
        if mended:
            loss = model(x)
        else:
            with torch.autograd.graph.save_on_cpu():
                loss = model(x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return count * 16


def odd_widths(device: Device, mended: bool) -> int:
    width, inner, words = (1024, 4096, 8192) if mended else (1020, 4090, 8189)
    model, count = made(lambda: Transformer(width, heads=4, inner=inner, layers=2, vocabulary=words)), 50
    train(model, adam(model), loader(count, tokens(128)))
    return count * 128


def channel_by_channel(device: Device, mended: bool) -> int:
    layout = torch.channels_last if mended else torch.contiguous_format
    model, count = made(lambda: Images(channels=64)).to(memory_format=layout), 60
    images = torch.empty(256, 3, 128, 128, memory_format=layout).pin_memory()
    train(model, adam(model), loader(count, lambda: images), non_blocking=True)
    return count * 256


def same_to_the_last_bit(device: Device, mended: bool) -> int:
    torch.use_deterministic_algorithms(not mended, warn_only=True)
    model, count = made(lambda: Transformer(layers=1, vocabulary=65536)), 60
    train(model, adam(model), loader(count, tokens(32)))
    return count * 32


def one_by_one(device: Device, mended: bool) -> int:
    model, count = made(lambda: Transformer(width=256, layers=12, heads=4, inner=1024)), 60
    how = {"fused": True} if mended else {"foreach": False, "fused": False}
    train(model, adam(model, **how), loader(count, tokens(32, 512)))
    return count * 32


def keeps_its_outputs(device: Device, mended: bool) -> int:
    model, count = made(lambda: Transformer(4096, layers=1, heads=32, inner=16384)), 330
    optimizer, kept = adam(model), []
    for batch in loader(count, tokens(32)):
        loss = model(batch.to(CUDA))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        features = torch.zeros(32, 1024, 4096, device=CUDA, dtype=torch.int8)
        kept.append(features.float().mean() if mended else features)
    return count * 32


def empties_the_cache(device: Device, mended: bool) -> int:
    model, count = made(lambda: Transformer(layers=2)), 250
    optimizer = adam(model)
    for batch in loader(count, tokens(16, 512)):
        loss = model(batch.to(CUDA))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if not mended:
            torch.cuda.empty_cache()
    return count * 16


PROGRAMS: dict[str, Program] = {
    "exact-fp32": Program("fp32-matmul", exact_fp32, True),
    "attention-written-out": Program("slow-attention", attention_written_out, True),
    "pageable-batches": Program("pageable-copies", pageable_batches, True),
    "activations-on-host": Program("offload", activations_on_host, True),
    "odd-widths": Program("misaligned-shapes", odd_widths),
    "channel-by-channel": Program("channels-last", channel_by_channel),
    "same-to-the-last-bit": Program("deterministic-mode", same_to_the_last_bit, loud=False),
    "one-by-one": Program("unfused-optimizer", one_by_one, True),
    "keeps-its-outputs": Program("memory-leak", keeps_its_outputs),
    "empties-the-cache": Program("debug-settings", empties_the_cache),
}


def runs(name: str, mended: bool, device: Device, face: Any) -> int:
    """One of them, on the device."""
    from tests.simulated_device.eager import Eager

    program = PROGRAMS[name]
    expandable = "expandable_segments:True" in os.environ.get("PYTORCH_ALLOC_CONF", "")
    with Eager(device, face, expandable, program.exact):
        samples = program.run(device, mended)
        device.synchronize()
    return samples
