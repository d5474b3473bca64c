"""Memory that ends, and memory that is never given back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trainhooks.protocol.events import Facts, Host

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


def short(
    trainers: Callable[[int], float], others: Callable[[int], float], n: int = 20, steps: int = 5, **fields: object
) -> Story:
    """A run of some seconds, five steps in each; GiB of the training processes and of their children."""
    told = Story()
    for i in range(n):
        for _ in range(steps):
            told.step_with(dict(fields), forward=0.5 / steps, backward=0.5 / steps)
        of_trainers, of_all = int(trainers(i) * GIB), int((trainers(i) + others(i)) * GIB)
        known = {"tree_rss": of_all, "trainers_rss": of_trainers, "memory_used": of_all + 2 * GIB}
        told.tell(Host, memory_total=24 * GIB, **known)
    return told


def leak_of(told: Story, alive: bool = False) -> tuple[str, str] | None:
    found = [row for row in judged(told, alive)[0] if row.code == "memory-leak"]
    return (found[0].severity, found[0].title) if found else None


def test_a_leak_shows_in_a_short_run_and_names_whose_memory_grows() -> None:
    """Losses kept with their graphs: 0.35 to 1.2 GiB in 400 steps."""
    kept = leak_of(short(lambda i: 0.35 + 0.045 * i, lambda i: 0.0))
    assert kept is not None and kept[0] == "warning" and "training process grows" in kept[1]
    workers = leak_of(short(lambda i: 0.4, lambda i: 0.7 + 0.045 * i))
    assert workers is not None and "workers" in workers[1]


def test_what_a_program_gives_back_at_its_end_hides_no_leak() -> None:
    told = short(lambda i: 0.35 + 0.045 * i, lambda i: 0.0)
    for i in range(6):
        told.wait(1.0).tell(Host, tree_rss=GIB // (i + 1), memory_used=2 * GIB, memory_total=24 * GIB)
    assert leak_of(told) is not None


def test_a_short_run_without_a_leak_is_not_accused() -> None:
    innocent: list[Callable[[int], float]] = [
        lambda i: 0.4 + 0.3 * min(i, 4),  # the allocator and libraries, then nothing
        lambda i: 0.4 + 0.08 * min(i, 10),  # a cache that is full
        lambda i: 0.4 + 0.05 * (i % 5),  # garbage
        lambda i: 0.4 + (1.0 if i % 7 in (3, 4) else 0.0),  # validations
        lambda i: 0.4 if i < 12 else 1.5,  # something that is loaded late
        lambda i: 0.4 + 0.004 * i,  # too little to matter
    ]
    for rss in innocent:
        assert leak_of(short(rss, lambda i: 0.0)) is None
        assert leak_of(short(lambda i: 0.4, rss)) is None


def test_longer_sequences_take_more_memory_and_none_is_lost() -> None:
    told = Story()
    for i in range(20):
        for _ in range(5):
            told.step_with({"tokens": 1000 + 100 * i, "samples": 8}, forward=0.1, backward=0.1)
        used = int((0.4 + 0.05 * i) * GIB)
        told.tell(Host, tree_rss=used, trainers_rss=used, memory_used=used + 2 * GIB, memory_total=24 * GIB)
    assert leak_of(told) is None


def test_growth_within_a_step_is_its_work() -> None:
    told = Story()
    for i in range(4):
        for second in range(10):
            used = int((0.4 + 0.05 * (10 * i + second)) * GIB)
            told.wait(1.0).tell(Host, tree_rss=used, memory_used=used + 2 * GIB, memory_total=24 * GIB)
        told.step(forward=0.1)
    assert leak_of(told) is None


def test_while_a_first_pass_goes_on_a_cache_may_still_fill() -> None:
    told = short(lambda i: 0.35 + 0.045 * i, lambda i: 0.0, n=40)
    assert leak_of(told, alive=True) is not None
    passes = short(lambda i: 0.35 + 0.045 * i, lambda i: 0.0, n=40)
    passes.events.insert(1, Facts("p", 1, 100.0, facts={"passes": {"number": 1, "batches": 5000}}))
    assert leak_of(passes, alive=True) is None
    assert leak_of(passes, alive=False) is not None, "nothing was given back to the end"


def test_a_run_that_is_about_to_be_killed_is_critical() -> None:
    filling = leak_of(short(lambda i: 8 + 0.1 * i, lambda i: 0.0, n=100), alive=True)
    assert filling is not None and filling[0] == "critical"
