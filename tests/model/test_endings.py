"""How runs end: what is a crash, what is a lack of memory, and what is neither."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from monitor.model.report import Finding
from monitor.model.state import Ending
from trainhooks.protocol.events import Exit, Host

from .conftest import Story, folded, judged_state, report_of
from .test_hardware_rules import GIB
from .test_rules import healthy

Scene = Callable[[], list[Finding]]


def ending(told: Story | None = None, **exit_: Any) -> Scene:
    """A training, and how its launcher saw it end."""
    state = folded(told or healthy())
    state.ending = Ending(t=state.last_event, **exit_)
    return lambda: judged_state(state, alive=False)[0]


def with_memory(told: Story, used: float, total: float = 64) -> Story:
    for _ in range(5):
        told.now += 1
        told.tell(Host, tree_rss=int((used - 2) * GIB), memory_used=int(used * GIB), memory_total=int(total * GIB))
    return told


CUDA_OOM = "OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"
KILLED_WORKER = "RuntimeError: DataLoader worker (pid 5) is killed by signal: Killed."
SICK: dict[str, Scene] = {
    "crashed": ending(healthy().bye("ValueError: bad sample"), exit_code=1),
    "out-of-memory": ending(healthy().bye(CUDA_OOM), exit_code=1),
}
INNOCENT: dict[str, list[Scene]] = {
    "crashed": [
        ending(healthy().bye(), exit_code=0),
        ending(healthy().bye("KeyboardInterrupt: "), signal=2),
        ending(healthy().bye(), exit_code=3),  # by its own decision
        ending(healthy(), signal=15),  # by a scheduler
        ending(healthy().bye(), exit_code=1, error="ValueError: survived", place="train.py:3 in f"),
    ],
    "out-of-memory": [
        ending(healthy().bye("ValueError: bad sample"), exit_code=1),
        ending(with_memory(healthy(), 20), signal=9),
        ending(with_memory(healthy(), 63), signal=9, oom_kills=0),
        ending(healthy().bye(), exit_code=0, oom_kills=1),
    ],
}  # fmt: skip
NOT_IN_ZOO: dict[str, str] = {}


@pytest.mark.parametrize("code", SICK)
def test_it_comes_first(code: str) -> None:
    found = SICK[code]()
    assert (found[0].code, found[0].severity) == (code, "critical")
    assert found[0].evidence and found[0].advice


@pytest.mark.parametrize(
    ("code", "place"), [(code, place) for code, rows in INNOCENT.items() for place in range(len(rows))]
)
def test_it_is_silent_in_the_nearest_innocent_cases(code: str, place: int) -> None:
    grave = [finding.code for finding in INNOCENT[code][place]() if finding.severity != "info"]
    assert code not in grave


@pytest.mark.parametrize(
    "scene",
    [
        pytest.param(ending(with_memory(healthy(), 20), signal=9, oom_kills=1), id="counted, by a lower limit"),
        pytest.param(ending(with_memory(healthy(), 63), signal=9), id="no count, and memory is full"),
        pytest.param(ending(healthy().bye(KILLED_WORKER), exit_code=1, oom_kills=1), id="a worker"),
        pytest.param(ending(exit_code=1, oom_kills=2), id="a rank, under a launcher"),
        pytest.param(ending(exit_code=137, oom_kills=1), id="under a shell"),
    ],
)
def test_what_the_kernel_killed(scene: Scene) -> None:
    assert scene()[0].code == "out-of-memory"


def test_a_worker_that_something_else_killed_is_a_crash() -> None:
    assert ending(healthy().bye(KILLED_WORKER), exit_code=1, oom_kills=0)()[0].code == "crashed"


@pytest.mark.parametrize("exit_", [{"signal": 11}, {"exit_code": 139}, {"signal": 6}, {"exit_code": 1}])
def test_a_process_that_takes_no_leave(exit_: dict[str, int]) -> None:
    found = ending(**exit_)()
    assert (found[0].code, found[0].severity) == ("crashed", "critical")


def test_a_kill_of_unknown_origin_is_no_more_than_information() -> None:
    (finding,) = [each for each in ending(signal=9)() if each.code == "crashed"]
    assert finding.severity == "info"


def test_the_first_error_of_several_ranks_is_the_cause() -> None:
    first, second = healthy(), Story("q", rank=1)
    for _ in range(40):
        second.step(forward=0.1)
    second.now = first.now - 0.5
    second.bye("ValueError: the cause")
    first.bye("RuntimeError: Connection closed by peer")
    told = folded(first, second)
    told.ending = Ending(exit_code=1, t=told.last_event)
    (finding,) = [each for each in judged_state(told, alive=False)[0] if each.code == "crashed"]
    assert "ValueError" in finding.title


def test_what_was_printed_is_the_cause_where_no_process_reports() -> None:
    told = Story("node", source="recorder")
    told.tell(Exit, exit_code=1, error="KeyError: 'model'", place="train.py:7 in main")
    found = judged_state(folded(told), alive=False, launched=True)[0]
    assert [each.code for each in found] == ["crashed"], "and nobody asks why nothing reports"
    assert "train.py:7" in found[0].title


def test_of_a_training_that_has_just_ended_the_memory_that_it_held_is_told() -> None:
    told = with_memory(healthy(), 12)
    told.tell(Host, tree_rss=0, tree_processes=1, memory_used=10 * GIB, memory_total=64 * GIB)
    assert report_of(told).host.tree_rss == 10 * GIB
