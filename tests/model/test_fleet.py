"""Runs side by side: which belong together, when a sweep ends, how a speed compares, which value is the best."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.model.group import best
from monitor.model.report import (
    Dropped,
    HostRow,
    MetricRow,
    Outcome,
    Progress,
    Rates,
    Report,
    Run,
    Throughput,
    Wall,
)
from monitor.runs.catalogue import RunEntry
from monitor.runs.fleet import Row, grouped, with_typical_speed


def entry(name: str, state: str = "finished", tags: dict[str, str] | None = None) -> RunEntry:
    command = ("python", "train.py")
    times = (1e9, 60.0)
    return RunEntry(name, name, Path("/runs") / name, state, *times, 0, None, 10, 100, 2.0, command, "box", tags or {})


def report(
    eta: float | None = None, elapsed: float | None = 100.0, speed: float | None = 2.0, **metrics: tuple[float, float]
) -> Report:
    progress = Progress(steps_done=50, steps_total=100, eta_seconds=eta, elapsed_seconds=elapsed, cost=1.5)
    throughput = Throughput(steps_per_second=speed, recent=Rates(steps_per_second=speed))
    rows = {name: MetricRow(last=high, min=low, max=high, count=9) for name, (low, high) in metrics.items()}
    ended = (HostRow(), [], [], [], Dropped())
    return Report(Run(), Outcome(), progress, throughput, Wall(), [], rows, [], [], [], *ended)


def test_runs_are_grouped_by_tag_else_by_the_beginning_of_different_names() -> None:
    names = ["lr-1e-3", "lr-3e-3", "other", "seed7", "seed8", "demo", "demo", "alone-1"]
    rows = [Row(entry(name)) for name in names] + [Row(entry("x", tags={"group": "nightly"}))]
    found = [(group.name, [row.entry.name for row in group.rows]) for group in grouped(rows)]
    assert found == [
        ("lr", ["lr-1e-3", "lr-3e-3"]),
        (None, ["other"]),
        ("seed", ["seed7", "seed8"]),
        (None, ["demo", "demo"]),
        (None, ["alone-1"]),
        ("nightly", ["x"]),
    ]


@pytest.mark.parametrize(
    ("planned", "members", "seconds"),
    [
        (None, [("running", 30.0, 70.0), ("running", 50.0, 50.0)], 50.0),  # the last of those that run
        (3, [("running", 50.0, 50.0), ("finished", None, 100.0)], 150.0),  # one more, of the others' length
        (4, [("running", 50.0, 50.0), ("running", 50.0, 50.0)], 150.0),  # two more, two at once
        (2, [("finished", None, 100.0), ("finished", None, 100.0)], None),  # nothing runs
        (None, [("running", None, 50.0), ("running", 50.0, 50.0)], None),  # unknown stays unknown
    ],
)
def test_the_end_of_a_sweep(
    planned: int | None, members: list[tuple[str, float | None, float]], seconds: object
) -> None:
    tags = {"group": "lr", **({"planned": str(planned)} if planned else {})}
    rows = [Row(entry(str(n), state, tags), report(eta, elapsed)) for n, (state, eta, elapsed) in enumerate(members)]
    (group,) = grouped(rows)
    assert group.eta() == seconds


def test_a_living_run_is_held_against_ended_ones_of_its_command() -> None:
    pairs = [(entry("new", "running"), report(speed=1.0)), *((entry(str(n)), report(speed=2.0)) for n in range(3))]
    rows = with_typical_speed(pairs)
    assert (rows[0].speed_ratio, rows[0].ratio_to) == (0.5, "median")
    assert rows[1].speed_ratio is None


def test_what_was_expected_goes_before_what_is_usual() -> None:
    given = report()
    given.throughput.expected_tokens_per_second = 1000.0
    given.throughput.tokens_per_second = 900.0
    (row,) = with_typical_speed([(entry("new"), given)])
    assert (row.speed_ratio, row.ratio_to) == (0.9, "expected")


@pytest.mark.parametrize(
    ("metrics", "told"),
    [
        ({"loss": (0.5, 3.0), "eval_loss": (0.7, 2.0)}, ("eval_loss", 0.7, "lowest")),
        ({"grad_norm": (0.1, 9.0), "generator/reward": (0.0, 0.4)}, ("generator/reward", 0.4, "highest")),
        ({"loss": (0.5, 3.0), "reward": (0.1, 0.8)}, ("reward", 0.8, "highest")),
        ({"learning_rate": (0.1, 0.2), "glossary": (1.0, 2.0)}, None),  # words, not letters
    ],
)
def test_the_best_value(metrics: dict[str, tuple[float, float]], told: tuple[str, float, str] | None) -> None:
    found = best(report(**metrics))
    assert (None if found is None else (found.metric, found.value, found.word)) == told


def test_the_best_run_of_a_group_is_told_by_one_metric_only() -> None:
    low, high = report(loss=(0.5, 1.0)), report(loss=(0.2, 1.0))
    (group,) = grouped(with_typical_speed([(entry("lr-1"), low), (entry("lr-2"), high)]))
    assert group.best is not None and group.best.entry.name == "lr-2"
    (mixed,) = grouped(with_typical_speed([(entry("lr-1"), low), (entry("lr-2"), report(reward=(0.0, 1.0)))]))
    assert mixed.best is None
