"""Which device the lane is on, where the program's is not its thread's current one; and that nothing of it is freed."""

from __future__ import annotations

import pytest

from tests.simulated_device.plays import Plays
from tests.simulated_device.test_safety import PRELUDE, run, timed

# An event on a device that has no context makes one there, for as long as the process lives.
CONTEXTS = """
contexts = set()
record = face.Event.record
def recorded(self, stream=None):
    if stream.device_index not in contexts: face.misdeed(f'a context on device {stream.device_index}')
    record(self, stream)
face.Event.record = recorded
sys.modules['torch']._C._cuda_hasPrimaryContext = lambda index: index in contexts
memory = cuda.memory_stats_as_nested_dict
def allocated(index):
    stats = memory(index)
    if index not in had: stats['allocated_bytes']['all']['allocated'] = 0
    return stats
cuda.memory_stats_as_nested_dict = allocated
"""


@pytest.mark.parametrize(
    ("contexts", "had", "told"),
    [
        ({1}, {1}, ""),
        ({0, 1}, {1}, ""),  # its memory was asked for, say
        ({0, 1}, {0, 1}, "from trainhooks import session; session.device.place.works_on(1)"),
    ],
)
def test_a_model_on_another_device_than_the_current_one(
    play: Plays, contexts: set[int], had: set[int], told: str
) -> None:
    """`model.to("cuda:1")`, and no `set_device`."""
    _, times = run(
        play,
        CONTEXTS
        + f"""
contexts.update({contexts}); had = {had}
{told}
assert cuda.current_device() == 0
for i in th.steps(range(12)): forward(second); backward(second); finish(second)
""",
    )
    assert len(times) >= 10
    assert all(phases["forward"] == pytest.approx(0.4, abs=0.001) for phases in times.values())


def test_where_it_is_not_clear_nothing_is_timed(play: Plays) -> None:
    told, times = run(
        play,
        CONTEXTS
        + """
contexts.update({0, 1}); had = set()
for i in th.steps(range(8)): forward(second); finish(second)
""",
    )
    assert times == {} and len(told.indices) == 8


def test_a_gpu_that_is_only_asked_for_its_name_is_left_alone(play: Plays) -> None:
    """A training on the host; later it goes over to the device."""
    _, times = run(
        play,
        CONTEXTS
        + """
had = {0}
for i in th.steps(range(30)):
    if i < 15: device.host(0.5)
    if i == 14: assert not face.calls.get('Event.record'), face.calls
    if i == 15: contexts.add(0); device.host(0.5); breathe()
    if i >= 15: forward(); backward(); finish()
""",
    )
    assert times and min(times) >= 16


def test_an_event_is_never_freed(play: Plays) -> None:
    """Freed at the interpreter's end, or in a child that ends as programs do, it is a call to a device that is gone."""
    told = play.script(
        PRELUDE
        + """
face.Event.__del__ = lambda self: os.write(1, b'freed')
loop = th.steps(range(10))
for i in loop:
    if i == 5: cuda.set_device(1)
    on = second if i >= 5 else device
    forward(on); finish(on)
    if i == 3:
        child = os.fork()
        if child == 0: sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
"""
    )
    assert "freed" not in told.out and len(timed(told)) >= 6


def test_steps_that_can_never_be_timed_are_not_all_tried(play: Plays) -> None:
    """Each goes over to another device in its middle. What the tries cost is within the budget, too."""
    told, times = run(
        play,
        """
for i in th.steps(range(400)):
    cuda.set_device(0); device.host(0.001)
    with th.phase('forward'): cuda.set_device(1)
    if i % 100 == 99: breathe()
print(face.calls['Event.record'])
""",
    )
    assert times == {} and len(told.indices) == 400
    assert 10 <= int(told.out.split()[0]) < 200
