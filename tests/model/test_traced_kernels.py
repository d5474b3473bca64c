"""Findings from traced kernels: each with the nearest runs in which it is silent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from monitor.diagnosis.rules import traced_kernels
from trainhooks.protocol.events import Trace

from .conftest import Story, judged
from .device_stories import AT_WORK, hf_trainer

SLOW = {**AT_WORK, "sm_active": 97.0, "tensor_active": 0.7, "memory_active": 3.9}
DEPTHWISE = "void conv_depthwise2d_grad_weight_kernel<__nv_bfloat16>"


def traced(
    name: str = DEPTHWISE, seconds: float = 0.84, reading: dict[str, Any] | None = None, busy: float = 0.96
) -> Story:
    """Steps of a second, traced: one kernel in backward, and others."""
    others = [
        (f"void at::native::elementwise_kernel<{number}>", "forward", 9, (1 - seconds) / 10) for number in range(10)
    ]
    rows = [(name, "backward", 8, seconds), *others]
    rows.sort(key=lambda row: -row[3])
    story = hf_trainer(reading=SLOW if reading is None else reading)
    return story.tell(Trace, device="cuda", first=12, steps=1, seconds=1.0 / busy, busy=1.0, rows=rows)


def untraced() -> Story:
    return hf_trainer(reading=SLOW)


SICK: dict[str, Callable[[], Story]] = {"slow-kernel": traced}
NOT_IN_ZOO = {"slow-kernel": "it needs a GPU"}
INNOCENT: dict[str, list[Callable[[], Story]]] = {
    "slow-kernel": [
        untraced,
        lambda: traced(seconds=0.2),
        lambda: traced(reading={**SLOW, "tensor_active": 30.0}),
        lambda: traced(reading={**SLOW, "memory_active": 66.0}),
        lambda: traced("Memcpy HtoD (Pageable -> Device)"),
        lambda: traced("ampere_sgemm_128x64_tn"),
        lambda: traced(busy=0.3),
        lambda: traced(reading={"utilization": 97.0}),  # neither is known
    ]
}


def test_it_names_the_kernel_and_its_phase() -> None:
    (found,) = [finding for finding in judged(traced())[0] if finding.code == "slow-kernel"]
    assert (found.severity, "conv_depthwise2d" in found.title, "backward" in found.title) == ("warning", True, True)
    assert found.advice.startswith("Try another algorithm") and found.lost_fraction is None


def test_less_than_half_is_information() -> None:
    (found,) = [finding for finding in judged(traced(seconds=0.45))[0] if finding.code == "slow-kernel"]
    assert found.severity == "info" and traced_kernels.MIN_LOUD_SHARE == 0.5
