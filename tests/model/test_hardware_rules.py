"""Rules on the model, the GPU and the memory: each fires on its own pathology, and not on the nearest innocent runs."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from trainhooks.protocol.events import Gpu, GpuTime, Host, Note

from .conftest import Story, judged
from .test_rules import codes, facts, healthy, jitter

noise = random.Random(7)

A100, RTX, V100, UNKNOWN = "NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 4090", "Tesla V100-SXM2-32GB", "NVIDIA X9"
GIB = 2**30
LLAMA = {
    "class": "LlamaForCausalLM",
    "parameters": 26_000_000,
    "trainable_parameters": 26_000_000,
    "hidden_size": 512,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "vocab_size": 1000,
    "tie_word_embeddings": False,
    "dtypes": {"float32": 26_000_000},
}


def optimizer(device: str = "cuda", **more: Any) -> dict[str, Any]:
    known = {"class": "AdamW", "parameters": 26_000_000, "tensors": 80, "dtypes": {"float32": 26_000_000}}
    return {**known, "device": device, "fused": None, "foreach": None, **more}


def on_gpu(
    name: str = A100,
    busy: float = 96.0,
    used: Callable[[int], float] = lambda i: 20,
    total: int = 80,
    n: int = 120,
    allocator: dict[str, Any] | None = None,
    step: dict[str, float] | None = None,
    timed: bool = True,
    **known: Any,
) -> Story:
    """Steps of a second on one GPU, read once a second; `used` in GiB, `known` are facts.

    Args:
        timed: whether CUDA events tell of them, too; else the host's clock alone does.
    """
    told = Story()
    torch = {"matmul_precision": "highest", "cuda": "13.0", **known.pop("torch", {})}
    if allocator is not None:
        torch["gpu_memory"] = {"total": total * GIB, "retries": 0, "ooms": 0, "peak_reserved": 0, **allocator}
    known = {"devices": ["GPU-1"], "optimizer": optimizer(), "autocast": "off", **known}
    facts(told, torch=torch, **known)
    parts = step or {"forward": 0.3, "backward": 0.6, "optimizer": 0.1}
    for i in range(n):
        took = {name: jitter(seconds) for name, seconds in parts.items()}
        told.step(**took)
        if timed:
            by_events(told, i + 1, took, busy / 100)
        told.tell(
            Gpu,
            uuid="GPU-1",
            name=name,
            utilization=busy,
            memory_used=int(used(i) * GIB),
            memory_total=total * GIB,
        )
    return told


def by_events(told: Story, step: int, took: dict[str, float], queued: float) -> None:
    """CUDA events tell the same of a step, and for which part of it the device certainly had work."""
    rows = [(name, seconds) for name, seconds in took.items() if name != "other"]
    busy = [(name, queued * seconds) for name, seconds in took.items()]
    seconds = sum(took.values())
    lag = 0.3 * seconds if queued > 0.5 else 0.0
    known = {"busy": queued * seconds, "busy_phases": busy, "lag": lag, "phases": rows, "seconds": seconds}
    told.tell(GpuTime, step=step, since=step - 1 if step > 1 else None, stretch=seconds if step > 1 else None, **known)


def on_host(
    n: int = 120,
    rss: Callable[[int], float] = lambda i: 2,
    used: Callable[[int], float] | None = None,
    seconds: float = 1.0,
    total: float = 64,
    **more: Any,
) -> Story:
    """Steps of a second, the host read at each; in GiB. What the machine uses follows the training's own."""
    told = Story()
    for i in range(n):
        told.step(forward=jitter(0.3 * seconds), backward=jitter(0.7 * seconds))
        in_use = (used or (lambda i: rss(i) + 2))(i)
        known = {"tree_rss": int(rss(i) * GIB), "memory_used": int(in_use * GIB), "memory_total": int(total * GIB)}
        told.tell(Host, **known, **more)
    return told


def on_cpu(n: int = 60, rss: float = 2, step: dict[str, float] | None = None, **known: Any) -> Story:
    told = facts(Story(), **{"optimizer": optimizer("cpu"), "autocast": "off", **known})
    for _ in range(n):
        told.step(**{name: jitter(seconds) for name, seconds in (step or {"forward": 0.2, "backward": 0.5}).items()})
        told.tell(Host, tree_rss=int(rss * GIB), memory_used=int((rss + 1) * GIB), memory_total=16 * GIB)
    return told


def beside_a_gpu(told: Story, used: float = 0.5, uuid: str = "GPU-9", **more: Any) -> Story:
    for _ in range(40):
        told.tell(
            Gpu, uuid=uuid, name=A100, utilization=0.0, memory_used=int(used * GIB), memory_total=80 * GIB, **more
        )
    return told


def reading_lengths(longest: Callable[[int], int], tokens: Callable[[int], int] | None = None, n: int = 200) -> Story:
    """Batches of eight, padded to the longest; a step takes what its positions take."""
    told = Story()
    for i in range(n):
        width = longest(i)
        real = (tokens or (lambda i: int(7.2 * longest(i))))(i)
        fields = {"samples": 8, "tokens": real, "padded_tokens": 8 * width}
        told.step_with(fields, forward=jitter(width / 3000), backward=jitter(width / 1500))
    return told


def called(forwards: int | None, samples: int, seconds: float, n: int = 60, **known: Any) -> Story:
    told = facts(Story(), **{"optimizer": optimizer("cpu"), **known})
    for _ in range(n):
        fields = {"forwards": forwards, "samples": samples}
        told.step_with(fields, data=jitter(0.001), forward=jitter(seconds / 3), backward=jitter(2 * seconds / 3))
        told.tell(Host, tree_rss=GIB, memory_used=2 * GIB, memory_total=16 * GIB)
    return told


def acting(moves: int) -> Story:
    told = facts(Story(), optimizer=optimizer("cpu"))
    for _ in range(60):
        told.step_with({"forwards": moves, "samples": moves}, forward=jitter(0.1), backward=jitter(0.2))
        told.tell(Host, tree_rss=GIB, memory_used=2 * GIB, memory_total=16 * GIB)
    return told


def attending(length: int, attention: str = "eager", **more: Any) -> Story:
    told = facts(Story(), model={**LLAMA, "attention": attention, **more})
    for _ in range(40):
        told.step_with({"samples": 4, "tokens": 4 * length}, forward=jitter(0.2), backward=jitter(0.4))
    return told


def disk(waited: float, moved: float, data: float = 0.4) -> Story:
    told = Story()
    for _ in range(60):
        told.step(data=jitter(data), forward=jitter(0.3), backward=jitter(0.3))
        told.tell(Host, pressure_io=waited, tree_read=moved * 2**20, tree_write=0.0)
    return told


def printed(*texts: str, code: str | None = "inconsistent-console") -> Story:
    told = healthy()
    for text in texts:
        told.tell(Note, text=f"console: {text}", level="warning" if code else "info", code=code)
    return told


def says(rate: float) -> Story:
    told = Story()
    for _ in range(40):
        told.step_with(
            {"tokens": 1000, "metrics": {"tokens_per_second": rate}}, forward=jitter(0.3), backward=jitter(0.6)
        )
    return told


def saw(i: int) -> float:
    return 2 + (i % 25) * 0.2


CHECKPOINTING = {"model": {"class": "M", "gradient_checkpointing": True}}
FULL, HALF_EMPTY = {"peak_allocated": 78 * GIB}, {"peak_allocated": 20 * GIB}

SICK: dict[str, Callable[[], Story]] = {
    "duplicate-forward": lambda: facts(healthy(), forwards={"repeated": 64, "calls": 128}),
    "length-outliers": lambda: reading_lengths(
        lambda i: 4000 if i % 20 == 7 else 200, lambda i: 5400 if i % 20 == 7 else 1400
    ),
    "sequential-batching": lambda: called(16, 16, 0.08),
    "training-on-cpu": lambda: beside_a_gpu(on_cpu(torch={"cuda": None})),
    "gpu-starved": lambda: on_gpu(busy=20.0, step={"forward": 0.1, "backward": 0.2, "reward": 0.7}),
    "fp32-matmul": lambda: on_gpu(),
    "no-mixed-precision": lambda: on_gpu(torch={"matmul_precision": "high"}),
    "slow-attention": lambda: attending(4096),
    "unfused-optimizer": lambda: on_gpu(
        optimizer=optimizer(foreach=False),
        autocast="bfloat16",
        step={"forward": 0.3, "backward": 0.5, "optimizer": 0.2},
    ),
    "oom-risk": lambda: on_gpu(allocator=FULL, autocast="bfloat16"),
    "memory-leak": lambda: on_host(200, rss=lambda i: 2 + 0.1 * i),
    "checkpointing-unneeded": lambda: on_gpu(allocator=HALF_EMPTY, autocast="bfloat16", **CHECKPOINTING),
    "memory-headroom": lambda: on_gpu(allocator=HALF_EMPTY, autocast="bfloat16"),
    "inconsistent-console": lambda: printed("the program's own breakdown of its time adds up to 185%"),
}

INNOCENT: dict[str, list[Callable[[], Story]]] = {
    "duplicate-forward": [
        lambda: facts(healthy(), forwards={"repeated": 4, "calls": 256}),  # a look at the training set now and then
        lambda: facts(healthy(10), forwards={"repeated": 16, "calls": 32}),
        lambda: facts(healthy(), forwards={"repeated": 0, "calls": 256, "without_gradients": 26}),
        lambda: called(8, 64, 0.5),  # accumulation
    ],
    "length-outliers": [
        lambda: reading_lengths(lambda i: noise.randint(100, 1000)),
        lambda: reading_lengths(lambda i: 4000 if i % 3 == 0 else 200),  # long is what the data is
        lambda: reading_lengths(lambda i: 4000 if i == 7 else 200),
        lambda: reading_lengths(lambda i: 4000 if i % 20 == 7 else 200, n=30),
    ],
    "sequential-batching": [
        lambda: called(4, 64, 0.5),  # accumulation of real batches
        lambda: called(16, 16, 8.0),  # half a second a call: there is enough to do in each
        lambda: called(2, 2, 0.02),
        lambda: called(16, 16, 0.3, optimizer=optimizer("cuda"), devices=["GPU-1"]),  # what memory is left is not known
        lambda: called(40, 8, 0.3),  # eight environments, and forty moves in each: a move follows from the one before
        lambda: acting(16),  # as many environments as moves, and nothing was fetched
        lambda: called(None, 1, 0.01),  # a batch of one, and a step for each: that is another training
    ],
    "training-on-cpu": [
        lambda: on_cpu(torch={"cuda": None}),  # no GPU
        lambda: beside_a_gpu(on_cpu(step={"forward": 0.002, "backward": 0.004})),
        lambda: beside_a_gpu(on_cpu(), used=70),  # it is somebody else's
        lambda: beside_a_gpu(on_cpu(), mig=True),
        lambda: beside_a_gpu(on_cpu(), uuid="amdgpu-0000:03:00.0"),  # perhaps the processor's own graphics
        lambda: beside_a_gpu(on_cpu(4)),
        lambda: on_gpu(optimizer=optimizer("cpu"), autocast="bfloat16"),  # the optimizer is offloaded
    ],
    "gpu-starved": [
        lambda: on_gpu(busy=20.0, step={"forward": 0.1, "backward": 0.2, "data": 0.7}),
        lambda: on_gpu(busy=60.0),
        lambda: on_gpu(busy=20.0, n=7),
        lambda: beside_a_gpu(on_cpu()),
    ],
    "fp32-matmul": [
        lambda: on_gpu(autocast="bfloat16"),
        lambda: on_gpu(config={"bf16": True}),
        lambda: on_gpu(torch={"matmul_precision": "high"}),
        lambda: on_gpu(RTX),
        lambda: on_gpu(V100),
        lambda: on_gpu(UNKNOWN),
        lambda: on_gpu(busy=30.0),
        lambda: on_gpu(autocast=None),  # nobody watched
        lambda: on_gpu(optimizer=optimizer(dtypes={"bfloat16": 5})),
    ],
    "no-mixed-precision": [
        lambda: on_gpu(autocast="bfloat16", torch={"matmul_precision": "high"}),
        lambda: on_gpu(config={"precision": "bf16-mixed"}, torch={"matmul_precision": "high"}),
        lambda: on_gpu(accelerate={"mixed_precision": "fp16"}, torch={"matmul_precision": "high"}),
        lambda: on_gpu(n=7),
        lambda: on_cpu(),
    ],
    "slow-attention": [
        lambda: attending(128),
        lambda: attending(4096, "sdpa"),
        lambda: attending(4096, num_local_experts=8),  # its shape says nothing of its work
    ],
    "unfused-optimizer": [
        lambda: on_gpu(autocast="bfloat16", step={"forward": 0.3, "backward": 0.5, "optimizer": 0.2}),  # foreach
        lambda: on_gpu(
            autocast="bfloat16", optimizer=optimizer(foreach=False), step={"forward": 1.0, "optimizer": 0.03}
        ),
        lambda: on_gpu(
            autocast="bfloat16",
            optimizer=optimizer(**{"class": "Muon", "foreach": False}),
            step={"forward": 0.8, "optimizer": 0.2},
        ),
    ],
    "oom-risk": [
        lambda: on_gpu(allocator={"peak_allocated": 60 * GIB, "retries": 1}),
        lambda: on_gpu(used=lambda i: 79),  # held ready by torch's cache, as far as anybody knows
        lambda: on_host(rss=lambda i: 62),  # full, and it stays so
        lambda: healthy().bye("ValueError: bad input"),
    ],
    "memory-leak": [
        lambda: on_host(200, rss=saw),
        lambda: on_host(200, rss=lambda i: min(2 + 0.1 * i, 8)),  # a cache that fills up
        lambda: on_host(200, rss=lambda i: 2 + 10 * (1 - 0.97**i)),  # likewise, slower and slower
        lambda: on_host(200, rss=lambda i: 2 + 0.1 * i, used=lambda i: 5),  # files that were mapped
        lambda: on_host(200, rss=lambda i: 2 + 0.0005 * i),
        lambda: on_host(14, rss=lambda i: 2 + 0.1 * i),  # too short to tell
        lambda: on_host(200, rss=lambda i: 2 if i < 120 else 9),  # an evaluation's model stays loaded
    ],
    "checkpointing-unneeded": [
        lambda: on_gpu(allocator={"peak_allocated": 60 * GIB}, autocast="bfloat16", **CHECKPOINTING),
        lambda: on_gpu(allocator=HALF_EMPTY, autocast="bfloat16"),
        lambda: on_gpu(
            allocator=HALF_EMPTY, **CHECKPOINTING, step={"generation": 1.0, "forward": 0.1, "backward": 0.1}
        ),
        lambda: on_cpu(rss=12, **CHECKPOINTING),
    ],
    "memory-headroom": [
        lambda: on_gpu(allocator={"peak_allocated": 60 * GIB}),
        lambda: on_gpu(allocator=HALF_EMPTY, busy=40.0),
        lambda: on_gpu(allocator=HALF_EMPTY, n=50),
    ],
    "inconsistent-console": [lambda: says(1100.0), lambda: says(700.0), lambda: printed("a note", code=None)],
}


def graveness(told: Story, code: str) -> str | None:
    found, _ = judged(told, alive=False)
    return next((finding.severity for finding in found if finding.code == code), None)


def test_the_smaller_change_comes_first() -> None:
    """TF32 is one line; what mixed precision gains beyond it is not blamed a second time."""
    assert graveness(on_gpu(), "fp32-matmul") == "warning"
    assert graveness(on_gpu(), "no-mixed-precision") == "info"
    assert graveness(on_gpu(RTX), "no-mixed-precision") == "warning"  # TF32 would do nothing


def test_a_training_batch_that_goes_through_the_model_again() -> None:
    looks = {"forwards": {"repeated": 0, "calls": 64, "without_gradients": 63}}
    (finding,) = judged(facts(healthy(), **looks), alive=False)[0]
    assert finding.code == "duplicate-forward" and finding.lost_fraction is not None
    policy = facts(Story(), **looks)
    for _ in range(60):  # how far did the update move it?
        policy.step_with({"metrics": {"reward": noise.random()}}, forward=0.1, backward=0.2)
    assert "duplicate-forward" not in [found.code for found in judged(policy, alive=False)[0]]


def test_a_cpu_that_somebody_chose_is_no_fault() -> None:
    for known in ({"config": {"use_cpu": True}}, {"environment": {"CUDA_VISIBLE_DEVICES": ""}}):
        assert graveness(beside_a_gpu(on_cpu(**known)), "training-on-cpu") == "info"


def test_the_evidence_shows_the_torch_build() -> None:
    for known, said in (
        ({"torch": {"cuda": None}}, "torch.version.cuda is None"),
        ({"torch": {"cuda": "13.0"}}, "CUDA 13.0"),
    ):
        found, _ = judged(beside_a_gpu(on_cpu(**known)), alive=False)
        assert said in " ".join(found[0].evidence)


def test_padding_of_long_sequences_is_length_outliers() -> None:
    found = codes(SICK["length-outliers"]())
    assert "padding-waste" not in found
    every = reading_lengths(lambda i: 400, lambda i: 1000)
    assert codes(every)[0] == "padding-waste"


def test_a_few_long_sequences_in_many_batches_are_few() -> None:
    """Of sequences in random order one in 24 is long, and so one batch of eight in three holds one."""
    found = codes(reading_lengths(lambda i: 900 if i % 3 == 0 else 64, lambda i: 1320 if i % 3 == 0 else 480))
    assert found[0] == "length-outliers" and "padding-waste" not in found
    half = reading_lengths(lambda i: 900 if i % 3 == 0 else 64, lambda i: 3800 if i % 3 == 0 else 480)
    assert "length-outliers" not in codes(half)


@pytest.mark.parametrize(("waited", "moved", "fires"), [(70, 80, True), (70, 0.1, False), (5, 80, False)])
def test_a_slow_disk_is_the_cause_of_what_waits(waited: float, moved: float, fires: bool) -> None:
    found = codes(disk(waited, moved))
    assert found[0] == "input-bound"
    assert ("disk-slow" in found) == fires
    assert "disk-slow" not in codes(disk(70, 80, data=0.01))


def test_an_idle_gpu_has_one_cause() -> None:
    idle = {"forward": 0.1, "backward": 0.2, "other": 0.7}
    assert "unaccounted-time" in codes(on_gpu(busy=20.0, step=idle, autocast="bfloat16"))
    assert "gpu-starved" not in codes(on_gpu(busy=20.0, step=idle, autocast="bfloat16"))
    host_only = codes(on_gpu(busy=20.0, step=idle, autocast="bfloat16", timed=False))
    assert host_only[0] == "gpu-starved" and "unaccounted-time" not in host_only, "the driver alone tells of the GPU"


def test_a_rate_far_above_the_measured_one_is_reported() -> None:
    assert graveness(says(5000.0), "inconsistent-console") == "info"


@pytest.mark.parametrize("first", [{"compile": 70.0}, {"other": 70.0}])
def test_a_rate_without_the_time_of_a_first_step_is_no_contradiction(first: dict[str, float]) -> None:
    told = Story()
    for number in range(40):
        fields = {"tokens": 1000, "metrics": {"tokens_per_second": 1100.0}}
        told.step_with(fields, forward=jitter(0.3), backward=jitter(0.6), **(first if number == 0 else {}))
    assert "inconsistent-console" not in codes(told)


def test_impossible_figures_are_reported() -> None:
    told = printed("left out, because it cannot be true: tokens_per_second -1200", code=None)
    found, _ = judged(told, alive=False)
    assert found[0].code == "inconsistent-console"
    assert "tokens_per_second -1200" in found[0].title


@pytest.mark.parametrize(("source", "count"), [("hooks", 0), ("console", 1)])
def test_a_bar_past_its_end_says_nothing_of_steps_that_were_measured(source: str, count: int) -> None:
    told = Story("c", source=source)
    for _ in range(30):
        told.step(forward=0.2)
    told.tell(Note, text="console: left out, because it cannot be true: 20 of 10", level="info")
    assert codes(told).count("inconsistent-console") == count


def test_a_figure_that_says_it_is_not_known_yet_is_no_contradiction() -> None:
    told = printed("left out, because it cannot be true: mfu -100.0", code=None)
    assert "inconsistent-console" not in codes(told)
