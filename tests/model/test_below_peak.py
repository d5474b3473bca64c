"""From the hardware's peak down to the MFU: the parts add up, and what is not known is called that."""

from __future__ import annotations

import pytest

from monitor.model.compute.mfu import PRODUCT, below_peak, holds
from monitor.model.compute.peaks import MatrixProduct
from monitor.model.device.device_report import Device


def told(
    device: Device, mfu: float | None, waits: float | None = None, product: float | None = None
) -> dict[str, float]:
    rows = below_peak(device, mfu, waits, None if product is None else MatrixProduct(product))
    return {row.what: round(row.share, 9) for row in rows}


@pytest.mark.parametrize("product", [None, 0.1, 0.7, 0.99, 1.0, 1.08])
@pytest.mark.parametrize("least", [None, 0.2, 0.9])
@pytest.mark.parametrize("most", [None, 0.95, 1.0])
@pytest.mark.parametrize("waits", [None, 0.1, 0.9])
@pytest.mark.parametrize("mfu", [0.05, 0.4, 0.97])
def test_the_parts_and_the_mfu_are_the_peak(
    least: float | None, most: float | None, waits: float | None, mfu: float, product: float | None
) -> None:
    parts = told(Device(busy_least=least, busy_most=most), mfu, waits, product)
    assert sum(parts.values()) + mfu == pytest.approx(1.0)
    assert all(share > 0 for share in parts.values())


def test_what_is_lost_has_a_name() -> None:
    device = Device(busy_least=0.6, busy_most=0.9)
    assert told(device, 0.3, 0.1) == {
        "the GPU is idle": 0.1,
        "idle or busy: not known": 0.3,
        "waiting for another rank": 0.1,
        "kernels that do less than the peak": 0.2,
    }
    assert told(Device(), 0.3) == {"idle or busy: not known": 0.7}


def test_without_an_mfu_nothing_is_told() -> None:
    assert told(Device(busy_least=0.6, busy_most=0.9), None) == {}


def test_the_measured_product_is_the_second_rung() -> None:
    """Of the time in which it is idle, it loses what such products would have done in it, and not the whole peak."""
    device = Device(busy_least=0.9, busy_most=0.9)
    assert told(device, 0.3, 0.1, 0.5) == {
        PRODUCT: 0.5,
        "the GPU is idle": 0.05,
        "waiting for another rank": 0.05,
        "kernels that do less than a plain matrix product": 0.1,
    }
    assert next(iter(told(device, 0.3, 0.1, 0.5))) == PRODUCT
    assert PRODUCT not in told(device, 0.3, 0.1, None) and PRODUCT not in told(device, 0.3, 0.1, 1.08)
    assert told(device, None, None, 0.5) == {}


def test_a_product_that_the_training_exceeds_is_no_rung() -> None:
    """Neither where the MFU is above it, nor where it is in the time in which the GPU can have been busy."""
    idle_half = Device(busy_least=0.4, busy_most=0.5)
    assert not holds(MatrixProduct(0.7), 0.75, None) and not holds(MatrixProduct(0.7), 0.4, 0.5)
    assert holds(MatrixProduct(0.7), 0.34, 0.5) and holds(MatrixProduct(0.7), 0.7, 1.0)
    assert told(idle_half, 0.4, None, 0.7) == told(idle_half, 0.4)
    assert told(Device(), 0.75, None, 0.7) == told(Device(), 0.75)
