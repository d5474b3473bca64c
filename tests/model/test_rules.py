"""Each rule fires on its own pathology, and is silent on the nearest innocent runs."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from monitor.diagnosis import diagnose
from monitor.model.comparison.changes import find_changes
from monitor.model.report import Finding
from trainhooks.protocol.events import Facts, Frames, Host, Metrics

from .conftest import Story, folded, judged, judged_state, report_of

noise = random.Random(5)


def jitter(seconds: float) -> float:
    return seconds * (1 + 0.1 * noise.random())


def healthy(n: int = 60, **more: float) -> Story:
    told = Story()
    for _ in range(n):
        told.step(data=jitter(0.002), forward=jitter(0.1), backward=jitter(0.2), optimizer=jitter(0.02), **more)
    return told


def codes(told: Story, alive: bool = False) -> list[str]:
    return [finding.code for finding in judged(told, alive)[0]]


def facts(told: Story, **known: Any) -> Story:
    return told.tell(Facts, facts=known)


def logged(n: int, **values: Callable[[int], Any]) -> Story:
    told = healthy(3)
    for i in range(n):
        told.step(forward=jitter(0.1), backward=jitter(0.2))
        told.tell(Metrics, values={name: make(i) for name, make in values.items()})
    return told


def padded(share: float, n: int = 60) -> Story:
    told = Story()
    for _ in range(n):
        fields = {"tokens": int(1000 * (1 - share)), "padded_tokens": 1000}
        told.step_with(fields, forward=jitter(0.1), backward=jitter(0.2))
    return told


@pytest.mark.parametrize(("fixed", "gain"), [(0.0, 2.5), (0.27, 1.05), (None, 2.5)])
def test_padding_gains_what_longer_batches_cost(fixed: float | None, gain: float) -> None:
    """Of a step of 0.3 s a part is the same however long its batch is; None: all batches are alike."""
    told = Story()
    for step in range(120):
        positions = 1000 if fixed is None else 700 + 50 * (step * 7 % 13)
        seconds = 0.3 if fixed is None else fixed + (0.3 - fixed) * positions / 1000
        amounts = {"tokens": int(0.4 * positions), "padded_tokens": positions, "samples": 8}
        told.step_with(amounts, forward=seconds / 3, backward=2 * seconds / 3)
    (found,) = [each for each in judged(told)[0] if each.code == "padding-waste"]
    assert found.gain is not None and found.gain.likely == pytest.approx(gain, rel=0.05)


def generating(calls: float, batch: float, seconds: float = 2.0, n: int = 40) -> Story:
    told = Story()
    for _ in range(n):
        metrics = {"generate_calls": calls, "generate_batch": batch}
        told.step_with({"metrics": metrics}, generation=jitter(seconds), training=jitter(1.0))
    return told


def host_readings(told: Story, n: int = 60, **fields: Callable[[int], Any]) -> Story:
    for i in range(n):
        told.tell(Host, **{name: make(i) for name, make in fields.items()})
    return told


def data_wait(share: float, n: int = 60) -> Story:
    told = Story()
    for _ in range(n):
        told.step(data=jitter(share), forward=jitter((1 - share) / 3), backward=jitter(2 * (1 - share) / 3))
    return told


def epoch_stalls() -> Story:
    told = Story()
    for i in range(100):
        told.step(data=8.0 if i % 20 == 0 else 0.001, forward=jitter(0.2), backward=jitter(0.4))
    return told


def rising(last: float) -> Story:
    told = Story()
    for i in range(300):
        told.step(forward=jitter(0.1 + (last - 0.1) * i / 300), backward=jitter(0.1))
    return told


def rising_with_tokens() -> Story:
    told = Story()
    for i in range(300):
        length = 1 + i / 100
        told.step_with({"tokens": int(1000 * length)}, forward=jitter(0.1 * length), backward=jitter(0.2 * length))
    return told


def other_work() -> Story:
    """From the middle on, half of the steps do something more."""
    told = Story()
    for i in range(300):
        more = {"test_generation": jitter(0.3)} if i > 150 and i % 2 else {}
        told.step(forward=jitter(0.1), backward=jitter(0.1), **more)
    return told


def curriculum() -> Story:
    told = Story()
    for i in range(300):
        told.step_with({"stage": str(1 + i // 100)}, generation=jitter(0.1 * (1 + i // 100)), training=jitter(0.1))
    return told


SICK = {
    "input-bound": lambda: data_wait(0.4),
    "unaccounted-time": lambda: healthy(other=0.5),
    "padding-waste": lambda: padded(0.6),
    "sequential-generation": lambda: generating(11, 1),
    "checkpoint-stall": lambda: healthy(40).span("checkpoint", 6.0),
    "eval-heavy": lambda: healthy(40).span("eval", 12.0),
    "logging-overhead": lambda: healthy(logging=0.05),
    "slow-startup": lambda: Story().span("load model", 90).step(forward=1).step(forward=1),
    "nonfinite-loss": lambda: logged(5, loss=lambda i: "nan" if i > 2 else 2.0),
    "reward-flat": lambda: logged(60, reward=lambda i: 0.0),
    "loss-flat": lambda: logged(40, loss=lambda i: 2.3025),
    "recompiling": lambda: facts(healthy(), compile={"recompiles": 9, "seconds": 4.0, "reasons": ["size of L['x']"]}),
    "compile-fallback": lambda: facts(healthy(), compile={"fallback": True, "reasons": ["recompile limit"]}),
    "compile-warmup": lambda: facts(healthy(), compile={"graphs": 2, "seconds": 6.0}),
    "debug-settings": lambda: facts(healthy(), torch={"detect_anomaly": True}),
    "slow-drift": lambda: rising(0.3),
    "swap": lambda: host_readings(healthy(), swap_used=lambda i: i * 2**25, swap_in=lambda i: 1e6),
    "cpu-starved": lambda: host_readings(healthy(), cpu=lambda i: 100.0, tree_cpu=lambda i: 40.0, cores=lambda i: 4),
    "oversubscribed": lambda: host_readings(
        facts(healthy(), cpus=4, torch={"threads": 16}),
        cpu=lambda i: 100.0,
        tree_cpu=lambda i: 399.0,
        cores=lambda i: 4,
    ),
}

NOT_IN_ZOO = {
    "swap": "the machine of whoever runs the zoo would swap",
    "unfused-optimizer": "its share is the GPU's by its own clock, which the zoo's driver does not have",
}
INNOCENT = {
    "input-bound": [
        lambda: data_wait(0.02),
        lambda: Story().step(data=30, forward=1).step(data=0.01, forward=1).step(data=0.01, forward=1),  # start-up
        lambda: data_wait(0.4, n=5),  # too few to judge
    ],
    "unaccounted-time": [
        lambda: healthy(other=0.03),
        lambda: Story().step(other=1).step(other=1),  # no phases are told at all
        lambda: healthy(5, other=0.5),
    ],
    "padding-waste": [lambda: padded(0.2), lambda: padded(0.6, n=10), lambda: healthy()],
    "sequential-generation": [lambda: generating(11, 8), lambda: generating(1, 1), lambda: generating(11, 1, 0.03)],
    "checkpoint-stall": [
        lambda: healthy(40).span("checkpoint", 0.5),
        lambda: healthy(5).span("checkpoint", 6),
        lambda: healthy(40).span("eval", 2),
    ],
    "eval-heavy": [
        lambda: healthy(40).span("eval", 1),
        lambda: healthy(5).span("eval", 9),
        lambda: healthy(40, eval=0.01),
    ],
    "logging-overhead": [lambda: healthy(logging=0.005), lambda: healthy(5, logging=0.1), lambda: healthy()],
    "slow-startup": [
        lambda: Story().span("load model", 8).step(forward=1),
        lambda: _long_after(Story().span("load model", 90)),
        lambda: Story().span("load model", 90),  # it has not got there yet
    ],
    "nonfinite-loss": [
        lambda: logged(60, grad_norm=lambda i: "inf" if i == 1 else 1.0),  # a loss scaler that finds its scale
        lambda: logged(60, loss=lambda i: 2.0 / (i + 1)),
        lambda: logged(60, loss_scale=lambda i: "inf"),
    ],
    "reward-flat": [
        lambda: logged(15, reward=lambda i: 0.0),
        lambda: logged(60, reward=lambda i: 0.0 if i < 55 else 0.2),
        lambda: logged(60, reward_std=lambda i: 0.0),
    ],
    "loss-flat": [
        lambda: logged(15, loss=lambda i: 2.3),
        lambda: logged(60, loss=lambda i: 0.0, reward=lambda i: i / 60, grad_norm=lambda i: 0.1),  # GRPO, rounded
        lambda: logged(60, loss=lambda i: 2.3 + 0.001 * noise.random()),
    ],
    "recompiling": [
        lambda: facts(healthy(), compile={"recompiles": 2, "seconds": 4.0}),
        lambda: facts(healthy(), compile={"graphs": 12}),
        lambda: facts(healthy(), compile={}),
    ],
    "compile-fallback": [
        lambda: facts(healthy(), compile={"fallback": False}),
        lambda: facts(healthy(), compile={"graph_breaks": 3}),
        lambda: healthy(),
    ],
    "compile-warmup": [
        lambda: facts(healthy(200), compile={"graphs": 2, "seconds": 1.0}),
        lambda: facts(healthy(), compile={"recompiles": 9, "seconds": 9.0}),  # told as recompiling
        lambda: healthy(),
    ],
    "debug-settings": [
        lambda: facts(healthy(), environment={"CUDA_LAUNCH_BLOCKING": "1"}),  # there is no GPU to wait for
        lambda: facts(healthy(), torch={"detect_anomaly": False}),
        lambda: facts(healthy(5), torch={"detect_anomaly": True}),
    ],
    "slow-drift": [
        lambda: rising(0.12),
        rising_with_tokens,
        other_work,
        curriculum,
        lambda: healthy(290).step(forward=9).step(forward=9).step(forward=9),  # spikes at the end
    ],
    "swap": [
        lambda: host_readings(healthy(), swap_used=lambda i: i * 2**25),  # pages that nobody needs
        lambda: host_readings(healthy(), swap_used=lambda i: 2**33, swap_in=lambda i: 5e8 if i % 3 == 0 else 0.0),
        lambda: host_readings(healthy(), swap_used=lambda i: 2**33),
        lambda: host_readings(healthy(), 10, swap_used=lambda i: i * 2**28),
        lambda: host_readings(healthy(), swap_used=lambda i: 2**33 - i * 2**25),
    ],
    "cpu-starved": [
        lambda: host_readings(healthy(), cpu=lambda i: 100.0, tree_cpu=lambda i: 390.0, cores=lambda i: 4),
        lambda: host_readings(healthy(), cpu=lambda i: 60.0, tree_cpu=lambda i: 40.0, cores=lambda i: 4),
        lambda: host_readings(
            healthy(), cpu=lambda i: 100.0 if i % 2 else 50.0, tree_cpu=lambda i: 40.0, cores=lambda i: 4
        ),
    ],
    "oversubscribed": [
        lambda: facts(healthy(), cpus=4, torch={"threads": 16}),
        lambda: host_readings(facts(healthy(), cpus=4, torch={"threads": 4}), cpu=lambda i: 100.0),
        lambda: host_readings(
            facts(healthy(), cpus=4, torch={"threads": 16}), cpu=lambda i: 50.0, tree_waiting=lambda i: 0.2
        ),
    ],
}


def _long_after(told: Story) -> Story:
    for _ in range(400):
        told.step(forward=1.0)
    return told


@pytest.mark.parametrize("code", SICK)
def test_the_order_of_the_rules_does_not_matter(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    story = SICK[code]()
    found = judged(story, alive=False)[0]
    monkeypatch.setattr(diagnose, "RULES", diagnose.RULES[::-1])
    assert judged(story, alive=False)[0] == found


def test_a_drift_that_recovered_promises_nothing_to_the_steps_to_come() -> None:
    told = rising(0.5)
    (slower,), _ = judged(told)
    assert not slower.over and slower.recoverable is not None
    for _ in range(20):
        told.step(forward=jitter(0.1), backward=jitter(0.1))
    (finding,), _ = judged(told)
    assert finding.over and finding.recoverable is None and "(ended)" in finding.title
    assert finding.severity == "info"


@pytest.mark.parametrize("alive", [True, False])
def test_a_healthy_run_has_no_findings(alive: bool) -> None:
    found, said = judged(healthy(200), alive)
    assert found == []
    assert said.code == "none" and "bottleneck" in said.title


def test_threads_that_wait_for_each_other_do_not_fill_the_machine() -> None:
    told = host_readings(
        facts(healthy(), cpus=2, torch={"threads": 16}), cpu=lambda i: 80.0, tree_waiting=lambda i: 0.78
    )
    found = [each for each in judged(told, alive=False)[0] if each.code == "oversubscribed"]
    assert "78%" in found[0].evidence[-1] and "all busy" not in found[0].evidence[1]


@pytest.mark.parametrize(
    "given", [{"python": {"trace": True}}, {"python": {"profile": True}}, {"python": {"tracemalloc": True}}]
)
def test_tools_that_python_calls_are_debug_settings(given: dict[str, Any]) -> None:
    (finding,) = judged(facts(healthy(), **given), alive=False)[0]
    assert (finding.code, finding.severity) == ("debug-settings", "warning")


def test_an_optimizer_that_takes_longer_as_well_shows_a_slower_machine() -> None:
    def slower(optimizer: float) -> Story:
        told = facts(Story(), optimizer={"device": "cpu"})
        for i in range(300):
            factor = 1 + 0.8 * i / 300
            told.step(forward=jitter(0.1 * factor), optimizer=jitter(0.02 * (factor if optimizer else 1)))
        return told

    assert "slow-drift" in codes(slower(0.0)) and "slow-drift" not in codes(slower(1.0))


@pytest.mark.parametrize(("begin", "found"), [(0.0, True), (0.6, False)])
def test_others_who_leave_explain_no_drift_of_a_short_run(begin: float, found: bool) -> None:
    told = Story()
    for i in range(200):
        told.step(forward=jitter(0.02 + 0.04 * i / 200))
        if i % 30 == 0:
            there = begin <= i / 200 < begin + 0.35
            told.tell(Host, cores=2, cpu=100.0, tree_cpu=100.0 if there else 190.0, tree_waiting=0.4 if there else 0.02)
    assert ("slow-drift" in codes(told)) == found


def test_a_stage_that_generates_is_no_drift() -> None:
    told = Story()
    for i in range(200):
        more = {"metrics": {"new_tokens": 500, "completions": 8}} if i > 100 else {}
        told.step_with(more, forward=jitter(0.1), other=jitter(0.1 if i > 100 else 0.01))
    assert "slow-drift" not in codes(told)


def with_workers(workers: int, waiting: float, used: float = 390.0, device: str = "cpu") -> Story:
    told = facts(healthy(), cpus=4, args={"dataloader_num_workers": workers}, optimizer={"device": device})
    full = {"cpu": lambda i: 99.0, "tree_cpu": lambda i: used, "cores": lambda i: 4}
    return host_readings(told, n=12, tree_waiting=lambda i: waiting, **full)


def test_rows_of_a_tensor_take_as_long_in_any_loader() -> None:
    def loading(samples: int) -> Finding:
        told = Story()
        for _ in range(60):
            told.step_with({"samples": samples}, data=jitter(0.0018), forward=jitter(0.002), backward=jitter(0.003))
        (finding,) = [found for found in judged(told, alive=False)[0] if found.code == "input-bound"]
        return finding

    assert [loading(samples).severity for samples in (32, 512)] == ["warning", "info"]


def test_many_workers_take_the_cores_from_a_training_on_the_cpu() -> None:
    (finding,) = judged(with_workers(32, 0.8), alive=False)[0]
    assert (finding.code, finding.severity) == ("oversubscribed", "warning") and finding.lost_fraction is None
    assert "oversubscribed" not in codes(with_workers(8, 0.8))  # two a core
    assert "oversubscribed" not in codes(with_workers(32, 0.25))
    assert "oversubscribed" not in codes(with_workers(32, 0.8, used=200.0))  # others hold the cores
    assert "oversubscribed" not in codes(with_workers(32, 0.8, device="cuda"))


def confined(used: float, held: float) -> Story:
    limits = {"cpu_limit": lambda i: 2.0, "cpu_throttled": lambda i: held, "cores": lambda i: 64}
    return host_readings(healthy(), cpu=lambda i: 5.0, tree_cpu=lambda i: used, **limits)


def test_a_containers_limit_holds_the_training_back() -> None:
    (finding,) = judged(confined(195.0, 0.6))[0]
    assert finding.code == "cpu-starved" and finding.severity == "warning" and "limit of 2 cores" in finding.title
    assert judged(confined(120.0, 0.6))[0] == [], "there is room below the limit"
    assert judged(confined(195.0, 0.1))[0] == [], "it stands still in a burst now and then"


def test_a_full_swap_that_comes_and_goes_is_swapping() -> None:
    told = host_readings(healthy(), swap_used=lambda i: 2**33, swap_in=lambda i: 5e7, swap_out=lambda i: 5e7)
    assert [finding.code for finding in judged(told)[0]] == ["swap"]


def test_waits_in_bursts_are_named() -> None:
    found, _ = judged(epoch_stalls(), alive=False)
    assert found[0].code == "input-bound" and "in bursts" in found[0].title
    assert "persistent_workers" not in found[0].advice, "there are no workers"
    with_workers = epoch_stalls().tell(Facts, facts={"dataloader": {"num_workers": 4}})
    assert "persistent_workers" in judged(with_workers, alive=False)[0][0].advice


@pytest.mark.parametrize(
    ("reasons", "is_number"),
    [
        (["1/0: n == 2  # for _ in range(n): train.py:10 in g", "1/1: L['self'].step == 5"], True),
        (["0/0: tensor 'x' size mismatch at index 1. expected 32, actual 30"], False),
        (["1/0: n == 2", "0/0: 2 <= L['x'].size()[0]"], False),
        ([], False),
    ],
)
def test_a_number_that_recompiles_is_no_dimension(reasons: list[str], is_number: bool) -> None:
    told = facts(healthy(), compile={"recompiles": 9, "seconds": 40.0, "reasons": reasons})
    advice = next(finding.advice for finding in judged(told)[0] if finding.code == "recompiling")
    assert ("as a tensor" in advice, "mark_dynamic" in advice) == (is_number, not is_number)


def test_a_cause_is_reported_once() -> None:
    """Steps that are slow because they wait for data are the input's, not slow steps besides."""
    assert "slow-steps" not in codes(epoch_stalls())


def test_time_between_the_steps_is_no_smaller_for_a_long_start() -> None:
    def told(start: float) -> Story:
        story = Story().span("import torch", start)
        for _ in range(60):
            story.step(forward=0.02, backward=0.03).wait(0.1)
        return story

    severities = [
        [finding.severity for finding in judged(told(start), alive=False)[0] if finding.code == "unaccounted-time"]
        for start in (0.0, 20.0, 120.0)
    ]
    assert severities == [["warning"]] * 3


def test_the_advice_names_the_setting_and_its_value() -> None:
    told = facts(data_wait(0.4), config={"dataloader_num_workers": 0}, cpus=8)
    (found, *_), _ = judged(told, alive=False)
    assert "Set dataloader_num_workers=0 → 2" in found.advice
    told = facts(data_wait(0.4), loader={"dataloader_num_workers": 0}, cpus=8)
    (found, *_), _ = judged(told, alive=False)
    assert "Set num_workers=0 → 2" in found.advice, "a loader of the program's own"
    told = facts(data_wait(0.8), loader={"dataloader_num_workers": 0}, cpus=16)
    (found, *_), _ = judged(told, alive=False)
    assert "num_workers=0 → 4" in found.advice or "num_workers=0 → 5" in found.advice, "four times the rest of a step"
    told = facts(data_wait(0.5), loader={"dataloader_num_workers": 2}, cpus=16)
    (found, *_), _ = judged(told, alive=False)
    assert "num_workers=2 → 4" in found.advice or "num_workers=2 → 5" in found.advice, (
        "the two make half of what is used"
    )
    told = facts(data_wait(0.4), config={"dataloader_num_workers": 2}, cpus=2)
    (found, *_), _ = judged(told, alive=False)
    assert "more workers will not help" in found.advice


@pytest.mark.parametrize(("wanted", "fires"), [(10_000, True), (3_300, False), (None, False)])
def test_less_than_expected(wanted: float | None, fires: bool) -> None:
    """1,000 tokens in steps of 0.3 s, about."""
    found, _ = judged_state(folded(padded(0.0)), alive=False, expect_tps=wanted)
    assert ("below-expected" in [finding.code for finding in found]) == fires


def test_the_verdict_shows_kinds_of_step_and_the_next_phases() -> None:
    told = Story()
    for _ in range(30):
        told.step_with({"role": "generator", "stage": "1"}, generation=2.0, training=0.9)
        told.step_with({"role": "discriminator"}, generation=3.0, training=1.0, data=0.001)
    line = judged(told)[1]
    assert line.code == "none"
    assert line.evidence == ["typical steps: 2.90 s (generator, stage 1), 4.00 s (discriminator)", "then training 28%"]
    assert not any("typical" in each for each in judged(healthy())[1].evidence), "of one kind the whole run tells more"


# A run that learns nothing


def without_variance() -> Story:
    """Answers that all earn nothing, on a machine whose cores others hold for most of the time."""
    told = Story()
    for _at in range(40):
        told.span("generation", 0.3)
        told.step_with(
            {"metrics": {"reward": 0.0, "loss": -0.0, "completions": 8}}, data=2.0, forward=0.1, backward=0.2
        )
    return told


def test_learning_nothing_comes_before_all_that_costs_time() -> None:
    found, first = judged(without_variance(), alive=False)
    assert (first.code, first.severity) == ("reward-flat", "critical")
    assert "input-bound" in [finding.code for finding in found]


@pytest.mark.parametrize("loss", [lambda at: 0.02 * (1 + at % 3), lambda at: 0.0 if at else 0.1])
def test_a_constant_mean_that_still_teaches_is_no_more_than_a_warning(loss: Callable[[int], float]) -> None:
    """As of rewards that are standardized before they are logged."""
    story = logged(40, reward=lambda at: 0.0, loss=loss)
    (found,) = [finding for finding in judged(story, alive=False)[0] if finding.code == "reward-flat"]
    assert found.severity == "warning"


def test_an_environment_that_has_not_paid_yet_gives_no_signal() -> None:
    """MountainCar and FrozenLake are healthy with it for long."""
    story = logged(40, episode_return=lambda at: -200.0, env_steps=lambda at: 200, loss=lambda at: 0.0)
    (found,) = [finding for finding in judged(story, alive=False)[0] if finding.code == "reward-flat"]
    assert found.severity == "warning"
    assert found.title.startswith("No signal yet")


def test_the_best_so_far_may_be_constant() -> None:
    story = logged(40, best_reward=lambda at: 0.0, reward=lambda at: at / 40)
    assert "reward-flat" not in {finding.code for finding in judged(story, alive=False)[0]}


def test_where_every_step_is_skipped_nothing_is_learned() -> None:
    story = Story()
    for _ in range(40):
        story.step_with({"status": "skipped", "reason": "empty"}, data=2.0, forward=0.1)
    assert next((finding.code, finding.severity) for finding in judged(story, alive=False)[0]) == (
        "steps-skipped",
        "critical",
    )


@pytest.mark.parametrize(
    ("waits", "cpus", "faster"),
    [
        (0.8, 16, 5.0),  # five workers hide the wait behind the rest of a step
        (0.95, 2, 2.0),  # what two cores can do, and not the 20 times of a step without data
    ],
)
def test_the_gain_is_that_of_the_workers_that_are_advised(waits: float, cpus: int, faster: float) -> None:
    told = facts(data_wait(waits), loader={"dataloader_num_workers": 0}, cpus=cpus)
    (found, *_), _ = judged(told, alive=False)
    assert found.gain is not None and found.gain.likely is not None
    assert found.gain.likely == pytest.approx(faster, rel=0.15) and found.gain.most >= found.gain.likely


def test_time_in_no_phase_is_mended_at_the_line_that_takes_it() -> None:
    told = Story()
    for _ in range(60):
        told.step(forward=0.02, backward=0.03, other=0.1)
    rows = [("other", "train.py:11 (torch.logsumexp) in my_loss", 50), ("other", "train.py:30 in main", 10)]
    told.tell(Frames, rows=rows, begin=100.0)
    found = next(row for row in judged(told, alive=False)[0] if row.code == "unaccounted-time")
    assert "is at train.py:11 (torch.logsumexp) in my_loss" in found.advice


def test_another_file_of_the_same_name_is_a_change() -> None:
    one, two = (report_of(Story(), command=["python", name]) for name in ("train.py", "v2/train.py"))
    assert [(row.name, row.before, row.after) for row in find_changes(one, two)] == [
        ("command", "python train.py", "python v2/train.py")
    ]
