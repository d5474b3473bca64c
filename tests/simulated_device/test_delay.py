"""Steps before which the device is held up: what they tell of busy time, against the ledger; what they must not do."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from monitor.model.device.device_report import Device, Estimate
from monitor.reports.run_text import text
from tests.hooks.conftest import Told
from tests.simulated_device import checks
from tests.simulated_device.plays import Played, Plays
from trainhooks import tracing
from trainhooks.device import device_sampling

pytestmark = pytest.mark.long

OFF = {tracing.VARIABLE: "0"}
CHECKPOINT = 0.5  # seconds of one, in which nothing is trained: so that steps take little of a test's own time
# Without a recorder: what the driver tells would be of the checkpoints' time, mostly.
SHORT: dict[str, dict[str, Any]] = {
    "launch-bound": {"changes": {"steps": 1600, "checkpoint_every": 20}, "recorder": False},
    "mixed": {"changes": {"steps": 900, "checkpoint_every": 10}, "recorder": False},
    "half-a-millisecond": {"changes": {"steps": 2000, "checkpoint_every": 20}, "recorder": False},
    "sync-in-layers": {"changes": {"steps": 900, "checkpoint_every": 10}, "recorder": False},
}
TELLING = ("launch-bound", "mixed", "half-a-millisecond")


def delayed(told: Told) -> list[dict[str, Any]]:
    return [event for event in told.kind("gpu_time") if "delayed" in event]


def said(told: Told) -> list[str]:
    """What was told of delays, in its order."""
    facts = [event.get("facts", {}) for event in told.kind("facts")]
    return [each["device_delay"] for each in facts if "device_delay" in each]


def device_of(told: Told) -> Device:
    found = told.report.device
    assert found is not None
    return found


def estimated(played: Played) -> Estimate:
    found = device_of(played.told).estimate
    assert found is not None
    return found


def seconds_in_steps(played: Played) -> float:
    every, steps = played.workload.checkpoint_every, played.workload.steps
    whole: float = played.truth["elapsed"] / 1e9
    return whole - CHECKPOINT * (steps // every if every else 0)


# What they tell


@pytest.mark.parametrize("name", TELLING)
def test_busy_time_is_the_ledgers(play: Plays, name: str) -> None:
    """Within two points, as a whole and by phase; and the range holds it."""
    played = play(name, **SHORT[name])
    true = {phase: each / seconds_in_steps(played) for phase, each in checks.true_phases(played, False).items()}
    found, busy = estimated(played), sum(true.values())
    assert (
        found.steps >= device_sampling.MAX_VOID_DELAYS and found.busy_least is not None and found.busy_most is not None
    )
    assert found.busy_least == pytest.approx(busy, abs=checks.POINTS)
    assert found.busy_most == pytest.approx(busy, abs=checks.POINTS)
    assert found.range_least is not None and found.range_most is not None
    assert found.range_least <= busy <= found.range_most < found.range_least + 4 * checks.POINTS
    for phase in ("forward", "backward", "optimizer"):
        assert found.phases[phase] == pytest.approx(true[phase], abs=checks.POINTS)
    assert played.truth["misdeeds"] == []


@pytest.mark.parametrize("name", TELLING)
def test_the_range_of_busy_is_narrowed_to_it(play: Plays, name: str) -> None:
    """By events alone nothing decides these."""
    device, before = (
        device_of(play(name, **SHORT[name]).told),
        device_of(play(name, **SHORT[name], environment=OFF).told),
    )
    assert before.estimate is None and before.delays is None
    assert before.busy_least is not None and before.busy_most is not None
    assert device.busy_least is not None and device.busy_most is not None
    assert before.busy_most - before.busy_least > 0.3 > 0.1 > device.busy_most - device.busy_least
    assert device.gain_limit == pytest.approx(1 / device.busy_least)
    assert device.estimate is not None and device.estimate.steps >= 3


def test_it_decides_what_bounds_a_run(play: Plays) -> None:
    bounds = {name: device_of(play(name, **SHORT[name]).told).bound for name in TELLING}
    assert bounds["launch-bound"] == "host" and bounds["half-a-millisecond"] == "device"


def test_steps_that_wait_for_the_device_give_no_estimate(play: Plays) -> None:
    """Their host never gets ahead, so they cost three delays and no more, and it is said so."""
    played = play("sync-in-layers", **SHORT["sync-in-layers"])
    found = estimated(played)
    assert (found.steps, found.busy_least, found.range_least) == (0, None, None) and 3 <= found.void <= 4
    assert said(played.told)[-1] == device_sampling.NEVER_AHEAD
    device, before = device_of(played.told), device_of(play("sync-in-layers", **SHORT["sync-in-layers"]).told)
    assert device.busy_most == pytest.approx(before.busy_most, abs=0.01)
    assert device.busy_least == pytest.approx(before.busy_least, abs=0.01)


# Where it may go wrong

# A host that takes 8 ms to queue 3 ms of work; a second passes after each twentieth step.
SCRIPT = """
import random, sys, time
import atexit
from tests.simulated_device import begin
from tests.simulated_device.install import install_fake
device, clock = begin()
face = install_fake(device)
cuda = face.cuda
atexit.register(lambda: print(sorted(face.misdeeds), face.calls.get('_sleep', 0)))
BEFORE
import trainhooks as th
for i in th.steps(range(800)):
    if i % 20 == 0:
        with th.phase('eval'): device.host(1.0)
        time.sleep(0.02)  # the background thread lives in real time
    device.step = i + 1
    with th.phase('forward'): device.host(0.004); device.launch(10, 0.0001)
    with th.phase('backward'): device.host(0.004); device.launch(10, 0.0002)
    DURING
device.synchronize()
"""


def run(play: Plays, before: str = "", during: str = "", asked: bool = True, **environment: str) -> tuple[Told, int]:
    """The script, with lines of a test's own. Also how often the device was held up; nothing forbidden was done."""
    wanted = {} if asked else OFF
    told = play.script(SCRIPT.replace("BEFORE", before).replace("DURING", during), **wanted, **environment)
    misdeeds, _, count = told.out.splitlines()[-1].rpartition(" ")
    assert misdeeds == "[]"
    return told, int(count)


def test_the_script_itself_is_told_of(play: Plays) -> None:
    """Else what follows would show nothing."""
    told, count = run(play)
    found = device_of(told).estimate
    assert found is not None and count == found.steps + found.void >= 3
    assert found.phases["forward"] == pytest.approx(0.5 * found.phases["backward"], rel=0.05)


def test_a_delay_that_does_nothing_is_found_out(play: Plays) -> None:
    """Intervals are then no more than intervals: were it assumed that the host is ahead, it would be all busy."""
    told, _ = run(play, before="cuda._sleep = lambda cycles: None")
    found = device_of(told).estimate
    assert found is not None and found.steps == 0 < found.void and found.busy_least is None
    assert all(event["delayed"] < 0.001 for event in delayed(told))


def test_more_launches_than_the_queue_holds_tell_nothing(play: Plays) -> None:
    """The host waits for room and is not ahead of the rest: seen by the lag."""
    told, count = run(play, during="with th.phase('optimizer'): device.launch(1500, 2e-6)")
    found = device_of(told).estimate
    last = delayed(told)[-1]
    assert found is not None and count >= 2 and found.steps == 0 and found.busy_least is None
    assert last["delayed"] > 0.02 and dict(last["unsure"])["optimizer"] > 0.001, "long enough, and still not ahead"


@pytest.mark.parametrize(
    ("before", "why"),
    [
        ("cuda.mem_get_info = lambda *_: (7 * 2**30, 80 * 2**30)", device_sampling.NO_MEMORY),
        ("del cuda._sleep", device_sampling.MISSING),
        ("del cuda.mem_get_info", device_sampling.NO_MEMORY),
    ],
)
def test_where_it_cannot_be_done_it_is_said_so(play: Plays, before: str, why: str) -> None:
    told, count = run(play, before=before)
    assert count == 0 and delayed(told) == [] and said(told)[-1] == why
    assert why in text(told.report) and len(told.kind("gpu_time")) > 50, "and steps are timed all the same"


def test_one_rank_alone_is_delayed(play: Plays) -> None:
    told, count = run(play, RANK="1", WORLD_SIZE="2")
    assert count == 0 and said(told) == [device_sampling.OTHER_RANK]


def test_a_device_that_is_busy_anyway_is_not_held_up(play: Plays) -> None:
    told, count = run(play, during="with th.phase('optimizer'): device.launch(10, 0.002)")
    assert count == 0 and said(told)[-1] == device_sampling.BUSY


def test_a_host_that_takes_too_long_is_not_waited_for(play: Plays) -> None:
    told, count = run(play, during="device.host(0.05)")
    assert count == 0 and said(told)[-1] == device_sampling.LONG


def test_nothing_is_held_up_while_a_graph_is_captured(play: Plays) -> None:
    """In any thread. Steps that begin outside of one are; what then cannot be timed is dropped."""
    captures = "graph = graph if i % 7 else cuda.CUDAGraph(); (i % 7 == 5 and graph.capture_begin())"
    told, count = run(play, during=captures + "; (i % 7 == 6 and graph.capture_end())")
    assert count > 0 and delayed(told)


def test_marks_on_another_stream_make_a_delayed_step_void(play: Plays) -> None:
    """What goes on there is not behind the delay."""
    aside = "with cuda.stream(side), th.phase('aside'): device.launch(4, 0.001)"
    told, count = run(play, before="side = cuda.Stream()", during=aside)
    assert count >= 3 and delayed(told) == [] and len(told.kind("gpu_time")) > 50
    found = device_of(told)
    assert found.estimate is None and found.dropped >= 3


def test_an_error_of_the_device_ends_the_lane_alone(play: Plays) -> None:
    raising = "def broken(cycles): raise RuntimeError('CUDA error: an illegal memory access was encountered')"
    told, count = run(play, before=raising + "\ncuda._sleep = broken")
    assert count == 0 and told.indices == list(range(1, 801))
    assert any("illegal memory access" in event["text"] for event in told.kind("note"))


# What they must leave alone


def test_where_it_is_turned_off_nothing_is_done(play: Plays) -> None:
    told, count = run(play, asked=False)
    assert count == 0 and delayed(told) == said(told) == []
    calls = play("launch-bound", **SHORT["launch-bound"], environment=OFF).truth["calls"]
    assert not {"_sleep", "mem_get_info"} & set(calls)


@pytest.mark.parametrize("name", [*TELLING, "sync-in-layers"])
def test_a_delayed_step_is_no_step_of_the_run_s_figures(play: Plays, name: str) -> None:
    """No slow step, no stretch across it, and the seconds of a step as without."""
    played, plain = play(name, **SHORT[name]), play(name, **SHORT[name], environment=OFF)
    report, before = played.told.report, plain.told.report
    events = played.told.kind("gpu_time")
    held_up = [place for place, event in enumerate(events) if "delayed" in event]
    assert len(held_up) >= 3 and not {"seconds", "phases", "since"} & {key for at in held_up for key in events[at]}
    assert all("since" not in events[at + 1] for at in held_up if at + 1 < len(events))
    assert [(each.step, each.seconds) for each in report.slow_steps] == []
    assert report.device is not None and before.device is not None
    assert report.device.seconds == pytest.approx(before.device.seconds, rel=0.01)
    # Nor are those that follow at once. What is left of the delay after that shows where hardly any time is idle.
    assert report.device.queued == pytest.approx(before.device.queued, abs=1 / device_sampling.SETTLE_FACTOR)
    shares = {row.name: row.share for row in before.phases}
    assert {row.name: row.share for row in report.phases} == pytest.approx(shares, abs=0.02)  # other steps are timed


@pytest.mark.parametrize("name", TELLING)
def test_they_cost_what_they_may(play: Plays, name: str) -> None:
    """Seldom, and with all else that the lane does within its budget."""
    played = play(name, **SHORT[name])
    events = delayed(played.told)
    assert 3 <= len(events) <= device_sampling.MAX_TRIES
    starts = {step["index"]: step["start"] for step in played.told.steps}
    spaces = [starts[b["step"]] - starts[a["step"]] for a, b in pairwise(events)]
    assert min(spaces) >= device_sampling.MIN_SPACING_NS / 1e9
    held_up = sum(event["delayed"] for event in events)
    assert held_up <= device_sampling.MAX_DELAY_SHARE * played.truth["elapsed"] / 1e9
    assert checks.cost(played) + held_up / (played.truth["elapsed"] / 1e9) <= checks.BUDGET


def test_a_whole_run_takes_no_longer(play: Plays) -> None:
    """No checkpoints here: it is steps alone that pay."""
    plain, played = (play("mixed", changes={"steps": 2600}, environment=more) for more in (OFF, {}))
    assert len(delayed(played.told)) >= 2
    assert played.truth["elapsed"] <= plain.truth["elapsed"] * (1 + device_sampling.MAX_DELAY_SHARE)


def test_beside_the_drivers_readings_the_range_still_holds_the_truth(play: Plays) -> None:
    """A run of nothing but steps, recorded as usual."""
    played = play("mixed", changes={"steps": 2600})
    device, busy = device_of(played.told), played.truth["busy"]
    assert device.estimate is not None and device.estimate.steps >= 3 and device.utilization is not None
    assert device.busy_least is not None and device.busy_most is not None
    assert device.busy_least <= busy <= device.busy_most < device.busy_least + 4 * checks.POINTS


def test_losses_and_random_numbers_are_as_without(play: Plays) -> None:
    script = """
        import random, time
        from tests.simulated_device import begin
        from tests.simulated_device.install import install
        device, clock = begin()
        face = install(device)
        import torch
        from tests.simulated_device.layers import Batches, Model, Optimizer
        from trainhooks.auto import imports
        imports.install()
        random.seed(7); torch.manual_seed(7)
        model, losses = Model(device, 2, (40, 4e-6), (40, 4e-6), False, 0.001), []
        optimizer = Optimizer(model.parameters(), device, (4, 4e-6))
        for i, batch in enumerate(torch.utils.data.DataLoader(Batches(device, 400, 0.0001), batch_size=None)):
            if i % 10 == 0: device.host(1.0); time.sleep(0.02)
            loss = model(torch.nn.functional.dropout(batch))
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for each in model.parameters(): each -= 1e-5 * each.grad
            optimizer.zero_grad()
            losses.append(loss.item())
        print(face.calls.get('_sleep', 0) > 2, face.misdeeds)
        print(losses, torch.rand(4).tolist(), random.random(), [each.item() for each in model.parameters()])
        """
    plain, held_up = play.script(script, **OFF), play.script(script)
    assert [told.out.splitlines()[0] for told in (plain, held_up)] == ["False []", "True []"]
    assert plain.out.splitlines()[1] == held_up.out.splitlines()[1]
    assert "nan" not in plain.out
