"""The device's lane by CUDA events, against a stand-in device that keeps a queue: nothing here has a GPU.

Every step is timed here; which ones are where they cost too much is `test_device_lane.py`'s subject.
"""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Told, Trainings

# A torch with one device. `work(seconds)` queues work on the current stream; the device does one thing after the other,
# and an event is done when what was queued before it is. `misdeeds` is what no clock may do.
FAKE = """
import types
now = time.monotonic
misdeeds, pid = [], os.getpid()
class Stream:
    done = 0.0
    def __init__(self, handle, device_index=0): self.cuda_stream, self.device_index = handle, device_index
    def __enter__(self): self.before, cuda.stream = cuda.stream, self; return self
    def __exit__(self, *_): cuda.stream = self.before
def work(seconds): cuda.stream.done = max(cuda.stream.done, now()) + seconds
def wait(): sleep(max(0.0, cuda.stream.done - now()))
class Event:
    made, recorded = 0, 0
    def __init__(self, enable_timing=False):
        Event.made += 1
        self.timing, self.at, self.thread = enable_timing, None, None
    def check(self):
        if cuda.capturing or cuda.graphs: misdeeds.append('touched in a capture')
        if cuda.compiling: misdeeds.append('touched while compiling')
        if os.getpid() != pid: misdeeds.append('touched in a child')
        if not cuda.initialized: misdeeds.append('initialized CUDA')
        if self.thread not in (None, threading.get_ident()): misdeeds.append('touched from another thread')
    def record(self, stream):
        self.check()
        Event.recorded += 1
        self.thread, self.stream, self.at = threading.get_ident(), stream, max(stream.done, now())
    def query(self):
        self.check()
        return not cuda.stuck and now() >= self.at
    def elapsed_time(self, end):
        if not (self.timing and end.timing and self.query() and end.query()): misdeeds.append('read too early')
        if self.stream.device_index != end.stream.device_index: misdeeds.append('devices mixed')
        return (end.at - self.at) * 1000
    def synchronize(self): misdeeds.append('synchronized')
    wait = synchronize
class CUDAGraph:
    def capture_begin(self, pool=None, capture_error_mode='global'): cuda.graphs += 1
    def capture_end(self): cuda.graphs -= 1
cuda = types.SimpleNamespace(
    CUDAGraph=CUDAGraph, graphs=0, Event=Event, stream=Stream(0), initialized=True, capturing=False, compiling=False,
    stuck=False,
    is_initialized=lambda: cuda.initialized, current_stream=lambda device=None: cuda.stream,
    current_device=lambda: cuda.stream.device_index, device_count=lambda: 2,
    is_current_stream_capturing=lambda: cuda.capturing, synchronize=lambda: misdeeds.append('synchronized'),
)
compiler = types.SimpleNamespace(is_compiling=lambda: cuda.compiling)
sys.modules['torch'] = types.SimpleNamespace(
    _C=types.SimpleNamespace(_cuda_hasPrimaryContext=lambda index: True),
    cuda=cuda, compiler=compiler, version=types.SimpleNamespace(cuda='13.0'), __version__='9')
from trainhooks.device import device_lane, device_sampling
from trainhooks import session
device_lane.MAX_LATENESS_NS = 100_000_000  # a busy machine holds a thread up anywhere
device_sampling.BUDGET = float(os.environ.get('BUDGET', '1e9'))
lane = session.device
import atexit
atexit.register(lambda: print(sorted(set(misdeeds))))  # after all else: registered before the hooks are started
"""


def gpu_times(told: Told, dropped: bool = False) -> dict[int, dict[str, Any]]:
    """What was told of the steps that were timed, or of those that were not; nothing forbidden was done on the way."""
    assert told.out.endswith("[]\n"), told.out
    times = {event["step"]: event for event in told.kind("gpu_time")}
    assert len(times) == len(told.kind("gpu_time")), "a step was told twice"
    assert set(times) <= set(told.indices), "of a step that is none"
    return {step: event for step, event in times.items() if ("seconds" not in event) == dropped}


def phases(event: dict[str, Any]) -> dict[str, float]:
    return {name: round(seconds, 4) for name, seconds in event.get("phases", [])}


def test_gpu_time_is_measured_where_the_host_runs_ahead(train: Trainings) -> None:
    told = train(
        FAKE
        + """
work(0.05)
for i in th.steps(range(8)):
    with th.phase('forward'):
        work(0.01)
        with th.phase('reward'): work(0.004)
        work(0.002)
    with th.phase('backward'): work(0.02)
    with th.phase('backward'): work(0.01)
    with th.span('checkpoint'): work(0.003)
    work(0.005)
wait()
""",
    )
    times = gpu_times(told)
    assert list(times) == told.indices == list(range(1, 9))
    for event in times.values():
        assert phases(event) == {"data": 0.0, "forward": 0.012, "reward": 0.004, "backward": 0.03, "checkpoint": 0.003}
        assert event["seconds"] == pytest.approx(0.054, abs=1e-4), "the step's own work is `other`"
        assert 0 <= event["busy"] <= event["seconds"]
        assert "dropped" not in event
    assert all(seconds < 0.01 for step in told.steps for seconds in [step["duration"]]), "the host's times stay"


def test_certain_work_is_measured_by_phase(train: Trainings) -> None:
    """A lower bound: most of what there was where the host ran ahead, and never more than that."""
    told = train(
        FAKE
        + """
for i in th.steps(range(20)):
    for _ in range(4):
        with th.phase('forward'):
            if i < 10: work(0.02)
            else: sleep(0.01)
    wait()
""",
    )
    times = gpu_times(told)
    ahead, idle = (
        [event.get("busy", 0.0) for step, event in times.items() if (step <= 10) == which] for which in (1, 0)
    )
    assert 0.5 * 0.8 < sum(ahead) <= 0.8 + 1e-6
    assert sum(idle) < 0.05 * sum(event["seconds"] for step, event in times.items() if step > 10)
    for event in times.values():
        assert sum(seconds for _, seconds in event.get("busy_phases", [])) == pytest.approx(event.get("busy", 0.0))
        held = dict(event["phases"], other=event["seconds"])
        assert all(seconds <= held[name] + 1e-9 for name, seconds in event.get("busy_phases", []))
    behind = {step: event.get("lag", 0.0) for step, event in times.items()}
    assert all(0.03 < behind[step] < 0.09 for step in range(2, 11)) and behind[19] < 0.01


def test_events_are_queried_oldest_first_once_the_gpu_is_done(train: Trainings) -> None:
    told = train(
        FAKE
        + """
for i in th.steps(range(12)):
    cuda.stuck = i < 6
    if i == 8: in_journal('"kind":"gpu_time"')
wait()
""",
    )
    assert list(gpu_times(told)) == list(range(1, 13))


@pytest.mark.parametrize("off", ["TRAINMON_GPU_CLOCK", "ROCm", "CUDA is not started"])
def test_a_clock_that_is_off_times_nothing(train: Trainings, off: str) -> None:
    told = train(
        FAKE
        + f"""
off = {off!r}
"""
        + """
from collections import deque
if off == 'ROCm': sys.modules['torch'].version.cuda = None
if off == 'CUDA is not started': cuda.initialized = False
for i in th.steps(range(20)):
    with th.phase('forward'):
        assert type(session.here.put.__self__) is deque, 'something stands before the lane'
    if i == 15: written()
print(Event.made, lane.watching)
""",
        **{off: "0"} if off.isupper() else {},
    )
    assert told.out == "0 False\n[]\n"
    assert told.kind("gpu_time") == []
    said = [event["facts"]["device_clock"] for event in told.kind("facts") if "device_clock" in event["facts"]]
    assert said == {"ROCm": ["off: ROCm was never tried"], "TRAINMON_GPU_CLOCK": ["off: by setting"]}.get(off, [])


def test_nothing_is_recorded_during_a_capture(train: Trainings) -> None:
    """It begins inside a phase, and lasts into the next step; neither is timed."""
    told = train(
        FAKE
        + """
for i in th.steps(range(8)):
    with th.phase('forward'):
        work(0.001)
        if i == 3: cuda.capturing = True
    with th.phase('backward'): work(0.001)
    if i == 4: cuda.capturing = False
    cuda.compiling = i == 5
wait()
""",
    )
    assert list(gpu_times(told)) == [1, 2, 3, 8], "the seventh began while something was compiled"
    assert list(gpu_times(told, dropped=True)) == [4, 5, 6, 7] and gpu_times(told)[8]["dropped"] == 4


def test_another_stream_is_timed_and_another_device_gives_the_step_up(train: Trainings) -> None:
    told = train(
        FAKE
        + """
side, other = Stream(7), Stream(0, device_index=1)
for i in th.steps(range(6)):
    if i == 1:
        with side, th.phase('h2d'): work(0.001); sleep(0.001)
    if i == 2:
        with side: work(0.05)  # it runs on while the lane goes on: its mark is kept between the lane's
        with side, th.phase('ahead'): pass
    if i == 3: cuda.stream = other
    with th.phase('forward'): work(0.001)
    wait()
    with side: wait()
""",
    )
    times = gpu_times(told)
    assert 4 not in times and {1, 2, 3, 5, 6} <= set(times)
    assert phases(times[6])["forward"] == 0.001
    assert phases(times[2])["h2d"] >= 0.001 and phases(times[3])["ahead"] < 0.03
    for event in times.values():
        assert sum(phases(event).values()) <= event["seconds"] + 1e-3 and event["seconds"] < 0.1


@pytest.mark.parametrize("call", ["record", "query", "elapsed_time", "__init__"])
def test_a_cuda_error_ends_the_clock_and_not_the_training(train: Trainings, call: str) -> None:
    told = train(
        FAKE
        + f"""
def fail(*_, **__): calls.append(1); raise RuntimeError('CUDA error: \\x1b[31mlaunch failure')
calls = []
for i in th.steps(range(6)):
    if i == 2: Event.{call} = fail; Event.made = 0; lane._pool._free.clear()
    with th.phase('forward'): pass
print(len(calls))
""",
    )
    gpu_times(told)
    assert told.out.startswith("1\n"), "it was not asked again"
    assert told.indices == list(range(1, 7))
    (note,) = told.kind("note")
    assert note["text"].startswith("the GPU clock is off from here on: RuntimeError: CUDA error") and "\x1b" not in str(
        note
    )


def test_events_and_steps_under_way_are_bounded(train: Trainings) -> None:
    told = train(
        FAKE
        + """
cuda.stuck = True
for i in th.steps(range(300)):
    for _ in range(20 if i != 70 else 1000):
        with th.phase('forward'): pass
assert Event.made <= device_lane.MAX_EVENTS, Event.made
assert len(lane._under_way) <= device_lane.MAX_UNDER_WAY
made, cuda.stuck = Event.made, False
for i in th.steps(range(40)):
    with th.phase('forward'): pass
assert Event.made - made < 200, 'events are used again'
""",
    )
    times = gpu_times(told)
    assert set(range(1, 60)) <= set(times) and set(range(310, 341)) <= set(times) and not {100, 200, 290} & set(times)
    assert sorted([*times, *gpu_times(told, dropped=True)]) == told.indices
    assert times[340]["dropped"] == 340 - len(times)


def test_a_forked_child_touches_no_event(train: Trainings) -> None:
    told = train(
        FAKE
        + """
loop = th.steps(range(4))
for i in loop:
    with th.phase('forward'): work(0.001)
    if i == 1:
        child = os.fork()
        if child == 0:
            for _ in loop:
                with th.phase('forward'): pass
            with th.step(): th.phase('x').__enter__()
            os._exit(1 if misdeeds else 0)
        assert os.waitpid(child, 0)[1] == 0
wait()
""",
    )
    parent = [path for path in told.journals if '"gpu_time"' in path.read_text()]
    assert told.out == "[]\n" and len(parent) == 1


def test_only_one_thread_is_timed_and_queries_events(train: Trainings) -> None:
    told = train(
        FAKE
        + """
def beside():
    for i in th.steps(range(30)):
        with th.phase('aside'): sleep(0.001)
next_thread = threading.Thread(target=beside)
for i in th.steps(range(20)):
    if i == 3: next_thread.start()
    with th.phase('forward'): work(0.001); sleep(0.002)
next_thread.join()
""",
    )
    times = gpu_times(told)
    assert {name for event in times.values() for name in phases(event)} == {"data", "forward"}
    assert len(times) == 20


def test_only_whole_steps_are_sent(train: Trainings) -> None:
    """Ended by an exception, left at once, not begun."""
    told = train(
        FAKE
        + """
for i in range(3):
    try:
        with th.step():
            work(0.001)
            if i == 1: raise ValueError
    except ValueError: pass
for i in th.steps(range(9)):
    if i == 2: break
    with th.phase('forward'): work(0.001); sleep(0.001)
th.note('on it goes')
wait()
""",
    )
    times = gpu_times(told)
    assert told.indices == [1, 2, 3, 4] == list(times)
    assert phases(times[3])["forward"] >= 0.001


def test_automatic_steps_are_timed_by_phase(train: Trainings) -> None:
    """As `auto` tells them: grounds, ends and begins of one moment, and a begin in hindsight, which is not timed."""
    told = train(
        FAKE
        + """
from trainhooks.lane_entries import AUTOMATIC, BACKWARD, DATA, END, FORWARD, NO_PHASE, STEP
put, clock, ended = session.quiet_put(), time.monotonic_ns, 0
session.announce()
work(0.05)
for i in range(6):
    began = clock()
    if ended and i != 3: began = ended
    if i == 3: sleep(0.15)
    lane.begins(session.here.lane, AUTOMATIC)
    put = session.here.lane.put
    put((STEP, began, AUTOMATIC)); put((DATA, began))
    put((FORWARD, clock())); work(0.004)
    with th.phase('generation'): work(0.002)
    put((BACKWARD, clock())); work(0.006)
    put((NO_PHASE, clock()))
    ended = clock()
    put((END, ended, AUTOMATIC))
wait()
with th.phase('last'): pass
""",
    )
    times = gpu_times(told)
    assert list(times) == [1, 2, 3, 5, 6]
    assert phases(times[2]) == {"data": 0.0, "forward": 0.004, "generation": 0.002, "backward": 0.006}
    assert times[6]["dropped"] == 1


def test_cuda_is_never_started_and_torch_never_imported(train: Trainings) -> None:
    told = train(
        FAKE
        + """
cuda.initialized = False
for i in th.steps(range(4)):
    if i == 2: cuda.initialized = True
    with th.phase('forward'): work(0.001)
wait()
""",
    )
    assert list(gpu_times(told)) == [4]
    bare = train("for i in th.steps(range(4)): pass\nprint('torch' in sys.modules)")
    assert bare.out == "False\n"


def test_a_torch_without_a_gpu_is_not_changed(train: Trainings) -> None:
    """The real one: same graphs, no note, no times."""
    script = """
        import torch
        graphs = []
        def backend(graph, _):
            graphs.append(graph)
            return graph
        model = torch.nn.Linear(4, 4)
        @torch.compile(backend=backend)
        def loss(x):
            return model(x).relu().sum()
        for i in th.steps(range(4)):
            with th.phase('forward'): value = loss(torch.ones(2, 4))
            with th.phase('backward'): value.backward()
        print(len(graphs), torch.cuda.is_initialized())
    """
    told = train(script)
    assert told.out == "1 False\n"
    assert told.kind("gpu_time") == told.kind("note") == []
