"""What a trace says in the report: parts that add up, classes by name, and numbers that are not known."""

from __future__ import annotations

import msgspec
import pytest

from monitor.model.device.kernel_classes import class_of, label_of
from monitor.model.device.trace_report import MAX_KERNELS, trace_report
from monitor.reports.trace_sections import traced
from monitor.sources.decode import decode
from trainhooks.protocol.encoding import to_dict
from trainhooks.protocol.events import Trace

from .conftest import Story, report_of

ROWS = [("aten::mm", "backward", 30, 0.06), ("aten::addmm", "forward", 15, 0.03), ("aten::copy_", "forward", 3, 0.01)]


def told(**fields: object) -> Story:
    story = steady(20)
    return story.tell(Trace, device="cpu", first=12, steps=3, seconds=0.12, rows=ROWS, **fields)


def steady(steps: int) -> Story:
    story = Story()
    for _ in range(steps):
        story.step(forward=0.3, backward=0.6)
    return story


def test_parts_add_up() -> None:
    trace = trace_report(Trace(producer="", seq=0, t=0.0, first=12, steps=3, seconds=0.12, rows=ROWS))
    for table in (trace.phases, trace.classes, trace.kernels):
        assert sum(row.share for row in table) == pytest.approx(1.0)
        assert sum(row.seconds for row in table) == pytest.approx(0.1 / 3)
    assert [(row.name, row.count) for row in trace.phases] == [("backward", 10.0), ("forward", 6.0)]
    assert (trace.busy, trace.launches, trace.idle) == (None, None, [])


def test_the_costliest_are_named_and_all_are_counted() -> None:
    rows = [(f"aten::op{number}", "forward", 1, 1.0 / (1 + number)) for number in range(3 * MAX_KERNELS)]
    trace = trace_report(Trace(producer="", seq=0, t=0.0, steps=1, seconds=9.0, rows=rows))
    assert [row.name for row in trace.kernels] == [row[0] for row in rows[:MAX_KERNELS]]
    assert sum(row.count for row in trace.classes) == len(rows)


@pytest.mark.parametrize(
    ("name", "device", "kind"),
    [
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16>", "cuda", "matrix product, bf16"),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n", "cuda", "matrix product, tf32"),
        ("ampere_sgemm_128x64_tn", "cuda", "matrix product, fp32, no tensor cores"),
        ("void pytorch_flash::flash_fwd_kernel", "cuda", "attention, flash"),
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80", "cuda", "attention, memory-efficient"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop", "cuda", "attention, cuDNN"),
        ("void at::native::(anonymous namespace)::softmax_warp_forward", "cuda", "softmax"),
        ("conv_depthwise2d_backward_kernel", "cuda", "convolution, no tensor cores"),
        ("sm90_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize", "cuda", "convolution"),
        ("cunn_SoftMaxBackward<4, float, float, float, LogSoftMaxBackwardEpilogue>(float*)", "cuda", "loss"),
        ("softmax_warp_forward<float, float, float, 10, true, false>(float*, float const*)", "cuda", "loss"),
        ("softmax_warp_forward<float, float, float, 10, false, true>(float*, float const*)", "cuda", "softmax"),
        ("cub::detail::radix_sort::DeviceSegmentedRadixSortKernel<cub::detail::radix>", "cuda", "sorting"),
        ("tensor_kernel_scan_outer_dim<long, unsigned int, plus<long> >(long*)", "cuda", "scan"),
        ("indexFuncLargeIndex<c10::BFloat16, long, unsigned int, 2, 2, -2, true, ReduceAdd>", "cuda", "indexing"),
        ("elemWiseRNNcell<__nv_bfloat16, __nv_bfloat16, float, (cudnnRNNMode_t)2>", "cuda", "recurrence"),
        ("vectorized_elementwise_kernel<8, bfloat16_copy_kernel_cuda(at::TensorIterator)>", "cuda", "casts and copies"),
        ("multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor>", "cuda", "optimizer"),
        ("void cudnn::ops::nchwToNhwcKernel", "cuda", "layout change"),
        ("void at::native::vectorized_elementwise_kernel<4, AddFunctor>", "cuda", "elementwise"),
        ("void at::native::multi_tensor_apply_kernel", "cuda", "optimizer"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "cuda", "communication"),
        ("Memcpy DtoH (Device -> Pageable)", "cuda", "copy from the device, pageable"),
        ("Memcpy HtoD (Pinned -> Device)", "cuda", "copy to the device"),
        ("Memset (Device)", "cuda", "memset"),
        ("something_of_the_users", "cuda", "other"),
        ("aten::addmm", "cpu", "matrix product"),
        ("aten::mm", "cpu", "matrix product"),
        ("aten::mm_of_another", "cpu", "elementwise"),
        ("aten::_local_scalar_dense", "cpu", "reading values"),
        ("aten::native_layer_norm", "cpu", "normalization"),
        ("aten::mkldnn_convolution", "cpu", "convolution"),
    ],
)
def test_classes(name: str, device: str, kind: str) -> None:
    assert class_of(name, device) == kind


@pytest.mark.parametrize(
    ("name", "label"),
    [
        (
            "vectorized_elementwise_kernel<4, BinaryFunctor<float, float, float, binary_internal::MulFunctor<float> >,",
            "elementwise mul float32",
        ),
        (
            "vectorized_elementwise_kernel<4, CUDAFunctor_add<c10::BFloat16>, array<char*, 3ul> >",
            "elementwise add bfloat16",
        ),
        (
            "unrolled_elementwise_kernel<direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}",
            "elementwise direct_copy",
        ),
        ("elementwise_kernel<9>", "elementwise_kernel<9>"),
        ("nvjet_sm90_tst_256x128_64x4", "nvjet_sm90_tst_256x128_64x4"),
    ],
)
def test_elementwise_kernels_are_read_by_their_operation(name: str, label: str) -> None:
    assert label_of(name) == label


def test_what_ran_is_compared_with_a_usual_step() -> None:
    """Tracing makes the host slower, not the device."""
    rows = [("nvjet_tst", "forward", 8, 0.3), ("Memcpy HtoD (Pageable -> Device)", "data", 2, 0.1)]
    idle = [("python", "forward", 4, 0.9), ("synchronizing", "forward", 1, 0.3)]
    event = Trace(
        producer="",
        seq=0,
        t=0.0,
        device="cuda",
        steps=2,
        seconds=1.6,
        rows=rows,
        busy=0.4,
        kernel_seconds=0.4,
        idle=idle,
    )
    trace = trace_report(event, usual=0.4)
    assert (trace.busy, trace.copying) == (pytest.approx(0.375), pytest.approx(0.125))
    assert [(row.name, row.share) for row in trace.idle] == [
        ("running Python", pytest.approx(0.375)),
        ("synchronizing", pytest.approx(0.125)),
    ]
    beside = trace_report(Trace(**{**event.__dict__, "kernel_seconds": 0.45}), usual=0.4)
    assert beside.copying == pytest.approx(0.0625)  # half of the copies ran beside kernels, at most


def test_it_reaches_the_report_and_its_text() -> None:
    report = report_of(told(shapes=[("aten::mm", "256x32 32x256")]))
    assert report.operators is not None and report.operators.steps == 3
    section = traced(report)
    assert section is not None and section.rows[1][0] == "aten::mm 256x32 32x256"
    assert traced(report_of(Story())) is None


def test_invalid_rows_are_left_out() -> None:
    trace = Trace(producer="p", seq=0, t=1.0, steps=1, seconds=1.0, rows=[("\x1b[31mred", "forward", 1, 0.5)])
    lines = [to_dict(trace), {**to_dict(trace), "rows": [["a", "b", -1, 0.5], ["a", "b", 1, -2.0]]}]
    lines.append({**to_dict(trace), "seconds": -1.0})
    cleaned, empty, invalid = (decode(msgspec.json.encode(line)) for line in lines)
    assert isinstance(cleaned, Trace) and cleaned.rows[0][0].isprintable()
    assert isinstance(empty, Trace) and empty.rows == []
    assert invalid is None


def test_measured_steps_are_no_baseline() -> None:
    """A trace makes a step long: it is not slow, and not typical either."""
    story = steady(40)
    story.step_with({"measured": True}, forward=0.3, backward=8.6)
    assert not report_of(story).slow_steps
    story.step(forward=0.3, backward=8.6)
    assert [slow.step for slow in report_of(story).slow_steps] == [42]
