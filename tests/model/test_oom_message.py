"""What is told of an error for want of memory: messages as torch and numpy have written them, and what helps."""

from __future__ import annotations

import pytest

from monitor.diagnosis import oom_message
from monitor.diagnosis.oom_message import OutOfMemory
from trainhooks.protocol.events import Facts
from trainhooks.protocol.facts import Held

from .test_endings import ending, with_memory
from .test_rules import healthy

GIB = 1 << 30
MIB = 1 << 20

# As reported in public, of torch 1.13, 2.1, 2.5 and later; the last with what only some programs have.
OF_TORCH_1 = (
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 1.69 GiB (GPU 0; 14.56 GiB total capacity; 649.97 MiB"
    " already allocated; 1.31 GiB free; 1.01 GiB reserved in total by PyTorch) If reserved memory is >> allocated"
)
CONTAINER = (
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 496.00 MiB. GPU 0 has a total capacty of 14.75 GiB of"
    " which 235.06 MiB is free. Process 20398 has 14.52 GiB memory in use. Of the allocated memory 14.06 GiB is"
    " allocated by PyTorch, and 330.42 MiB is reserved by PyTorch but unallocated."
)
PLAIN = (
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 19.68 GiB. GPU 0 has a total capacity of 23.68 GiB of"
    " which 11.88 GiB is free. Including non-PyTorch memory, this process has 11.79 GiB memory in use. Of the allocated"
    " memory 11.44 GiB is allocated by PyTorch, and 43.59 MiB is reserved by PyTorch but unallocated. If reserved but"
)
SHARED = (
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.10 GiB of which"
    " 0 bytes is free. Process 41 has 40.00 GiB memory in use. Including non-PyTorch memory, this process has 39.10 GiB"
    " memory in use. 60.00 GiB allowed; Of the allocated memory 37.00 GiB is allocated by PyTorch, with 1.50 GiB"
    " allocated in private pools (e.g., CUDA Graphs), and 512.00 MiB is reserved by PyTorch but unallocated."
)


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (OF_TORCH_1, OutOfMemory(round(1.69 * GIB), round(14.56 * GIB), round(1.31 * GIB), round(649.97 * MIB))),
        (CONTAINER, OutOfMemory(496 * MIB, round(14.75 * GIB), round(235.06 * MIB), round(14.06 * GIB))),
        (PLAIN, OutOfMemory(round(19.68 * GIB), round(23.68 * GIB), round(11.88 * GIB), round(11.44 * GIB))),
        (SHARED, OutOfMemory(2 * GIB, round(79.1 * GIB), 0, 37 * GIB)),
    ],
    ids=("of torch 1", "in a container", "plain", "shared"),
)
def test_messages_of_all_versions_are_read(message: str, found: OutOfMemory) -> None:
    read = oom_message.read(message)
    assert (read.asked, read.total, read.free, read.allocated) == (
        found.asked,
        found.total,
        found.free,
        found.allocated,
    )
    assert read.reserved is not None and read.allocated is not None and read.reserved > read.allocated


def test_what_only_some_messages_hold() -> None:
    read = oom_message.read(SHARED)
    assert (read.private, read.allowed, read.own) == (round(1.5 * GIB), 60 * GIB, round(39.1 * GIB))
    assert read.others == [(41, 40 * GIB)]
    assert oom_message.read(CONTAINER).others == [], "by a number that may be its own, outside of the container"


@pytest.mark.parametrize(
    ("message", "asked"),
    [
        ("MemoryError: Unable to allocate 728. TiB for an array with shape (100000000000000,)", 728 << 40),
        (
            "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory:"
            " you tried to allocate 400000000000000 bytes. Error code 12 (Cannot allocate memory)",
            400_000_000_000_000,
        ),
        ("MemoryError: ", None),
        ("OutOfMemoryError: Tried to allocate 1.2.3 GiB", 0),
    ],
)
def test_the_host_s_say_what_was_asked(message: str, asked: int | None) -> None:
    assert oom_message.read(message).asked == asked


KEPT = Held(weights=10 * GIB, gradients=5 * GIB, optimizer=20 * GIB)


def test_it_says_what_held_the_memory_the_most_first() -> None:
    (first, second, *others) = oom_message.lines(oom_message.read(SHARED), KEPT)
    assert first == "asked for 2.0 GiB of a GPU of 79.1 GiB, of which 0 B were free"
    assert second == (
        "held by optimizer's state 20.0 GiB, weights 10.0 GiB, gradients up to 5.0 GiB,"
        " activations and all else at least 2.0 GiB, cache 512 MiB"
    )
    assert others == [
        "1.5 GiB of the tensors in pools of CUDA graphs",
        "the program allows itself 60.0 GiB",
        "1.6 GiB of this process outside of torch: CUDA, NCCL, libraries",
        "process 41 held 40.0 GiB of the same GPU",
    ]


def test_before_the_first_update_it_says_that_the_parts_are_unknown() -> None:
    told = oom_message.lines(oom_message.read(PLAIN), Held())
    assert told[1] == "held by tensors 11.4 GiB, cache 43.6 MiB" and "unknown" in told[2]


def test_gradients_that_are_not_there_are_left_out() -> None:
    held = Held(weights=9 * GIB, gradients=9 * GIB, optimizer=2 * GIB)
    (_, row, *_) = oom_message.lines(oom_message.read(PLAIN), held)
    assert row.startswith("held by weights 9.0 GiB, optimizer's state 2.0 GiB, activations")


TORCH_MESSAGE = (
    "OutOfMemoryError: CUDA out of memory. Tried to allocate {asked} GiB. GPU 0 has a total capacity of 80.00 GiB of"
    " which {free} GiB is free. Including non-PyTorch memory, this process has 60.00 GiB memory in use. {other}Of the"
    " allocated memory {used} GiB is allocated by PyTorch, and {cache} GiB is reserved by PyTorch but unallocated."
)


@pytest.mark.parametrize(
    ("asked", "free", "used", "cache", "other", "held", "word"),
    [
        (90, 40, 38, 1, "", Held(), "one tensor of 90.0 GiB"),
        (2, 1, 38, 1, "Process 7 has 39.00 GiB memory in use. ", KEPT, "process 7"),
        (2, 1, 70, 8, "", KEPT, "expandable_segments"),
        (4, 1, 40, 1, "", KEPT, "A smaller batch frees at most 5.0 GiB"),
        (4, 1, 76, 1, "", KEPT, None),  # mostly activations: what helps in general
        (4, 1, 76, 1, "", Held(), None),
        (4, 1, 76, 1, "Process 7 has 0.50 GiB memory in use. ", Held(), None),  # of a desktop
    ],
)
def test_the_advice_is_for_what_held_most(
    asked: int, free: int, used: int, cache: int, other: str, held: Held, word: str | None
) -> None:
    message = TORCH_MESSAGE.format(asked=asked, free=free, used=used, cache=cache, other=other)
    told = oom_message.advice(oom_message.read(message), held)
    assert (told is None) if word is None else (told is not None and word in told)


def test_the_finding_holds_it() -> None:
    (finding, *_) = ending(healthy().bye(PLAIN), exit_code=1)()
    assert finding.code == "out-of-memory" and finding.title.startswith("Out of GPU memory")
    assert finding.evidence[0].startswith("asked for 19.7 GiB of a GPU of 23.7 GiB")


def test_with_several_gpus_of_a_process_the_parts_are_not_told() -> None:
    for devices, row in ((["GPU-1"], "held by optimizer's state"), (["GPU-1", "GPU-2"], "held by tensors")):
        story = healthy()
        held = {"weights": 10 * GIB, "gradients": 5 * GIB, "optimizer": 20 * GIB}
        story.tell(Facts, facts={"held": held, "devices": devices})
        (finding, *_) = ending(story.bye(SHARED), exit_code=1)()
        assert any(line.startswith(row) for line in finding.evidence), devices


@pytest.mark.parametrize(
    ("used", "word"), [(20, "44.0 GiB were free: a limit of the process"), (62, "fewer DataLoader")]
)
def test_the_host_had_it_and_a_limit_refused_it(used: float, word: str) -> None:
    error = "MemoryError: Unable to allocate 30.0 GiB for an array with shape (4026531840,) and data type float64"
    (finding, *_) = ending(with_memory(healthy(), used).bye(error), exit_code=1)()
    assert finding.title.startswith("Out of host memory") and word in finding.advice
