"""What kernels take and what the allocator does, in the simulated device: without that, twins would show nothing."""

from __future__ import annotations

import pytest

from tests.simulated_device import roofline
from tests.simulated_device.allocator import MIB, Allocator, Block, OutOfMemory


def seconds(*sizes: int, **more: object) -> float:
    return roofline.product(*sizes, **more).seconds  # type: ignore[arg-type]


def test_products_take_what_their_number_format_allows() -> None:
    """Of the data sheet: exact fp32 has a fifteenth of bf16's operations, TF32 a half."""
    half = seconds(8192, 8192, 8192)
    assert 0.6 < 2 * 8192**3 / half / 989e12 < 0.75
    assert 13 < seconds(8192, 8192, 8192, dtype="float32", size=4) / half < 16
    assert 1.9 < seconds(8192, 8192, 8192, dtype="tf32", size=4) / half < 2.1
    assert roofline.product(8192, 8192, 8192, dtype="float32", size=4).tensor == 0.0
    assert seconds(8192, 8192, 8190) > 2 * half, "rows that do not begin at multiples of 16 bytes"


def test_a_small_product_takes_as_long_as_one_that_fills_the_card() -> None:
    small, full = roofline.product(128, 1024, 4096), roofline.product(128, 132 * 128, 4096)
    assert small.seconds <= full.seconds < 2 * small.seconds
    assert small.occupancy == pytest.approx(8 / 132) and full.occupancy == 1.0


def test_what_is_no_product_takes_its_bytes() -> None:
    kernel = roofline.elementwise(1e9, 5 * 10**8)
    assert kernel.seconds == pytest.approx(1e9 / 3.35e12 / 0.85) and kernel.memory == pytest.approx(0.85)
    assert roofline.elementwise(64, 16).seconds == roofline.SHORTEST


def test_blocks_are_split_and_merged() -> None:
    one = Allocator(1000 * MIB)
    first = one.take(100 * MIB)
    one.give_back(first)
    left, right = one.take(40 * MIB), one.take(60 * MIB)
    assert one.reserved == 100 * MIB, "both lie in what the first one had"
    one.give_back(left)
    one.give_back(right)
    assert isinstance(one.take(100 * MIB), Block) and one.reserved == 100 * MIB
    assert (one.peak_allocated, one.retries) == (100 * MIB, 0)


def test_memory_in_pieces_is_given_back_before_it_runs_out() -> None:
    calls: list[str] = []
    one = Allocator(1000 * MIB, driver=calls.append)
    for each in [one.take(300 * MIB) for _ in range(3)]:
        one.give_back(each)
    one.take(400 * MIB)
    assert one.retries == 1 and calls == ["malloc"] * 3 + ["free"] * 3 + ["malloc"]
    with pytest.raises(OutOfMemory):
        one.take(700 * MIB)
    grown = Allocator(1000 * MIB, expandable=True)
    for size in (300, 400, 500):
        grown.give_back(grown.take(size * MIB))
    assert grown.retries == 0 and grown.peak_reserved == 500 * MIB
