"""Memory that ends, and memory that is never given back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trainhooks.events import Host

from .conftest import Story, judged
from .test_hardware_rules import GIB, on_gpu, on_host
from .test_rules import codes, healthy


@pytest.mark.parametrize("error", ["OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "MemoryError: "])
def test_a_run_that_ended_without_memory(error: str) -> None:
    found, _ = judged(healthy().bye(error), alive=False)
    assert (found[0].code, found[0].severity) == ("out-of-memory", "critical")
    assert error.strip() in found[0].evidence[0]


@pytest.mark.parametrize(("used", "fires"), [(63.0, True), (20.0, False)])
def test_a_kill_is_explained_by_a_full_machine_alone(used: float, fires: bool) -> None:
    from monitor.model.state import Ending

    from .conftest import folded, judged_state

    state = folded(on_host(rss=lambda i: used - 4))
    state.host[-1].memory_used = int(used * GIB)
    state.ending = Ending(-9, 9, state.last_event)
    found, _ = judged_state(state, alive=False)
    assert ("out-of-memory" in [finding.code for finding in found]) == fires


def test_a_limit_counts_what_processes_hold_and_no_cached_files() -> None:
    """A cgroup's own count holds the page cache: at its limit it is full of files, and nothing ends."""
    grown = {"memory_limit": 16 * GIB}
    cached = on_host(rss=lambda i: 4, memory_limited=int(15.9 * GIB), **grown)
    assert "oom-risk" not in codes(cached)


def test_a_leak_shows_beside_neighbors_that_come_and_go() -> None:
    shared = on_host(200, rss=lambda i: 2 + 0.1 * i, used=lambda i: 6 + 0.1 * i + 4 * (i // 30 % 2))
    assert "memory-leak" in codes(shared)


def leaking(seconds: Callable[[int], float], rss: Callable[[int], float], n: int = 300) -> Story:
    told = Story()
    for i in range(n):
        told.step(forward=seconds(i))
        in_use = int(rss(i) * GIB)
        told.tell(Host, tree_rss=in_use, memory_used=in_use + 2 * GIB, memory_total=64 * GIB)
    return told


def test_a_leak_is_one_by_steps_also_where_they_become_slower() -> None:
    """What each step keeps takes longer to come together; a cache that fills does so by steps as well."""
    assert "memory-leak" in codes(leaking(lambda i: 0.4 if i < 250 else 1.6, lambda i: 2 + 0.05 * i))
    assert "memory-leak" not in codes(leaking(lambda i: 1.6 if i < 100 else 0.4, lambda i: 2 + min(0.05 * i, 8)))


def test_an_evaluation_in_which_nothing_is_kept_hides_no_leak() -> None:
    told = leaking(lambda i: 0.4, lambda i: 2 + 0.05 * i, 200)
    for _ in range(40):
        told.span("eval", 0.4).tell(Host, tree_rss=12 * GIB, memory_used=14 * GIB, memory_total=64 * GIB)
    for i in range(200, 300):
        told.step(forward=0.4)
        told.tell(Host, tree_rss=int((2 + 0.05 * i) * GIB), memory_used=20 * GIB, memory_total=64 * GIB)
    assert "memory-leak" in codes(told)


def test_a_drift_while_memory_fills_is_a_memory_finding() -> None:
    slowing = leaking(lambda i: 0.4 + 0.001 * i, lambda i: 2 + 0.05 * i)
    assert [each for each in codes(slowing) if each in ("memory-leak", "slow-drift")] == ["memory-leak"]
    assert "slow-drift" in codes(leaking(lambda i: 0.4 + 0.001 * i, lambda i: 2))


def test_memory_of_a_gpu_that_climbs_is_a_leak() -> None:
    climbing = on_gpu(autocast="bfloat16", used=lambda i: 10 + 0.2 * i, n=200)
    assert "memory-leak" in codes(climbing)
    assert "memory-leak" not in codes(on_gpu(autocast="bfloat16", used=lambda i: min(10 + i, 40), n=200))
