"""The device's clock step by step: which steps are timed, what is told of each, and where one is given up."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.hooks.conftest import Told
from tests.simulated_device.plays import Plays
from tests.simulated_device.test_safety import PRELUDE, timed

# Every step is timed here; which ones are where they cost too much is the subject of `test_lane`.
EVERY = (
    PRELUDE
    + """
from time import sleep
from trainhooks import session
from trainhooks.device import device_lane, device_sampling
device_sampling.BUDGET = 1e9
lane = session.device
"""
)


def run(play: Plays, script: str, **environment: str) -> tuple[Told, dict[int, dict[str, Any]]]:
    """What was told, and the events of the steps that were timed."""
    told = play.script(EVERY + script, **environment)
    timed(told)
    return told, {event["step"]: event for event in told.kind("gpu_time") if "seconds" in event}


def given_up(told: Told) -> list[int]:
    return [event["step"] for event in told.kind("gpu_time") if "seconds" not in event]


def phases(event: dict[str, Any]) -> dict[str, float]:
    return {name: round(seconds, 3) for name, seconds in event["phases"]}


@pytest.mark.long
def test_phases_nest_and_add_up_where_the_host_runs_ahead(play: Plays) -> None:
    told, times = run(
        play,
        """
for i in th.steps(range(8)):
    with th.phase('forward'):
        device.launch(1, 0.10)
        with th.phase('reward'): device.launch(1, 0.04)
        device.launch(1, 0.02)
    for seconds in (0.2, 0.1):
        with th.phase('backward'): device.launch(1, seconds)
    with th.span('checkpoint'): device.launch(1, 0.03)
    device.launch(1, 0.05)
finish()
""",
    )
    assert list(times) == told.indices == list(range(1, 9))
    for event in times.values():
        assert phases(event) == {"data": 0.0, "forward": 0.12, "reward": 0.04, "backward": 0.3, "checkpoint": 0.03}
        assert event["seconds"] == pytest.approx(0.54, abs=0.001), "the step's own work is `other`"
        assert 0 <= event["busy"] <= event["seconds"] and "dropped" not in event
    assert all(event["lag"] > 0.4 for step, event in times.items() if step > 2)
    assert all(step["duration"] < 0.01 for step in told.steps), "the host's times stay"


@pytest.mark.parametrize("off", ["TRAINMON_GPU_CLOCK", "ROCm", "CUDA is not started"])
def test_a_clock_that_is_off_times_nothing(play: Plays, off: str) -> None:
    told, times = run(
        play,
        f"off = {off!r}"
        """
from collections import deque
if off == 'ROCm': sys.modules['torch'].version.cuda = None
if off == 'CUDA is not started': face.initialized = False
for i in th.steps(range(20)):
    with th.phase('forward'):
        assert type(session.here.put.__self__) is deque, 'something stands before the lane'
    if i == 15: breathe()
assert not face.events and not lane.watching
""",
        **{off: "0"} if off.isupper() else {},
    )
    assert times == {} and given_up(told) == []
    said = [event["facts"]["device_clock"] for event in told.kind("facts") if "device_clock" in event["facts"]]
    assert said == {"ROCm": ["off: ROCm was never tried"], "TRAINMON_GPU_CLOCK": ["off: by setting"]}.get(off, [])


def test_cuda_that_starts_later_is_timed_from_then_on(play: Plays) -> None:
    _, times = run(
        play,
        """
face.initialized = False
for i in th.steps(range(4)):
    if i == 2: face.initialized = True
    forward()
finish()
""",
    )
    assert list(times) == [4]


def test_untimed_steps_put_straight_into_the_lane(play: Plays) -> None:
    told, times = run(
        play,
        """
from collections import deque
device_sampling.Sampling._block_size = lambda self, step: 1 if self._done < 3 else 10
plain = []
def is_plain(): plain.append(type(session.here.put.__self__) is deque)
for i in th.steps(range(200)):
    forward(seconds=0.01); is_plain(); finish()
    with th.step(): pass  # no step: a phase of the outer one
for i in range(100):
    with th.step(): forward(seconds=0.01); is_plain(); finish()
finish()
assert face.events < 40, face.events
print(plain.count(False))
""",
    )
    assert int(told.out.split()[0]) == len(times) and 25 <= len(times) <= 40
    assert len({b - a for a, b in pairwise(sorted(times))}) > 5
    assert {event.get("every", 1) for event in times.values()} == {1, 10}
    assert all(name in ("data", "forward", "step") for event in times.values() for name, _ in event["phases"])


def test_only_whole_steps_are_told(play: Plays) -> None:
    """Ended by an exception, left at once, not begun."""
    told, times = run(
        play,
        """
for i in range(3):
    try:
        with th.step():
            forward()
            if i == 1: raise ValueError
    except ValueError: pass
    finish()
for i in th.steps(range(9)):
    if i == 2: break
    forward(); finish()
th.note('on it goes')
""",
    )
    assert list(times) == told.indices == [1, 2, 3, 4]
    assert all(phases(event)["forward"] == 0.4 for event in times.values())


def test_steps_are_told_by_phase_as_automatic_ones_come(play: Plays) -> None:
    """Entries, ends and begins of one moment; and a begin in hindsight, which is not timed."""
    _, times = run(
        play,
        """
from trainhooks.lane_entries import AUTOMATIC, BACKWARD, DATA, END, FORWARD, NO_PHASE, STEP
put, now, ended = session.quiet_put(), time.monotonic_ns, 0
session.announce()
device.launch(1, 0.5)
for i in range(6):
    began = ended if ended and i != 3 else now()
    if i == 3: device.host(0.15)
    lane.begins(session.here.lane, AUTOMATIC)
    put = session.here.lane.put
    put((STEP, began, AUTOMATIC)); put((DATA, began))
    put((FORWARD, now())); device.launch(1, 0.04)
    with th.phase('generation'): device.launch(1, 0.02)
    put((BACKWARD, now())); device.launch(1, 0.06)
    put((NO_PHASE, now()))
    ended = now()
    put((END, ended, AUTOMATIC))
finish()
with th.phase('last'): pass
""",
    )
    assert list(times) == [1, 2, 3, 5, 6]
    assert phases(times[2]) == {"data": 0.0, "forward": 0.04, "generation": 0.02, "backward": 0.06}
    assert times[6]["dropped"] == 1


def test_a_stream_that_runs_on_is_marked_between_the_lane_s_own(play: Plays) -> None:
    _, times = run(
        play,
        """
side = cuda.Stream()
for i in th.steps(range(6)):
    if i == 1:
        with cuda.stream(side), th.phase('h2d'): device.launch(1, 0.1); device.host(0.1)
    if i == 2:
        with cuda.stream(side): device.launch(1, 5.0)
        with cuda.stream(side), th.phase('ahead'): pass
    forward(); finish(); side.synchronize()
""",
    )
    assert list(times) == [1, 2, 3, 4, 5, 6]
    assert phases(times[2])["h2d"] >= 0.1 and phases(times[3])["ahead"] < 0.3
    for event in times.values():
        assert sum(phases(event).values()) <= event["seconds"] + 0.01


@pytest.mark.parametrize("call", ["record", "query", "elapsed_time", "__init__"])
def test_an_error_of_any_call_ends_the_clock_and_not_the_training(play: Plays, call: str) -> None:
    told, _ = run(
        play,
        f"""
def fail(*_, **__): calls.append(1); raise RuntimeError('CUDA error: \\x1b[31mlaunch failure')
calls = []
for i in th.steps(range(6)):
    if i == 2: face.Event.{call} = fail; lane._pool._free.clear()
    with th.phase('forward'): pass
assert calls == [1], 'it was asked again'
""",
    )
    assert told.indices == list(range(1, 7))
    (note,) = told.kind("note")
    assert note["text"].startswith("the GPU clock is off from here on: RuntimeError: CUDA error")
    assert "\x1b" not in str(note)


def test_events_and_steps_under_way_are_bounded(play: Plays) -> None:
    told, times = run(
        play,
        """
stuck, query = [True], face.Event.query
face.Event.query = lambda self: not stuck and query(self)
for i in th.steps(range(300)):
    for _ in range(20 if i != 70 else 1000):
        with th.phase('forward'): pass
assert face.events <= device_lane.MAX_EVENTS, face.events
assert len(lane._under_way) <= device_lane.MAX_UNDER_WAY
made = face.events
stuck.clear()
for i in th.steps(range(40)):
    with th.phase('forward'): pass
assert face.events - made < 200, 'events are used again'
""",
    )
    assert set(range(1, 60)) <= set(times) and set(range(310, 341)) <= set(times) and not {100, 200, 290} & set(times)
    assert sorted([*times, *given_up(told)]) == told.indices
    assert times[340]["dropped"] == 340 - len(times)


def test_the_exit_reads_finished_events_without_waiting(play: Plays) -> None:
    _, times = run(
        play,
        """
for i in th.steps(range(5)):
    forward(seconds=0.4 if i < 3 else 5000.0)
    if i == 2: finish()
assert clock.elapsed < 10e9
""",
    )
    assert list(times) == [1, 2, 3]


# Garbage collection

COLLECTS = """
import gc
def listening(): return sum(hasattr(each, '_trainhooks_pauses') for each in gc.callbacks)
class Slow:
    def __del__(self): device.host(0.05)
def collect():
    slow = Slow()
    slow.itself = slow
    del slow
    gc.collect()
gc.disable()
"""


def test_collections_are_told_with_timed_steps(play: Plays) -> None:
    told, times = run(
        play,
        COLLECTS
        + """
atexit.register(lambda: print('at the end', listening()))
th.init()
while not listening(): sleep(0.01)
for i in th.steps(range(8)):
    forward()
    with th.phase('backward'):
        device.host(0.5)
        if i == 3: collect()
    finish()
    if i == 5: collect()
print('in a step', listening())
with th.span('eval'): collect()
""",
    )
    assert told.out.startswith("in a step 1\nat the end 0\n")
    assert all("gc_phases" in event for event in times.values()), "none is told, too"
    (backward,), (other,) = times[4]["gc_phases"], times[6]["gc_phases"]
    assert (backward[0], other[0]) == ("backward", "other") and backward[1] == pytest.approx(0.05, abs=0.001)
    assert all(times[step]["gc_phases"] == [] for step in (1, 2, 3, 5, 7, 8))
    between = {step: event["gc"] for step, event in times.items() if "gc" in event}
    assert list(between) == [2, 3, 4, 5, 6, 7, 8] and all(between[step] == 0.0 for step in (2, 3, 4, 6, 8))
    assert between[5] == pytest.approx(backward[1]), "the device had done all that was queued when it began"
    assert between[7] == pytest.approx(other[1])


@pytest.mark.parametrize(("setup", "clock"), [("face.initialized = False", "1"), ("", "0")])
def test_collections_are_not_watched_without_a_timed_device(play: Plays, setup: str, clock: str) -> None:
    _, times = run(
        play,
        COLLECTS
        + f"""
{setup}
for i in th.steps(range(4)):
    sleep(0.06)
    assert not listening()
assert gc.callbacks == []
""",
        TRAINMON_GPU_CLOCK=clock,
    )
    assert times == {}


def test_a_forked_child_does_not_watch_collections(play: Plays) -> None:
    run(
        play,
        COLLECTS
        + """
th.init()
while not listening(): sleep(0.01)
child = os.fork()
if not child:
    gc.collect()
    os._exit(listening())
assert os.waitpid(child, 0)[1] == 0 and listening() == 1
""",
    )
