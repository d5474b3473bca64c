"""What `trainmon wait` can wait for: how it is read, and when it holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from monitor.model.conditions import (
    BadCondition,
    Condition,
    Conditions,
    Met,
    duration,
    read_conditions,
    read_stop_conditions,
)
from monitor.model.report import Dropped, Finding, HostRow, MetricRow, Outcome, Progress, Report, Run, Throughput, Wall


def report(**changes: object) -> Report:
    empty = Report(
        *(Run(id="r"), Outcome(), Progress(), Throughput(), Wall()),
        [],
        {},
        [],
        [],
        [],
        HostRow(),
        [],
        [],
        [],
        Dropped(),
    )
    return replace(empty, **changes)  # type: ignore[arg-type]


def loss(last: float | str | None, low: float | None, high: float | None) -> Report:
    return report(metrics={"loss": MetricRow(last=last, min=low, max=high, count=1)})


def met(text: str, *reports: Report) -> list[Met]:
    """What holds of the last report, the others having been looked at before."""
    conditions = Conditions(read_conditions((text,)))
    return [conditions.met(each) for each in reports][-1]


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("end", Condition("end", "end")),
        (" critical ", Condition("critical", "critical")),
        ("step=5000", Condition("step=5000", "step", 5000)),
        ("loss.below=2.0", Condition("loss.below=2.0", "metric", 2.0, "loss")),
        ("loss.above=1e3", Condition("loss.above=1e3", "metric", 1000.0, "loss", True)),
        ("metric:loss<2.0", Condition("metric:loss<2.0", "metric", 2.0, "loss")),
        ("metric:val/acc@1 > -0.5", Condition("metric:val/acc@1 > -0.5", "metric", -0.5, "val/acc@1", True)),
        ("eval.loss.below=2", Condition("eval.loss.below=2", "metric", 2.0, "eval.loss")),
        ("a<b.below=2", Condition("a<b.below=2", "metric", 2.0, "a<b")),
        ("eta.below=10m", Condition("eta.below=10m", "eta", 600)),
        ("eta<1h30m", Condition("eta<1h30m", "eta", 5400)),
        ("metric:eta<3", Condition("metric:eta<3", "metric", 3.0, "eta")),
    ],
)
def test_a_condition_is_read(text: str, condition: Condition) -> None:
    assert read_conditions((text,)) == [condition]


def test_commas_and_repetition_separate_conditions() -> None:
    assert [each.text for each in read_conditions(("end,step=5", "loss.below=2,"))] == ["end", "step=5", "loss.below=2"]


@pytest.mark.parametrize(
    "text",
    (
        *("", ",", "over", "step", "step=", "step=x", "step=-3", "loss<", "loss<x", "loss<nan", "loss.below=inf", "<2"),
        *("loss<=2", "eta<soon", "eta.below=", "eta<-5", "metric:", "loss=2"),
    ),
)
def test_a_mistake_is_told_in_one_line(text: str) -> None:
    with pytest.raises(BadCondition) as error:
        read_conditions((text,))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "length"),
    (
        *(("90", 90.0), ("0", 0.0), ("90s", 90.0), ("1.5h", 5400.0), ("2 days", 172800.0), ("1h30m", 5400.0)),
        *(("soon", None), ("-1", None), ("nan", None), ("inf", None), ("", None)),
    ),
)
def test_a_duration(text: str, length: float | None) -> None:
    assert duration(text) == length


def test_each_kind_holds_when_it_is_true_and_not_before() -> None:
    assert met("end", report()) == []
    assert met("end", report(outcome=Outcome("lost"))) == [Met("end", "end")]
    assert met("step=3", report(progress=Progress(steps_done=2))) == []
    assert met("step=3", report(progress=Progress(steps_done=3))) == [Met("step=3", "step", 3)]
    assert met("eta<10m", report(progress=Progress(eta_seconds=600.0))) == []
    assert met("eta<10m", report()) == []  # unknown is not soon
    assert met("eta<10m", report(progress=Progress(eta_seconds=599.0))) == [Met("eta<10m", "eta", 599.0)]
    warning, critical = (Finding(code="c", severity=severity, title="t") for severity in ("warning", "critical"))
    assert met("critical", report(findings=[warning])) == []
    assert met("critical", report(findings=[warning, critical])) == [Met("critical", "critical", finding=critical)]


def test_a_metric_holds_by_its_last_value() -> None:
    assert met("loss<2", report()) == []
    assert met("loss<2", loss(2.0, 2.0, 3.0)) == []
    assert met("loss<2", loss(1.9, 1.9, 3.0)) == [Met("loss<2", "metric", 1.9)]
    assert met("loss>3", loss(3.5, 1.0, 3.5)) == [Met("loss>3", "metric", 3.5)]
    assert met("loss<2", loss("nan", 1.0, 3.0)) == []
    assert met("loss>3", loss("inf", 1.0, 3.0)) == [Met("loss>3", "metric", float("inf"))]


def test_a_metric_that_dips_between_two_looks_held() -> None:
    assert met("loss<2", loss(2.5, 2.2, 3.0), loss(2.4, 1.8, 3.0)) == [Met("loss<2", "metric", 1.8)]
    assert met("loss>3", loss(2.5, 2.2, 3.0), loss(2.4, 2.2, 3.1)) == [Met("loss>3", "metric", 3.1)]
    assert met("loss<2", report(), loss(2.4, 1.8, 3.0)) == [Met("loss<2", "metric", 1.8)]


def test_a_dip_before_the_first_look_is_past() -> None:
    assert met("loss<2", loss(2.5, 1.5, 3.0), loss(2.4, 1.5, 3.0)) == []


def test_all_that_hold_are_told_in_the_order_asked() -> None:
    over = report(outcome=Outcome("finished"), progress=Progress(steps_done=9))
    assert [each.kind for each in met("step=5,loss<2,end", over)] == ["step", "end"]


CODES = ("stalled", "nonfinite-loss")


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("nonfinite-loss", Condition("nonfinite-loss", "finding", 0.0, "nonfinite-loss")),
        ("stalled=20m", Condition("stalled=20m", "finding", 1200.0, "stalled")),
        ("cost=50", Condition("cost=50", "cost", 50.0)),
        ("ends-after=6h", Condition("ends-after=6h", "elapsed", 21600.0)),
        ("step=5000", Condition("step=5000", "step", 5000)),
        ("loss.above=9", Condition("loss.above=9", "metric", 9.0, "loss", True)),
    ],
)
def test_a_condition_to_stop_on_is_read(text: str, condition: Condition) -> None:
    assert read_stop_conditions(text, CODES) == [condition]


@pytest.mark.parametrize("text", ["", "end", "eta<3m", "stalled=x", "stalled=", "cost=much", "straggler", "ends-after"])
def test_what_nothing_can_be_stopped_on_is_one_line(text: str) -> None:
    with pytest.raises(BadCondition) as told:
        read_stop_conditions(text, CODES)
    assert "\n" not in str(told.value)


def standing(elapsed: float, severity: str = "critical", stood: float = 0.0) -> Report:
    return report(
        progress=Progress(elapsed_seconds=elapsed, cost=elapsed / 100),
        findings=[Finding(code="stalled", severity=severity, title="s")],
        wall=Wall(spans={"stalled": stood}),
    )


def stops(text: str, *reports: Report) -> bool:
    conditions = Conditions(read_stop_conditions(text, CODES))
    return bool([conditions.met(each) for each in reports][-1])


def test_a_finding_has_to_stand_for_so_long_and_information_stops_nothing() -> None:
    assert stops("stalled", standing(10))
    assert not stops("stalled", standing(10, "info"))
    assert not stops("stalled=60", standing(10), standing(60)) and stops("stalled=60", standing(10), standing(70))
    assert not stops("stalled=60", standing(10), report(), standing(70))
    assert stops("stalled=60", standing(100, stood=61.0))
    assert stops("cost=2", standing(200)) and not stops("cost=2", standing(199))
    assert stops("ends-after=1m", standing(60)) and not stops("ends-after=1m", standing(59))
