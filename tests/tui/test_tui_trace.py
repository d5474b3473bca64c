"""The screen of traced steps: kernels of a GPU, operators of a host, and why there are none."""

from dataclasses import replace

import pytest
import sample_views as views

from monitor import run_facts
from monitor.model.device.device_report import Device
from monitor.model.device.trace_report import trace_report
from monitor.model.view import View
from trainhooks.protocol.events import Trace

KERNELS = Trace(
    producer="p", seq=0, t=0.0, device="cuda", first=120, steps=2, seconds=0.05, pause=0.03, busy=0.04,
    kernel_seconds=0.044, streams=2,
    rows=[
        ("void pytorch_flash::flash_bwd_dq_dk_dv_loop_kernel", "backward", 24, 0.02),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTT", "forward", 48, 0.012),
        ("Memcpy HtoD (Pageable -> Device)", "data", 2, 0.008),
    ],
    calls=[("cudaLaunchKernel", "forward", 48, 0.001), ("cudaStreamSynchronize", "other", 2, 0.03)],
    idle=[("synchronizing", "other", 2, 0.006), ("launching", "optimizer", 30, 0.004)],
)  # fmt: skip
OPERATORS = Trace(
    producer="p", seq=0, t=0.0, device="cpu", first=12, steps=1, seconds=0.1, pause=0.02,
    rows=[("aten::mm", "backward", 15, 0.06), ("aten::sqrt", "optimizer", 16, 0.03)],
    shapes=[("aten::mm", "256x32 32x256")],
)  # fmt: skip


def on_gpu() -> View:
    view = views.running()
    return replace(view, report=replace(view.report, device=Device(trace=trace_report(KERNELS))))


def on_host() -> View:
    view = views.running(gpus=0)
    return replace(view, report=replace(view.report, device=None, operators=trace_report(OPERATORS)))


def untraced() -> View:
    view = views.running(gpus=0)
    facts = run_facts.read({"tracing": "off: the program uses a profiler"})
    return replace(view, report=replace(view.report, device=None, run=replace(view.report.run, facts=facts)))


@pytest.mark.parametrize(
    ("view", "says"),
    [
        (
            on_gpu(),
            [
                "2 steps from step 120 on",
                "GPU busy 72% and copying 8.0%",
                "24 launches a step",
                "attention, flash",
                "50%",
            ],
        ),
        (
            on_gpu(),
            ["copy to the device, pageable", "GPU idle while the host was", "synchronizing", "matrix product, fp16"],
        ),
        (on_host(), ["1 step from step 12 on", "aten::mm  256x32 32x256", "backward", "67%", "the trace took 20 ms"]),
        (untraced(), ["no step was traced", "off: the program uses a profiler"]),
    ],
)
@pytest.mark.parametrize("size", [(160, 45), (100, 30)])
async def test_the_screen(app_on, screen_text, view, says, size) -> None:
    app = app_on(view)
    async with app.run_test(size=size) as pilot:
        await pilot.press("K")
        await pilot.pause()
        assert all(part in screen_text(app) for part in says), screen_text(app)


async def shows(pilot, condition) -> None:
    """Wait for what another thread or a later message brings; the limit is against hanging."""
    for _ in range(1_000):
        await pilot.pause(0.01)
        if condition():
            return
    raise AssertionError("it did not come")


async def test_a_key_asks_for_a_trace_after_a_question(app_on, screen_text) -> None:
    asked: list[str] = []

    def ask(say) -> None:
        asked.append("once")
        say("Accepted by rank 0")

    app = app_on(on_host(), ask_for_trace=ask)
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("K", "n")
        await shows(pilot, lambda: "Trace three steps?" in screen_text(app))
        assert not asked
        await pilot.press("n")
        await shows(pilot, lambda: "Trace three steps?" not in screen_text(app))
        assert not asked
        await pilot.press("n")
        await shows(pilot, lambda: "Trace three steps?" in screen_text(app))
        await pilot.press("y", "y")
        await shows(pilot, lambda: "Accepted by rank 0" in screen_text(app))
        assert asked == ["once"]


async def test_the_reason_of_a_refusal_is_shown(app_on, screen_text) -> None:
    def refuse(say) -> None:
        raise RuntimeError("the program uses a profiler")

    app = app_on(untraced(), ask_for_trace=refuse)
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("K", "n")
        await shows(pilot, lambda: "Trace three steps?" in screen_text(app))
        await pilot.press("y")
        await shows(pilot, lambda: "Not traced: the program uses a profiler" in screen_text(app))


async def test_a_key_shows_where_each_thread_is(app_on, screen_text) -> None:
    def tell(say) -> None:
        for number in range(40):
            say(f"rank {number}: wait in sync.py:{number}")

    app = app_on(on_host(), tell_stacks=tell)
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("S")
        await shows(pilot, lambda: "rank 0: wait in sync.py:0" in screen_text(app))
        await pilot.press("end")
        await shows(pilot, lambda: "rank 39: wait in sync.py:39" in screen_text(app))
        await pilot.press("escape")
        await shows(pilot, lambda: "Where it is" not in screen_text(app))


async def test_a_run_that_cannot_be_asked_has_no_such_dialog(app_on, screen_text) -> None:
    app = app_on(on_host())
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        await pilot.press("K", "n")
        await pilot.pause()
        await shows(pilot, lambda: "Only a running training can be traced" in screen_text(app))
        assert "Trace three steps?" not in screen_text(app)
