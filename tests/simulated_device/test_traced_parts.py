"""Traces of steps longer than a second, by parts, against what the simulated device did."""

from __future__ import annotations

import pytest

from monitor.reports.run_text import text
from tests.simulated_device.plays import TRACING, Plays
from tests.simulated_device.test_kernel_traces import REAL, Run, run, seconds
from trainhooks.tracing import tracer


def train(steps: int) -> str:
    return f"train({steps}, range(2, {steps}))"


# 16 micro-batches of 0.18 s and more launches than the driver's queue holds; an optimizer.
ACCUMULATED = """
def body(i):
    for _ in range(16):
        work('forward', 200, 0.0003)
        work('backward', 400, 0.0003)
    work('optimizer', 20, 0.01)
    device.item()
"""


def true_shares(found: Run, by_kernel: bool = False) -> dict[str, float]:
    """Device seconds by phase, or by kernel, of all steps but the first ones."""
    total: dict[str, float] = {}
    for call in found.calls:
        for one in call.pieces if call.step > 3 else ():
            name = one.name if by_kernel else call.label
            total[name] = total.get(name, 0.0) + one.end - one.start
    return {name: each / sum(total.values()) for name, each in total.items()}


def assert_reported(found: Run, step: float, within: float = 0.02) -> None:
    """The report's shares are those of whole steps, and what is not known of them is said to be so."""
    report = found.report
    assert (report.how, report.busy, report.copying, report.idle) == ("parts", None, None, [])
    assert report.seconds == pytest.approx(step, rel=0.02)
    true = {name: part for name, part in true_shares(found).items() if name in {row.name for row in report.parts}}
    told = {row.name: row.share for row in report.phases if row.share > 0.001}
    assert told == pytest.approx({name: part / sum(true.values()) for name, part in true.items() if part}, abs=within)
    device = found.told.report.device
    assert device is not None and all(row.by != "trace" for row in device.account)


@pytest.mark.long
def test_a_step_with_accumulation(play: Plays) -> None:
    """The first trace holds micro-batches; the one with the optimizer comes when it is paid for."""
    found = run(play, ACCUMULATED + train(45))
    assert found.misdeeds == [] and found.status == tracer.ON
    spent, began = 0.0, found.told.events[0]["t"]
    for trace, session in zip(found.traces, found.sessions, strict=True):
        assert trace.get("steps", 0) == 0 and (session.ended - session.began) / 1e9 < 1.1
        assert sum(row[2] for row in trace["rows"]) < tracer.MAX_EVENTS / 2
        spent += trace["pause"] if trace is not found.traces[0] else 0.0
        assert spent <= tracer.MAX_SHARE * (trace["t"] - began)
    spans = {name: (times, span) for name, times, span in found.traces[0]["parts"]}
    assert spans["forward"][1] / spans["forward"][0] == pytest.approx(0.06, rel=0.05)
    assert spans["backward"][1] / spans["backward"][0] == pytest.approx(0.12, rel=0.05)
    assert "optimizer" not in spans and "optimizer" in {name for name, _, _ in found.traces[1]["parts"]}
    assert_reported(found, 16 * 0.18 + 0.2)
    assert found.report.left_out is None and found.report.ran == pytest.approx(1.0, abs=0.02)
    assert found.report.launches == pytest.approx(16 * 600 + 20, rel=0.03)
    measured = {step["index"] for step in found.told.steps if step.get("measured")}
    assert {trace["first"] for trace in found.traces} <= measured


def test_what_was_not_traced_yet_is_said(play: Plays) -> None:
    found = run(play, ACCUMULATED + train(10))
    assert_reported(found, 16 * 0.18 + 0.2)
    assert (found.report.left_out, found.report.launches) == ("optimizer not traced", None)
    assert found.report.ran == pytest.approx(2.88 / 3.08, abs=0.02), "of the whole step"
    assert "optimizer not traced" in text(found.told.report)


def test_a_long_step_of_one_forward(play: Plays) -> None:
    """Each phase is longer than a second: one is traced where it is known how much it launches."""
    long = """
from trainhooks import session
def body(i):
    work('forward', 300, 0.01)
    work('backward', 600, 0.01)
    work('optimizer', 20, 0.01)
    device.synchronize()
"""
    found = run(play, long + "session.device.tracer.launches = 300\n" + train(20))
    assert found.misdeeds == [] and found.traces
    assert all(trace.get("steps", 0) == 0 for trace in found.traces)
    assert_reported(found, 9.2)
    assert_true_parts(found)


def test_a_long_phase_of_which_nothing_is_known_is_not_traced(play: Plays) -> None:
    """It may launch a million kernels, and nothing would end the trace."""
    found = run(
        play,
        """
def body(i):
    with th.phase('generation'), device.phase('generation'):
        for _ in range(100):
            device.launch(20, 0.0005, 'forward')
            device.item()
    work('optimizer', 4, 0.01)
    device.synchronize()
"""
        + train(30),
    )
    assert found.misdeeds == []
    for session in found.sessions:
        inside = [call for call in found.calls if session.began <= call.began < session.ended]
        assert sum("Launch" in call.name for call in inside) <= 4, "the optimizer's"
    assert "generation" not in {row.name for row in found.report.phases}
    assert found.report.left_out is not None and "generation" in found.report.left_out


def test_where_no_part_can_be_traced_it_is_said_so(play: Plays) -> None:
    waits = "def body(i):\n    with th.phase('generation'): device.launch(4, 0.3, 'forward'); device.synchronize()\n"
    found = run(play, waits + train(12))
    assert (found.sessions, found.status, found.misdeeds) == ([], tracer.LONG, [])


def test_one_long_step_among_short_ones_changes_nothing(play: Plays) -> None:
    found = run(play, "def body(i): work('forward', 4, 1.0 if i == 9 else 0.001); device.synchronize()\n" + train(30))
    assert [trace["steps"] for trace in found.traces] == [1]


@pytest.mark.long
def test_the_host_is_far_ahead_and_never_waits(play: Plays) -> None:
    """What the device has not done by the end is cut off at the last phase that it has."""
    found = run(play, ACCUMULATED.replace("    device.item()\n", "") + train(45))
    assert found.misdeeds == [] and found.traces
    assert_true_parts(found)
    assert_reported(found, 16 * 0.18 + 0.2)


@pytest.mark.long
def test_a_loop_that_launches_slowly(play: Plays) -> None:
    """The device waits inside the phases: its time in them is no kernel's, and the trace's begin makes one longer."""
    found = run(
        play,
        """
def body(i):
    for _ in range(8):
        work('forward', 100, 0.0003, host=0.07)
        work('backward', 100, 0.0006, host=0.06)
    work('optimizer', 20, 0.001)
    device.item()
"""
        + train(60),
    )
    assert found.misdeeds == [] and found.traces
    step = 8 * 0.14
    assert_reported(found, step, within=0.07)
    assert found.report.ran == pytest.approx((8 * 0.09 + 0.02) / step, abs=0.03)


def assert_true_parts(found: Run) -> None:
    """Each part holds all that the program launched in it."""
    for trace, session in zip(found.traces, found.sessions, strict=True):
        until = session.began + (trace["seconds"] + 1.0) * 1e9
        ran = seconds(trace["rows"], 1)
        for name, _, span in trace["parts"]:
            assert ran.get(name, 0.0) <= span * 1.01 + 1e-6
        launched = [c for c in found.calls if "Launch" in c.name and session.began <= c.began <= until]
        assert 0 < sum(row[2] for row in trace["rows"]) <= len(launched)


# What they leave alone

THEIRS = """
kineto, core = face.kineto, sys.modules['torch']._C._autograd
from trainhooks import session
def body(i):
    for k in range(16):
        work('forward', 200, 0.0003)
        if kineto.sessions and not kineto.sessions[0].ended and len(kineto.sessions) == 1:
            session.device.tracer.yield_to_program()
            core._prepare_profiler(None, {'cuda'}); core._enable_profiler(None, {'cuda'})
            device.launch(40, 0.0003, 'forward')
            device.synchronize()
            kinds = [each.device_type() for each in core._disable_profiler().events()]
            print('seen', kinds.count(1), i + 1, k, file=sys.stdout)
        work('backward', 400, 0.0003)
    device.item()
"""


@pytest.mark.long
def test_a_profiler_of_the_programs_ends_ours_in_the_middle_of_a_part(play: Plays) -> None:
    found = run(play, THEIRS + train(20))
    assert found.misdeeds == [] and found.status == tracer.PROGRAM
    assert [session.by_hooks for session in found.sessions] == [True, False]
    assert found.sessions[0].ended <= found.sessions[1].began
    assert int(found.told.out.split()[1]) >= 40, "what was in the queue before, too"
    for trace in found.traces:
        assert trace["parts"] and trace.get("steps", 0) == 0


@pytest.mark.long
def test_an_error_ends_the_step_in_the_middle_of_a_part(play: Plays) -> None:
    found = run(
        play,
        """
def body(i):
    if i == 12: raise KeyboardInterrupt
    for k in range(16):
        work('forward', 200, 0.0003)
        work('backward', 400, 0.0003)
    device.item()
try: train(20, range(2, 20))
except KeyboardInterrupt: breathe()
""",
    )
    assert found.misdeeds == [] and all(session.ended for session in found.sessions)


@pytest.mark.long
def test_a_healthy_training_of_long_steps_stays_silent(play: Plays) -> None:
    found = run(play, ACCUMULATED + train(45))
    loud = [each for each in found.told.report.findings if each.severity != "info"]
    assert loud == [], [each.title for each in loud]


SLOW = "device.kernels = {**KERNELS, 'forward': ('void at::native::conv_depthwise2d_forward_kernel<float>(int)',)}"


@pytest.mark.long
def test_a_slow_kernel_in_micro_batches_is_found(play: Plays) -> None:
    """It takes 31% of the step, a third of what was traced: the optimizer was not."""
    found = run(play, ACCUMULATED + train(20), before=SLOW)
    finding = next(each for each in found.told.report.findings if each.code == "slow-kernel")
    assert finding.lost_fraction == pytest.approx(0.31, abs=0.02)
    assert any("an estimate by parts of steps: optimizer not traced" in line for line in finding.evidence)


def test_losses_and_random_numbers_of_long_steps_are_as_without(play: Plays) -> None:
    """An unmodified loop with accumulation: marks come from the hooks around torch."""
    script = REAL.replace("(40, 4e-6), (40, 4e-6)", "(40, 3e-3), (40, 6e-3)") + ACCUMULATING
    plain, traced = (play.script(script, True, **{**TRACING, "TRAINMON_TRACE": wanted}) for wanted in ("0", "1"))
    assert plain.out.splitlines()[0] == traced.out.splitlines()[0] and "nan" not in plain.out
    assert plain.out.splitlines()[-1] == "[] 0" and traced.out.splitlines()[-1].startswith("[] ")
    traces = traced.kind("trace")
    assert plain.kind("trace") == [] and traces and all(trace["parts"] for trace in traces)
    assert {"forward", "backward"} <= {name for trace in traces for name, _, _ in trace["parts"]}
    device = traced.report.device
    assert device is not None and device.trace is not None and device.trace.how == "parts"


ACCUMULATING = """
for i, batch in enumerate(torch.utils.data.DataLoader(Batches(device, 160, 0.0001), batch_size=None)):
    loss = model(torch.nn.functional.dropout(batch))
    loss.backward()
    if i % 4 == 3:
        optimizer.step()
        with torch.no_grad():
            for each in model.parameters(): each -= 1e-5 * each.grad
        optimizer.zero_grad()
        losses.append(loss.item())
print(losses, torch.rand(4).tolist(), random.random(), [each.item() for each in model.parameters()])
"""
