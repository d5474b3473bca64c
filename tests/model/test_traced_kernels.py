"""Findings from traced kernels: each with the nearest runs in which it is silent. Names are those of an H100."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from monitor.model.report import Finding
from trainhooks.protocol.events import Facts, Trace

from .conftest import Story, judged
from .device_stories import AT_WORK, GPT2, hf_trainer

IDLE_UNITS = {**AT_WORK, "sm_active": 90.0, "tensor_active": 0.7, "memory_active": 3.9}
PRODUCT = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
DEPTHWISE = "conv_depthwise2d_grad_weight_kernel<c10::BFloat16, unsigned int>"
SORT = "cub::detail::radix_sort::DeviceSegmentedRadixSortKernel<__nv_bfloat16, long, int>"
SCAN = "tensor_kernel_scan_outer_dim<long, unsigned int, plus<long> >(long*, long const*)"
ADDING = "indexing_backward_kernel<c10::BFloat16, 4>(long const*, long const*)"
MULTIPLY = (
    "vectorized_elementwise_kernel<4, BinaryFunctor<float, float, float, MulFunctor<float> >, array<char*, 3ul> >"
)
DOUBLE = "elementwise_kernel<128, 2, gpu_kernel_impl_nocast<BinaryFunctor<double, double, double, MulFunctor<double> >"
FUSED = "triton_poi_fused_mul_silu_3"
LOG_SOFTMAX = "cunn_SoftMaxForward<4, float, float, float, LogSoftMaxForwardEpilogue>(float*, float const*, int)"
ATTENTION = "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_1x4x1"
SGEMM = "cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
STEP = sum(GPT2.values())  # seconds, by the device


def traced(
    *shares: tuple[str, str, float],
    busy: float = 0.95,
    reading: dict[str, Any] = AT_WORK,
    exposed: float | None = None,
) -> Story:
    """Steps of which these kernels take a share each of the busy time, in a phase; products take the rest.

    Args:
        exposed: share of the step in which collectives run alone.
    """
    rest = 1.0 - sum(share for _, _, share in shares)
    rows = [(name, phase, 16, share * busy * STEP) for name, phase, share in (*shares, (PRODUCT, "forward", rest))]
    rows.sort(key=lambda row: -row[3])
    story = hf_trainer(reading=reading)
    seconds = busy * STEP
    alone = None if exposed is None else exposed * STEP
    return story.tell(
        Trace,
        device="cuda",
        first=12,
        steps=1,
        seconds=2 * STEP,
        busy=seconds,
        kernel_seconds=seconds,
        exposed=alone,
        rows=rows,
    )


def long_attention(share: float, flops: float = 0.9e12) -> Story:
    """Attention with so many operations in a call."""
    ops = {
        "flops_forward": flops,
        "flops_backward": 2 * flops,
        "flops_attention": 2 * flops,
        "flops_by_dtype": {"bfloat16": 3 * flops},
        "batch": 24,
        "length": 1024,
    }
    story = traced((ATTENTION, "backward", share))
    return story.tell(Facts, facts={"ops": ops})


def held(**more: Any) -> Story:
    """A GPU that is idle for most of the step, beside a thread that always wants to run."""
    found = {"name": "watcher", "share": 0.98, "late": 0.005, "place": "train.py:18 in watch", **more}
    story = traced(busy=0.2, reading={**AT_WORK, "sm_active": 15.0, "utilization": 20.0})
    return story.tell(Facts, facts={"busy_thread": found})


def captured(graphs: int) -> Story:
    return hf_trainer().tell(Facts, facts={"torch": {"graph_captures": graphs}})


SICK: dict[str, Callable[[], Story]] = {
    "slow-kernel": lambda: traced((DEPTHWISE, "backward", 0.84)),
    "elementwise-heavy": lambda: traced((MULTIPLY, "backward", 0.4), (MULTIPLY, "forward", 0.3)),
    "loss-heavy": lambda: traced((LOG_SOFTMAX, "forward", 0.3)),
    "slow-attention": lambda: long_attention(0.8),
    "fp32-matmul": lambda: traced((SGEMM, "backward", 0.66)),
    "double-precision": lambda: traced((DOUBLE, "forward", 0.3)),
    "gil-contention": held,
    "graph-recapture": lambda: captured(128),
}
NEEDS_GPU = ("slow-kernel", "elementwise-heavy", "loss-heavy", "gil-contention", "graph-recapture")
NOT_IN_ZOO = dict.fromkeys(NEEDS_GPU, "it needs a GPU")
INNOCENT: dict[str, list[Callable[[], Story]]] = {
    "slow-kernel": [
        lambda: hf_trainer(reading=IDLE_UNITS),
        lambda: traced((DEPTHWISE, "backward", 0.05)),
        lambda: traced(("sm90_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc", "backward", 0.7)),
        lambda: traced(("Memcpy HtoD (Pageable -> Device)", "data", 0.8)),
        lambda: traced((PRODUCT, "backward", 0.4), reading=IDLE_UNITS),
        lambda: traced((SORT, "forward", 0.5), busy=0.15, reading={**AT_WORK, "sm_active": 10.0}),
    ],
    "elementwise-heavy": [
        lambda: traced((MULTIPLY, "backward", 0.25)),
        lambda: traced((FUSED, "backward", 0.8)),
        lambda: traced((FUSED, "backward", 0.7), (MULTIPLY, "forward", 0.1)),
        lambda: traced((MULTIPLY, "backward", 0.9), busy=0.2, reading={**AT_WORK, "sm_active": 15.0}),
    ],
    "loss-heavy": [
        lambda: traced((LOG_SOFTMAX, "forward", 0.08)),
        lambda: traced(("softmax_warp_forward<float, float, float, 10, false, false>(float*)", "forward", 0.3)),
    ],
    "slow-attention": [
        lambda: long_attention(0.8, flops=20e12),
        lambda: long_attention(0.03),
    ],
    "fp32-matmul": [
        lambda: traced((SGEMM, "backward", 0.03)),
        lambda: traced(("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n", "backward", 0.66)),
    ],
    "double-precision": [lambda: traced((DOUBLE, "forward", 0.05)), lambda: traced((MULTIPLY, "forward", 0.3))],
    "graph-recapture": [lambda: captured(4), lambda: captured(16), hf_trainer],
    "gil-contention": [
        lambda: held(share=None),
        lambda: traced(busy=0.95).tell(Facts, facts={"busy_thread": {"name": "w", "share": 0.9, "late": 0.005}}),
    ],
}


def found_in(story: Story, code: str) -> Finding:
    (found,) = [finding for finding in judged(story)[0] if finding.code == code]
    return found


@pytest.mark.parametrize(("kernel", "advice"), [(ALL_REDUCE, "Exchange less"), (ALL_GATHER, "Shard no model")])
def test_collectives_beside_which_a_gpu_does_nothing_are_told(kernel: str, advice: str) -> None:
    found = found_in(traced((kernel, "backward", 0.6), exposed=0.5), "communication-bound")
    assert "49% of a step" in found.title and found.advice.startswith(advice)
    assert any("while they wait for other ranks" in line for line in found.evidence), found.evidence
    for story in (traced((kernel, "backward", 0.6), exposed=0.1), traced((kernel, "backward", 0.6))):
        assert "communication-bound" not in [each.code for each in judged(story)[0]], "hidden behind other kernels"


@pytest.mark.parametrize(
    ("kernel", "kind", "advice"),
    [
        (DEPTHWISE, "convolution, no tensor cores", "torch.fft"),
        (SORT, "sorting", "topk"),
        (SCAN, "scan", "last dimension"),
        (ADDING, "indexing", "added one after another"),
    ],
)
def test_a_slow_class_of_kernels_has_its_own_advice(kernel: str, kind: str, advice: str) -> None:
    found = found_in(traced((kernel, "backward", 0.45)), "slow-kernel")
    assert (found.severity, kind in found.title, "in backward" in found.title) == ("warning", True, True)
    assert advice in found.advice and kernel[:20] in found.evidence[0]
    assert found.likely_fraction is None  # only the bound is known


def test_less_than_a_third_is_information() -> None:
    assert found_in(traced((SORT, "forward", 0.2)), "slow-kernel").severity == "info"
    assert found_in(traced((MULTIPLY, "forward", 0.4)), "elementwise-heavy").severity == "info"
    assert found_in(traced((LOG_SOFTMAX, "forward", 0.15)), "loss-heavy").severity == "info"


def test_a_kernel_of_an_unknown_class_counts_where_the_driver_sees_neither_peak_in_use() -> None:
    found = found_in(traced(("my_kernel<float>", "forward", 0.6), reading=IDLE_UNITS), "slow-kernel")
    assert "other" in found.title and "driver" in found.evidence[-1]


def test_an_update_by_hand_is_told_by_its_phase() -> None:
    found = found_in(traced((MULTIPLY, "other", 0.7)), "elementwise-heavy")
    assert "fused=True" in found.advice and "95% of it in float32" not in found.evidence
    assert "100% of it in float32" in found.evidence


def test_what_a_faster_format_gains_is_a_range() -> None:
    found = found_in(traced((SGEMM, "backward", 0.66)), "fp32-matmul")
    assert found.least_fraction is not None and found.likely_fraction is not None and found.lost_fraction is not None
    assert 0.0 < found.least_fraction < found.likely_fraction < found.lost_fraction < 0.66


def test_attention_is_compared_with_the_peak() -> None:
    found = found_in(long_attention(0.8), "slow-attention")
    assert "of the GPU's peak" in found.title and found.likely_fraction is not None


def test_what_explains_the_passes_over_memory_hides_them() -> None:
    codes = {finding.code for finding in judged(traced((DOUBLE, "forward", 0.7)))[0]}
    assert "double-precision" in codes and "elementwise-heavy" not in codes


def test_a_thread_that_holds_the_interpreter_is_the_cause() -> None:
    findings = judged(held())[0]
    assert findings[0].code == "gil-contention" and "train.py:18" in findings[0].evidence[0]
    assert not {"gpu-starved", "launch-bound"} & {finding.code for finding in findings}


def test_without_a_trace_it_is_an_estimate() -> None:
    def told(flops: float, reading: dict[str, Any] = IDLE_UNITS) -> list[Finding]:
        ops = {"flops_forward": flops, "flops_backward": 2 * flops, "batch": 24, "length": 1024}
        story = hf_trainer(reading=reading)
        story.tell(Facts, facts={"ops": {**ops, "flops_by_dtype": {"bfloat16": 3 * flops}}})
        return [finding for finding in judged(story)[0] if finding.code == "slow-kernel"]

    (found,) = told(1e10)
    assert "estimate" in found.title and "backward" in found.title and found.gain is None
    assert not told(2e13) and not told(1e10, AT_WORK)
