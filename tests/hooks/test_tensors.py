"""Tensors as metrics: those in host memory at once, those on a device without ever waiting for it."""

from __future__ import annotations

import pytest

from .conftest import Told, Trainings


def test_tensors_in_host_memory_are_read_at_once(train: Trainings) -> None:
    told = train(
        """
        import torch
        one = torch.tensor(1.5)
        with th.step():
            th.log(zero_d=one, one=one.reshape(1, 1), grad=one.clone().requires_grad_() * 2, whole=torch.tensor(3),
                   bf16=one.bfloat16(), half=one.half(), flag=torch.tensor(True), nan=one * float('nan'),
                   inf=torch.tensor(float('-inf')), parameter=torch.nn.Parameter(one))
            th.log(many=torch.ones(2), none=torch.ones(0), meta=torch.ones((), device='meta'), i=torch.tensor(1j),
                   sparse=torch.eye(2).to_sparse(), half=torch.tensor(0.5))
            th.count(tokens=one, samples=torch.tensor(3))
        """
    )
    (step,) = told.steps
    assert step["metrics"] == {
        "zero_d": 1.5, "one": 1.5, "grad": 3.0, "whole": 3, "bf16": 1.5, "half": 0.5, "flag": 1,
        "nan": "nan", "inf": "-inf", "parameter": 1.5,
    }  # fmt: skip
    assert (step["tokens"], step["samples"]) == (1, 3)


# A torch whose tensors say so when anything reads them. `ready` is what the device has finished.
FAKE = """
import types
ready = False
reads = []
class Tensor:
    is_cuda, is_cpu, dtype, size_ = True, False, 'f32', 1
    device = types.SimpleNamespace(type='cuda', index=0)
    def __init__(self, value): self.value = value
    def detach(self): return self
    def reshape(self, *shape): return self
    def numel(self): return self.size_
    def wait(self, *_): reads.append('waited'); raise RuntimeError('this waits for the device')
    item = cpu = tolist = numpy = __float__ = __int__ = __bool__ = __str__ = __repr__ = __array__ = wait
class Host:
    def copy_(self, source, non_blocking=False):
        if not non_blocking: reads.append('blocking copy')
        self.value = source.value
    def item(self):
        if not ready: reads.append('too early')
        return self.value
class Event:
    def record(self, stream): self.thread = threading.get_ident()
    def query(self):
        if self.thread != threading.get_ident(): reads.append('asked from elsewhere')
        return ready
    def synchronize(self): reads.append('synchronized')
def empty(shape, dtype=None, device=None, pin_memory=False):
    if not pin_memory: reads.append('not pinned')
    return Host()
capturing = False
cuda = types.SimpleNamespace(
    Event=Event, is_current_stream_capturing=lambda: capturing, current_stream=lambda device: device)
sys.modules['torch'] = types.SimpleNamespace(cuda=cuda, empty=empty, __version__='9')
from trainhooks.device import deferred
deferred.MIN_COPY_INTERVAL_NS = 0  # every value is taken
import atexit
atexit.register(lambda: print(sorted(set(reads))))  # after all else: registered before the hooks are started
"""


def losses(told: Told) -> list[tuple[int, float]]:
    """The losses by step: with the step that still waited in its block when they could be read, else after it."""
    rows = [(step["index"], step["metrics"]["loss"]) for step in told.steps if "loss" in step.get("metrics", {})]
    rows += [(event["step"], event["values"]["loss"]) for event in told.kind("metrics") if "step" in event]
    return sorted(rows)


def test_a_tensor_on_the_device_arrives_with_its_step_index(train: Trainings) -> None:
    told = train(
        FAKE
        + """
for i in th.steps(range(6), role='r'):
    th.log(loss=Tensor(i + 0.5), plain=i)
    ready = i == 3
"""
    )
    assert told.out == "[]\n"
    assert [step["metrics"]["plain"] for step in told.steps] == [*range(6)]
    assert losses(told) == [(i + 1, i + 0.5) for i in range(4)]
    assert {event["role"] for event in [*told.steps, *told.kind("metrics")]} == {"r"}
    assert told.report.metrics["r/loss"].last == 3.5


def test_steps_made_by_hand_and_the_last_step_are_read_too(train: Trainings) -> None:
    told = train(
        FAKE
        + """
for i in range(3):
    with th.step(): th.log(loss=Tensor(i))
    ready = True
th.log(**{'af\\x1bter': Tensor(9)})
"""
    )
    assert told.out == "[]\n"
    assert losses(told) == [(1, 0), (2, 1), (3, 2)]
    assert [event["values"] for event in told.kind("metrics") if "step" not in event] == [{"af ter": 9}]


def test_a_value_that_arrives_while_its_step_is_open(train: Trainings) -> None:
    told = train(
        FAKE
        + """
for i in th.steps(range(2)):
    th.log(loss=Tensor(i)); ready = True
    for _ in th.steps(range(2)): pass
"""
    )
    assert [step["metrics"] for step in told.steps] == [{"loss": 0}, {"loss": 1}]
    assert told.out == "[]\n"


def test_no_event_is_queried_while_a_graph_is_captured(train: Trainings) -> None:
    told = train(
        FAKE
        + """
for i in th.steps(range(4)):
    ready = True
    th.log(loss=Tensor(i))
    capturing = i in (0, 1)
"""
    )
    assert told.out == "[]\n"
    # What was logged in the capture is not to be had; what came before it waits for its end.
    assert losses(told) == [(1, 0), (4, 3)]


def test_copies_in_flight_are_bounded_and_large_tensors_ignored(train: Trainings) -> None:
    told = train(
        FAKE
        + """
from trainhooks.device import deferred
big = Tensor(1); big.size_ = 4
with th.step():
    for i in range(6000): th.log(a=Tensor(i))
    th.log(big=big); th.count(tokens=big); th.note('fine')
print(len(deferred.waiting))
"""
    )
    assert told.out == "512\n[]\n"
    assert "metrics" not in told.steps[0]


def test_a_device_in_error_raises_nothing_from_the_hooks(train: Trainings) -> None:
    told = train(
        FAKE
        + """
def fail(self): raise RuntimeError('CUDA error')
for i in th.steps(range(4)):
    th.log(loss=Tensor(i), ok=i)
    Event.query = fail
    if i == 2: Event.record = fail
"""
    )
    assert [step["metrics"] for step in told.steps] == [{"ok": i} for i in range(4)]


def test_a_forked_child_frees_nothing_of_the_device(train: Trainings) -> None:
    told = train(
        FAKE
        + """
pid = os.getpid()
def freed(self):
    if os.getpid() != pid: os.write(1, b'freed in the child')
Event.__del__ = Host.__del__ = freed
for i in th.steps(range(2)):
    th.log(loss=Tensor(i))
    child = os.fork()
    if not child:
        import gc; gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
"""
    )
    assert told.out == "[]\n"


@pytest.mark.parametrize("fails", ["query", "record", "copy_", ""])
def test_pinned_memory_and_events_are_never_freed(train: Trainings, fails: str) -> None:
    """After an error of the device torch ends the process where one is: not in an exception, and not at the exit."""
    told = train(
        FAKE
        + f"""
def freed(self): os.write(1, b'freed')
Event.__del__ = Host.__del__ = freed
def fail(*_, **__): raise RuntimeError('CUDA error')
for i in th.steps(range(6)):
    th.log(loss=Tensor(i), other=Tensor(i))
    ready = i > 1
    if i == 3 and {fails!r}: setattr(Host if {fails!r} == 'copy_' else Event, {fails!r}, fail)
"""
    )
    assert told.out == "[]\n" and len(told.steps) == 6


def test_values_are_copied_in_and_out_of_inference_mode(train: Trainings) -> None:
    """The place that was made in the one is written to in the other."""
    told = train(
        """
        import torch
        from trainhooks.device import cuda, deferred
        empty = torch.empty
        torch.empty = lambda *args, pin_memory, **more: empty(*args, **more)
        with torch.inference_mode():
            place = cuda.make_pinned(torch.float32)
        assert not place.is_inference()
        place.copy_(torch.ones(()))
        with torch.inference_mode():
            place.copy_(torch.ones(()) * 2)
        with th.step(): th.log(value=place)
        """
    )
    assert told.steps[0]["metrics"] == {"value": 2.0}


def test_foreign_arrays_are_not_read_on_the_training_thread(train: Trainings) -> None:
    """An array of another library may live on a device; `item` would wait for it."""
    told = train(
        """
        class Array:
            size, shape = 1, ()
            def item(self): print('waited')
            def __float__(self): return float(threading.current_thread() is threading.main_thread())
        with th.step(): th.log(a=Array())
        """
    )
    assert told.out == ""
    assert told.steps[0]["metrics"] == {"a": 0.0}
