"""What no hook may do, in trainings that make it easy: captures, errors, forks, other devices, threads and streams."""

from __future__ import annotations

from typing import Any

import pytest

from tests.hooks.conftest import Told
from tests.simulated_device.plays import Plays

# Steps of half a second are all timed: a timed one costs a thousandth of that.
PRELUDE = """
import atexit, os, sys, threading, time, types
from tests.simulated_device import Device, begin, mutants
from tests.simulated_device.install import install_fake
from tests.simulated_device.workloads import breathe
device, clock = begin()
second = Device(clock, 1)
face = install_fake(device, second)
cuda = face.cuda
atexit.register(lambda: print(sorted(face.misdeeds)))
import trainhooks as th

def forward(on=device, seconds=0.4):
    with th.phase('forward'): on.launch(4, seconds / 4)

def backward(on=device, seconds=0.1):
    with th.phase('backward'): on.launch(2, seconds / 2)

def finish(on=device):
    on.synchronize()

def aside(call):
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
"""


def timed(told: Told, misdeeds: str = "[]") -> dict[int, dict[str, float]]:
    """The phases of the steps that were timed; each is told once, and nothing forbidden was done."""
    assert told.out.splitlines()[-1] == misdeeds, told.out
    events = told.kind("gpu_time")
    steps = [event["step"] for event in events]
    assert len(set(steps)) == len(steps) and set(steps) <= set(told.indices)
    return {event["step"]: dict(event["phases"]) for event in events if "seconds" in event}


def run(play: Plays, script: str, misdeeds: str = "[]") -> tuple[Told, dict[int, dict[str, float]]]:
    told = play.script(PRELUDE + script)
    return told, timed(told, misdeeds)


def test_steps_of_half_a_second_are_all_timed(play: Plays) -> None:
    told, times = run(play, "for i in th.steps(range(12)): forward(); backward(); finish()")
    assert list(times) == told.indices == list(range(1, 13))
    for phases in times.values():
        assert phases["forward"] == pytest.approx(0.4, abs=0.001) == phases["backward"] + 0.3


CAPTURED_ASIDE = """
if MUTANT: mutants.apply(MUTANT, face)
class Tensor:
    is_cuda, is_cpu, dtype, device = True, False, 'f32', types.SimpleNamespace(index=0)
    def numel(self): return 1
    def detach(self): raise RuntimeError
copied = []
sys.modules['torch'].empty = lambda *_, **__: copied.append(second.capture)  # to where a value would be copied
graph = cuda.CUDAGraph()
for i in th.steps(range(12)):
    if i == 4: aside(lambda: (cuda.set_device(1), graph.capture_begin()))
    if i == 8: aside(lambda: (cuda.set_device(1), graph.capture_end()))
    th.log(loss=Tensor())
    forward(); backward(); finish()
    if i == 6: device.host(15.0); breathe()  # the background thread looks at the devices each ten seconds
finish()
assert len(copied) > 4 and not any(copied), 'values are copied, but in no capture'
"""


def test_a_capture_of_another_thread_is_left_alone(play: Plays) -> None:
    """It would be broken by any call of ours: it is of mode `global`, which forbids them to all threads."""
    _, times = run(play, CAPTURED_ASIDE.replace("MUTANT", "''"))
    assert not set(times) & {5, 6, 7, 8} and set(times) >= {1, 2, 3, 4, 10, 11}


def test_who_is_blind_to_captures_breaks_it(play: Plays) -> None:
    told = play.script(PRELUDE + CAPTURED_ASIDE.replace("MUTANT", "'blind to captures'"), good=False)
    assert "previous error during capture" in told.err or "in a capture" in told.out


def test_a_capture_of_its_own_is_left_alone(play: Plays) -> None:
    """It begins inside a phase, and lasts into the next step; meanwhile the devices are due. Later, torch compiles."""
    told, times = run(
        play,
        """
graph = cuda.CUDAGraph()
for i in th.steps(range(10)):
    with th.phase('forward'):
        device.launch(4, 0.1)
        if i == 3: graph.capture_begin()
        if i in (3, 4): device.host(15.0); breathe()
        device.launch(4, 0.1)
    if i == 4: graph.capture_end()
    if i > 4: graph.replay()
    backward()
    if i not in (3, 4): finish()
    face.compiling = i == 7
""",
    )
    assert not set(times) & {4, 5, 8, 9} and set(times) >= {1, 2, 3, 7, 10}
    assert {event["step"] for event in told.kind("gpu_time")} >= {4, 5}, "they are counted as given up"


@pytest.mark.parametrize("error", ["an illegal memory access was encountered", "device-side assert triggered"])
def test_an_error_of_the_device_ends_the_lane_and_nothing_else(play: Plays, error: str) -> None:
    """It is the program that has to see it; we ask once, and no more."""
    told, times = run(
        play,
        f"""
seen = []
for i in th.steps(range(8)):
    if i == 4: device.error, before = {error!r}, sum(face.calls.values())
    try: forward(); backward(); finish()
    except RuntimeError as wrong: seen.append(str(wrong))
breathe()
assert len(seen) == 4 and all({error!r} in each for each in seen)
after = sum(face.calls.values()) - before
assert after <= 4, (after, face.calls)
""",
    )
    assert told.indices == list(range(1, 9)) and set(times) <= {1, 2, 3, 4}
    notes = [event["text"] for event in told.kind("note")]
    assert len(notes) == 1 and error in notes[0]


def test_a_child_touches_nothing(play: Plays) -> None:
    told = play.script(
        PRELUDE
        + """
from trainhooks import session
loop = th.steps(range(8))
for i in loop:
    forward(); finish()
    if i == 3:
        child = os.fork()
        if child == 0:
            before = dict(face.calls)
            assert not session.device.watching
            th.log(a=1.0)
            for _ in loop: forward(); finish()
            with th.step(): backward()
            os._exit(1 if face.misdeeds or face.calls != before else 0)
        assert os.waitpid(child, 0)[1] == 0
"""
    )
    assert told.out == "[]\n"


def test_a_second_device_is_told_of_by_its_own_events(play: Plays) -> None:
    """The thread goes over to it in the middle of a step; events belong to the device that they were recorded on."""
    _, times = run(
        play,
        """
for i in th.steps(range(12)):
    on = second if i >= 5 else device
    with th.phase('data'): device.host(0.01)
    if i == 5: cuda.set_device(1)
    forward(on); backward(on); finish(on)
""",
    )
    assert 6 not in times and set(times) >= {1, 2, 3, 4, 5, 8, 9, 10}
    assert times[9]["forward"] == pytest.approx(0.4, abs=0.001)


def test_another_thread_that_steps_is_not_timed(play: Plays) -> None:
    told, times = run(
        play,
        """
def beside():
    cuda.set_device(1)
    for _ in th.steps(range(6)):
        with th.phase('aside'): second.launch(2, 0.05)
for i in th.steps(range(10)):
    if i == 4: aside(beside)
    forward(); backward(); finish()
""",
    )
    assert {name for phases in times.values() for name in phases} <= {"data", "forward", "backward"}
    assert len(times) >= 8 and len(told.indices) == 16


PREFETCH = """
side = cuda.Stream()
for i in th.steps(range(10)):
    with th.phase('h2d'):
        with cuda.stream(side): device.copy(2.5e9, label='h2d')
        cuda.current_stream().wait_stream(side)
    forward(); backward(); finish()
"""


def test_a_stream_that_is_waited_for_is_in_the_phase(play: Plays) -> None:
    """100 ms on a stream of copies, which the lane waits for before it goes on; then what begins after is late."""
    _, times = run(play, PREFETCH)
    assert len(times) >= 8
    for phases in times.values():
        assert phases["h2d"] + phases["forward"] == pytest.approx(0.5, abs=0.005)


def test_a_rank_that_comes_late_shows_in_backward(play: Plays) -> None:
    """Its peers' reduction is waited for at backward's end, on the device; no timed event was put on its stream."""
    told, times = run(
        play,
        """
for i in th.steps(range(10)):
    forward()
    with th.phase('backward'):
        device.launch(2, 0.05)
        device.collective(0.01, late=0.2)
        device.wait_stream(device.communication)
    finish()
""",
    )
    assert len(times) >= 8 and all(each["backward"] == pytest.approx(0.31, abs=0.001) for each in times.values())
    assert all(step["duration"] < 0.8 for step in told.steps)


def test_values_are_taken_without_waiting(play: Plays) -> None:
    """By the real torch: a loss that is logged as it lies on the device."""
    told = play.script(
        """
import atexit
from tests.simulated_device import begin
from tests.simulated_device.install import install, place
device, clock = begin()
face = install(device)
atexit.register(lambda: print(sorted(face.misdeeds), device.waited))
import torch
import trainhooks as th
from tests.simulated_device.workloads import breathe
for i in th.steps(range(60)):
    device.launch(10, 0.002)
    th.log(loss=place(torch.tensor(float(i))))
device.host(1.0)
for i in th.steps(range(2)): device.host(0.01)
breathe()
"""
    )
    assert told.out == "[] 0\n"
    logged: dict[int, Any] = {step["index"]: step["metrics"]["loss"] for step in told.steps if step.get("metrics")}
    logged.update({event["step"]: event["values"]["loss"] for event in told.kind("metrics")})
    assert logged and all(value == step - 1 for step, value in logged.items()), "each the value of its own step"
