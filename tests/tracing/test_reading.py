"""From what a profiler recorded to the event: whose phase, whose time, what the device waited for."""

from __future__ import annotations

from typing import Any

from trainhooks.protocol.events import TraceRow
from trainhooks.tracing import trace_reading
from trainhooks.tracing.profiler import Recorded
from trainhooks.tracing.trace_reading import MAX_ROWS, OTHERS, kernel_trace, operator_trace, union

MARKS = [(0, "data"), (100, "forward"), (300, "backward"), (600, "optimizer")]


class Shaped:
    def __init__(self, *shapes: list[int]) -> None:
        self._shapes = list(shapes)

    def shapes(self) -> list[list[int]]:
        return self._shapes


def operator(name: str, began: int, ended: int, thread: int = 1, *shapes: list[int]) -> Recorded:
    return Recorded(name, began, ended, False, thread, 0, 0, Shaped(*shapes))


def call(name: str, began: int, ended: int, correlation: int = 0) -> Recorded:
    return Recorded(name, began, ended, False, 1, correlation, 0, None)


def kernel(name: str, began: int, ended: int, correlation: int, stream: int = 7, size: int = 0) -> Recorded:
    return Recorded(name, began, ended, True, stream, correlation, size, None)


def never() -> None:
    """Release nothing."""


def rounded(rows: list[TraceRow]) -> list[Any]:
    return [(name, phase, count, round(seconds * 1e9)) for name, phase, count, seconds in rows]


def test_an_operators_time_is_what_none_inside_it_took() -> None:
    recorded = [
        operator("linear", 100, 200, 1, [32, 64], [], [64, 64]),
        operator("addmm", 110, 190),
        operator("copy", 120, 140),
        operator("backward", 300, 400),
        operator("mm", 310, 390, 2),  # another thread: not inside
    ]
    trace = operator_trace(recorded, MARKS, never)
    assert rounded(trace.rows) == [
        ("backward", "backward", 1, 100),
        ("mm", "backward", 1, 80),
        ("addmm", "forward", 1, 60),
        ("linear", "forward", 1, 20),
        ("copy", "forward", 1, 20),
    ]
    assert dict(trace.shapes)["linear"] == "32x64 64x64"
    assert sum(row[3] for row in trace.rows) * 1e9 == 280


def test_a_kernel_belongs_to_the_phase_that_launched_it() -> None:
    """It may run long after: the host is ahead."""
    recorded = [
        call("cudaLaunchKernel", 110, 120, 1),
        call("cudaLaunchKernel", 310, 320, 2),
        call("cudaMemcpyAsync", 50, 60, 3),
        call("cudaStreamSynchronize", 320, 900),
        kernel("forward_kernel", 700, 800, 1),
        kernel("backward_kernel", 800, 900, 2),
        kernel("Memcpy HtoD (Pageable -> Device)", 60, 80, 3, size=4096),
    ]
    trace = kernel_trace(recorded, MARKS, None, 1000)
    assert {(row[0], row[1]) for row in trace.rows} == {
        ("forward_kernel", "forward"),
        ("backward_kernel", "backward"),
        ("Memcpy HtoD (Pageable -> Device)", "data"),
    }
    assert trace.bytes == [("Memcpy HtoD (Pageable -> Device)", "data", 4096)]
    assert trace.busy is not None and round(trace.busy * 1e9) == 220
    assert ("cudaStreamSynchronize", "backward", 1) in [row[:3] for row in trace.calls]


def test_what_runs_side_by_side_is_busy_once() -> None:
    launches = [call("cudaLaunchKernel", 90, 95, number) for number in (1, 2)]
    recorded = [*launches, kernel("a", 100, 200, 1), kernel("b", 150, 250, 2, stream=8)]
    trace = kernel_trace(recorded, MARKS, None, 1000)
    assert trace.busy is not None and trace.kernel_seconds is not None
    assert (round(trace.busy * 1e9), round(trace.kernel_seconds * 1e9), trace.streams) == (150, 200, 2)
    assert trace.exposed is None, "no collectives"
    recorded[-1] = kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 150, 250, 2, stream=8)
    nccl = kernel_trace(recorded, MARKS, None, 1000)
    assert nccl.exposed is not None and round(nccl.exposed * 1e9) == 50
    assert union([(5, 9), (0, 3), (2, 4), (9, 12)]) == [(0, 4), (5, 12)]


def test_a_gap_is_by_what_the_host_did_in_most_of_it() -> None:
    recorded = [
        call("cudaLaunchKernel", 0, 5, 1),
        kernel("a", 0, 100, 1),
        call("cudaStreamSynchronize", 90, 290),
        call("cudaLaunchKernel", 290, 295, 2),
        kernel("b", 300, 400, 2),
        call("cudaLaunchKernel", 410, 415, 3),
        kernel("c", 600, 700, 3),
    ]
    trace = kernel_trace(recorded, MARKS, None, 700)
    assert rounded(trace.idle) == [("synchronizing", "forward", 1, 200), ("python", "backward", 1, 200)]


def test_what_comes_before_the_first_kernel_and_after_the_last_one_is_a_gap() -> None:
    """Unless the device was busy with work of before, which is not known."""
    recorded = [call("cudaLaunchKernel", 310, 320, 1), kernel("a", 330, 400, 1), call("cudaFree", 400, 640)]
    gaps = [("allocating", "backward", 1, 300), ("python", "forward", 1, 310)]
    assert sorted(rounded(kernel_trace(recorded, MARKS, 20, 700).idle)) == gaps
    assert rounded(kernel_trace(recorded, MARKS, None, 700).idle) == gaps[:1]


def test_only_what_was_launched_in_whole_steps_counts() -> None:
    """The device is behind: it still runs what came before, and what came after is cut off."""
    recorded = [
        kernel("before", 0, 400, 9),
        call("cudaLaunchKernel", 110, 120, 1),
        kernel("inside", 400, 700, 1),
        call("cudaLaunchKernel", 650, 660, 2),
        kernel("after", 700, 720, 2),
    ]
    trace = kernel_trace(recorded, MARKS, None, 600)
    assert rounded(trace.rows) == [("inside", "forward", 1, 300)]
    assert [row[:3] for row in trace.calls] == [("cudaLaunchKernel", "forward", 1)]


def test_a_kernels_name_begins_with_what_it_does() -> None:
    long = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int)"
    assert trace_reading.kernel_name(long) == "vectorized_layer_norm_kernel<c10::BFloat16, float>(int)"


def test_more_names_than_rows_share_one_row_a_phase() -> None:
    recorded = [operator(f"op {number}", 100 + number, 101 + number, number) for number in range(MAX_ROWS + 30)]
    trace = operator_trace(recorded, [(0, "forward")], never)
    assert len(trace.rows) == MAX_ROWS + 1
    assert rounded(trace.rows)[-1] == (OTHERS, "forward", 30, 30)


def test_the_interpreter_is_released_on_the_way() -> None:
    pauses: list[int] = []
    recorded = [operator("op", number, number + 1) for number in range(5 * trace_reading.PAUSE_EVENTS)]
    read = list(trace_reading.in_slices(recorded, lambda: pauses.append(1)))
    operator_trace(read, MARKS, lambda: pauses.append(1))
    assert len(pauses) >= 10


def test_hostile_names_are_cleaned() -> None:
    trace = operator_trace([operator("\x1b[31mred\n", 100, 200)], MARKS, never)
    assert trace.rows[0][0].isprintable()
