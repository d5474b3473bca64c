"""What the machine does to a run is not blamed on the program, and what the program does is."""

from __future__ import annotations

import pytest

from trainhooks.protocol.events import Facts, Host, Metrics

from .conftest import Story, around, folded, judged, judged_state


def steady(told: Story, n: int, between: float = 0.0) -> Story:
    for _ in range(n):
        told.step(forward=0.1, backward=0.2).wait(between)
    return told


def spikes(seconds: float = 3.0, every: int = 30) -> Story:
    told = Story()
    for i in range(150):
        told.step(forward=seconds if i % every == every - 1 else 0.1, backward=0.2)
    return told


def beside(told: Story, waiting: float, readings: int = 40, stolen: float | None = None) -> Story:
    """With neighbors who take most of two cores, so that the threads wait for this share of their time."""
    for _ in range(readings):
        told.tell(Host, cores=2, cpu=100.0, tree_cpu=60.0, tree_waiting=waiting, cpu_stolen=stolen)
    return told


def said(told: Story, alive: bool = False) -> dict[str, str]:
    return {finding.code: finding.severity for finding in judged(told, alive)[0]}


def test_spikes_that_come_back_are_an_alarm() -> None:
    assert said(spikes()) == {"slow-steps": "warning"}


def test_steps_of_which_all_phases_are_long_have_no_culprit_even_if_one_takes_most() -> None:
    """A machine that is taken away makes each phase long by what it takes; one phase alone has a cause of its own."""
    for phases, severity in ((("forward", "optimizer"), "info"), (("optimizer",), "warning")):
        told = Story()
        for i in range(150):
            usual = {"forward": 0.05, "backward": 0.05, "optimizer": 0.2}
            told.step(
                **{name: 10 * spent if i % 30 == 29 and name in phases else spent for name, spent in usual.items()}
            )
        assert said(told)["slow-steps"] == severity


def test_one_hiccup_over_some_steps_in_a_row_is_none() -> None:
    told = steady(Story(), 40)
    for _ in range(3):
        told.step(forward=0.45, backward=0.2)
    assert said(steady(told, 10)) == {"slow-steps": "info"}


def test_spikes_in_all_phases_alike_are_none() -> None:
    told = Story()
    for i in range(150):
        times = 8.0 if i % 30 == 29 else 1.0
        told.step(forward=times * 0.1, backward=times * 0.1, optimizer=times * 0.1)
    assert said(told) == {"slow-steps": "info"}


def test_neighbors_are_named_and_explain_the_spikes() -> None:
    assert said(beside(spikes(0.9), 0.6)) == {"cpu-starved": "warning"}
    assert said(beside(spikes(0.9), 0.3))["cpu-starved"] == "info"
    assert "cpu-starved" not in said(beside(spikes(0.9), 0.05))


def test_other_virtual_machines_are_neighbors_too() -> None:
    assert said(beside(spikes(0.9), 0.02, stolen=60.0)) == {"cpu-starved": "warning"}
    assert said(beside(spikes(0.9), 0.02, stolen=15.0))["cpu-starved"] == "info"
    assert said(beside(spikes(0.9), 0.02, stolen=2.0)) == {"slow-steps": "info"}


def test_spikes_of_ten_times_a_step_in_one_phase_are_not_the_neighbors() -> None:
    assert said(beside(spikes(4.0), 0.6)) == {"cpu-starved": "warning", "slow-steps": "critical"}


def test_a_phase_that_is_all_of_a_step_grows_with_the_neighbors_too() -> None:
    told = Story()
    for i in range(150):
        told.step(forward=4.0 if i % 30 == 29 else 0.1, optimizer=0.001)
    assert said(beside(told, 0.6)).get("slow-steps", "info") == "info"


def test_spikes_beside_neighbors_are_information() -> None:
    def spiking(waiting: float) -> dict[str, str]:
        told = Story()
        for _ in range(300):
            beside(told.step(forward=0.1, backward=0.2), 0.01, 1)
        for i in range(40):
            beside(told.step(forward=0.1, backward=1.9 if i % 2 else 0.2), waiting, 1)
        return said(told)

    assert spiking(0.5) == {"slow-steps": "info"}
    assert spiking(0.01) == {"slow-steps": "warning"}


@pytest.mark.long
def test_a_wait_that_any_batch_costs_is_no_alarm() -> None:
    def waiting(data: float, workers: int | None) -> str:
        told = Story().tell(Facts, facts={"config": {"num_workers": workers}} if workers is not None else {})
        for _ in range(3000):
            told.step(data=data, forward=data, backward=data)
        return said(told)["input-bound"]

    assert [waiting(data, None) for data in (0.0003, 0.0008)] == ["info", "critical"]
    assert [waiting(data, 0) for data in (0.0003, 0.0008)] == ["info", "critical"]
    assert [waiting(data, 2) for data in (0.001, 0.004)] == ["info", "critical"]


def test_a_lesser_wait_for_data_beside_neighbors_is_no_alarm_and_a_great_one_is() -> None:
    def waiting(data: float, neighbors: float = 0.0) -> str:
        told = Story()
        for _ in range(60):
            told.step(data=data, forward=0.1, backward=0.2)
        return said(beside(told, neighbors))["input-bound"]

    assert (waiting(0.08), waiting(0.08, 0.3)) == ("warning", "info")
    assert (waiting(0.3), waiting(0.3, 0.3)) == ("critical", "warning")


def test_a_program_that_hardly_runs_loses_nothing_by_waiting() -> None:
    told = steady(Story(), 60)
    for _ in range(40):
        told.tell(Host, cores=2, cpu=100.0, tree_cpu=3.0, tree_waiting=0.5)
    assert said(told) == {}


def growing(waiting: tuple[float, float] | None = None, most: float = 1.0, steps: int = 240, read: int = 1) -> Story:
    """What lies between the steps grows from nothing to `most` seconds; each so many steps the host is read."""
    told = Story()
    for i in range(steps):
        told.step(forward=0.1, backward=0.2).wait(most * (i / steps) ** 2)
        if waiting is not None and i % read == 0:
            share = waiting[0] + (waiting[1] - waiting[0]) * i / steps
            told.tell(Host, cores=2, cpu=100.0, tree_cpu=100.0, tree_waiting=share)
    return told


def test_growth_between_the_steps_is_a_drift() -> None:
    found = judged(growing(), alive=False)[0]
    assert found[0].code == "slow-drift" and "between" in found[0].title


def test_a_machine_that_is_taken_away_is_no_drift() -> None:
    assert "slow-drift" not in said(growing((0.0, 0.8)))


def test_a_drift_of_a_program_that_hardly_runs_is_its_own() -> None:
    """It sleeps, or waits for a GPU: that its few moments on a core wait for one makes its steps no longer."""
    told = Story()
    for i in range(240):
        told.step(forward=0.1, backward=0.1 + i / 600)
        told.tell(Host, cores=2, cpu=60.0, tree_cpu=2.0, tree_waiting=0.6 * i / 240)
    assert said(told)["slow-drift"] == "critical"


def test_a_drift_beside_constant_neighbors_is_information() -> None:
    assert said(growing((0.5, 0.5)))["slow-drift"] == "info"
    assert said(growing((0.0, 0.0)))["slow-drift"] == "critical"


def test_a_short_drift_beside_neighbors_is_not_reported() -> None:
    assert "slow-drift" not in said(growing((0.5, 0.5), steps=120, read=20))


def stopped(told: Story, seconds: float, **pulse: object) -> dict[str, str]:
    """What is said of a run whose steps ceased so long before somebody stopped it."""
    told.wait(seconds).pulse(**pulse).bye("KeyboardInterrupt: ")
    state = folded(told)
    return {finding.code: finding.severity for finding in judged_state(state, alive=False, now=around(state).now)[0]}


def test_a_run_that_stood_still_until_it_was_stopped_has_stalled() -> None:
    assert stopped(steady(Story(), 60), 40) == {"stalled": "critical"}
    assert stopped(steady(Story(), 60), 40, step=61, step_open=40.0, phase="data", phase_open=40.0) == {
        "stalled": "critical"
    }


def test_a_run_that_is_stopped_in_its_stride_has_not() -> None:
    assert "stalled" not in stopped(steady(Story(), 60), 3)
    assert "stalled" not in stopped(steady(Story(), 60), 40, spans=[("eval", 40.0)])
    assert "stalled" not in stopped(steady(Story(), 3), 40)


def test_a_running_program_without_new_steps_is_stalled() -> None:
    told = steady(Story(), 60).wait(90).pulse()
    assert said(told, alive=True) == {"stalled": "critical"}
    assert "stalled" not in said(steady(Story(), 60, between=1.0).wait(90).pulse(), alive=True), "pauses are its habit"


def rolling(percent: float) -> Story:
    """A loop with rollouts in its steps, of which the last one does not end; the process uses so much of a core."""
    told = Story()
    for _ in range(40):
        told.step_with({"metrics": {"env_steps": 20.0}}, rollout=0.1, learn=0.05)
    for second in range(1, 101):
        told.wait(1.0).tell(Host, tree_cpu=percent, cpu=50.0, cores=2)
        told.pulse(step=41, step_open=float(second), phase="rollout", phase_open=float(second))
    return told


def test_a_rollout_that_goes_on_is_long_and_not_stalled() -> None:
    assert said(rolling(80.0), alive=True)["stalled"] == "warning"
    assert said(rolling(0.5), alive=True)["stalled"] == "critical", "its environment does not answer"
    for percent, codes in ((80.0, {}), (0.5, {"stalled": "critical"})):
        found = stopped(rolling(percent), 0.0, step=41, step_open=100.0, phase="rollout", phase_open=100.0)
        assert {code: grave for code, grave in found.items() if code == "stalled"} == codes


def generated(calls: int) -> Story:
    """A loop without a loader: what it generates lies before the step, and each call is logged by itself."""
    told = Story()
    for _ in range(30):
        for _ in range(calls):
            told.tell(Metrics, values={"generate_calls": 1, "generate_batch": 1}).span("generation", 0.5)
        told.step(forward=0.1, backward=0.2)
    return told


def test_what_is_generated_between_the_steps_counts_as_theirs() -> None:
    assert said(generated(8))["sequential-generation"] == "warning"
    assert "sequential-generation" not in said(generated(1))


def test_growing_named_time_between_steps_is_reported_by_name() -> None:
    told = Story()
    for i in range(240):
        told.step(forward=0.02).span("logging", 0.02 + 0.04 * i / 240)
    assert [code for code in said(told) if code != "slow-steps"] == ["logging-overhead"]


@pytest.mark.parametrize(("alive", "first"), [(True, "Find the process"), (False, "Run it again")])
def test_who_is_gone_is_not_to_be_moved_away(alive: bool, first: str) -> None:
    found = next(row for row in judged(beside(spikes(0.9), 0.6), alive)[0] if row.code == "cpu-starved")
    assert found.advice.startswith(first)
