"""From the hardware's peak down to the MFU: the parts add up, and what is not known is called that."""

from __future__ import annotations

import pytest

from monitor.model.compute.mfu import below_peak
from monitor.model.device.device_report import Device


def told(device: Device, mfu: float | None, waits: float | None = None) -> dict[str, float]:
    return {row.what: round(row.share, 9) for row in below_peak(device, mfu, waits)}


@pytest.mark.parametrize("least", [None, 0.2, 0.9])
@pytest.mark.parametrize("most", [None, 0.95, 1.0])
@pytest.mark.parametrize("waits", [None, 0.1, 0.9])
@pytest.mark.parametrize("mfu", [0.05, 0.4, 0.97])
def test_the_parts_and_the_mfu_are_the_peak(
    least: float | None, most: float | None, waits: float | None, mfu: float
) -> None:
    parts = told(Device(busy_least=least, busy_most=most), mfu, waits)
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
