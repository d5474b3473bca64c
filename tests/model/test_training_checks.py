"""What the hooks check of gradients, learning rates and modes, and a loss that diverges, as findings."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from monitor.model.report import Finding
from trainhooks.protocol.events import Facts, Frames, Host

from .conftest import Story, judged

Told = Callable[[], Story]


def steps(count: int = 100, **phases: float) -> Story:
    story = Story()
    for _ in range(count):
        story.step(**(phases or {"forward": 0.1, "backward": 0.2, "optimizer": 0.02}))
    return story


def found(count: int = 100, **updates: Any) -> Told:
    return lambda: steps(count).tell(Facts, facts={"updates": updates})


def unused(**changed: Any) -> Told:
    table = {"tensors": 4, "cut": 900_000, "beside": 0, "trained": 100_000, "nodes": 100, "needless": 40, **changed}
    return found(unused_gradients=table)


def embedding(optimizer: float = 0.2, **changed: Any) -> Told:
    table = {"rows": 200_000, "width": 64, "elements": 12_800_000, "trained": 13_000_000, "touched": 0.002, **changed}
    story = steps(forward=0.1, backward=0.2, optimizer=optimizer).tell(Facts, facts={"updates": {"embedding": table}})
    return lambda: story


def losses(loss: Callable[[float], float], name: str = "loss", count: int = 600, **facts: Any) -> Told:
    """A loss over the run from 0 to 1, with noise of a tenth."""

    def told() -> Story:
        noise, story = random.Random(3), Story()
        if facts:
            story.tell(Facts, facts={"updates": facts})
        for i in range(count):
            value = loss(i / count) * (1.0 + 0.1 * noise.random())
            story.step_with({"metrics": {name: value}}, forward=0.1, backward=0.2)
        return story

    return told


def longer() -> Story:
    story = Story()
    for i in range(600):
        fields = {"metrics": {"loss": 1.0 + 0.01 * i}, "tokens": 100 + i}
        story.step_with(fields, forward=0.1, backward=0.2)
    return story


def diverging(t: float) -> float:
    return 2.0 - 2.0 * t if t < 0.4 else 1.2 * math.exp(4.0 * (t - 0.4))


def restarts(t: float) -> float:
    return 0.2 + 2.0 * (1.0 - (4.0 * t) % 1.0)


def zero(since: float, until: float, highest: float = 1e-3) -> Told:
    rate = {"steps": 30, "highest": highest, "since": since, "until": until}
    return found(zero_rate=rate)


def averages(comm: float | None = 0.08, overlap: float = 0.03, cpu: float = 50.0, **changed: Any) -> Told:
    """Eight passes a step of 0.9 s, seven of them averaged for nothing."""
    table = {"steps": 64, "passes": 512, "averaged": 512, "unneeded": 448, **changed}
    table |= {} if comm is None else {"comm": comm, "overlap": overlap}
    story = steps(forward=0.1, backward=0.78, optimizer=0.02).tell(Facts, facts={"updates": {"gradient_syncs": table}})
    for _ in range(40):
        story.tell(Host, cpu=cpu)
    return lambda: story


def collections(share: float, **facts: Any) -> Told:
    """A run of 38 s, a share of it in collections."""
    story = steps(100, data=0.01, forward=0.1, backward=0.25, optimizer=0.02)
    return lambda: story.tell(Facts, facts={"collections": {"full": 100, "seconds": 38 * share, **facts}})


SICK: dict[str, Told] = {
    "garbage-collection": collections(0.2),
    "accumulation-sync": averages(),
    "weights-unchanged": found(no_gradient={"steps": 16, "parameters": 100, "frozen": 0}),
    "learning-rate-zero": zero(0.0, 30.0, highest=0.0),
    "gradients-kept": found(kept_gradients={"steps": 16, "checked": 17}),
    "eval-mode": found(eval_mode={"steps": 16, "trained": True, "modules": ["Dropout"], "count": 2}),
    "eval-gradients": found(eval_gradients={"calls": 96, "times": 6}),
    "graph-retained": found(retained={"steps": 8}),
    "dense-embedding": embedding(),
    "unused-gradients": unused(),
    "loss-diverging": losses(diverging),
}
INNOCENT: dict[str, list[Told]] = {
    "garbage-collection": [collections(0.02), collections(0.2, seconds=None), collections(0.2, seconds="8")],
    "accumulation-sync": [
        averages(overlap=0.0785),  # behind the backward pass
        averages(unneeded=0),
        averages(steps=4),
    ],
    "weights-unchanged": [found(), found(no_gradient={"steps": 4, "parameters": 100, "frozen": 100})],
    "learning-rate-zero": [zero(30.0, 31.9), found(zero_rate={"steps": 3, "highest": 0.0, "since": 0.0, "until": 1.0})],
    "gradients-kept": [
        found(kept_gradients={"steps": 8, "checked": 32}),
        found(kept_gradients={"steps": 4, "checked": 4}),
    ],
    "eval-mode": [
        found(eval_mode={"steps": 0, "trained": True, "modules": ["Dropout"], "count": 2}),
        found(eval_mode={"steps": 5, "trained": True, "modules": ["Dropout"], "count": 2}),
    ],
    "eval-gradients": [
        found(eval_gradients={"calls": 200, "times": 100}),
        found(eval_gradients={"calls": 4, "times": 2}),
    ],
    "graph-retained": [found(retained={"steps": 3}), found(retained="8")],
    "dense-embedding": [embedding(touched=0.6), embedding(optimizer=0.007), embedding(elements=3_000_000)],
    "unused-gradients": [
        unused(trained=0),
        unused(cut=4_000, needless=1),  # little work
        unused(cut=0, needless=0, beside=8_000),
        unused(cut="all"),
    ],
    "loss-diverging": [
        losses(lambda t: 2.0 * math.exp(-3.0 * t) + 0.3),
        losses(restarts),
        losses(lambda t: 0.5 if t < 0.5 else 4.0 - 2.0 * t),  # a harder task
        losses(diverging, name="val_loss"),
        losses(diverging, name="g_loss"),
        losses(diverging, optimizers=2),
        losses(diverging, rollouts=True),
        losses(lambda t: diverging(t) - 1.3),  # negative at times
        losses(diverging, count=25),
        losses(lambda t: 1.0 + 1.8 * t, count=100),  # little, of few values
        longer,
    ],
}


@pytest.mark.parametrize("code", SICK)
def test_it_is_no_mere_information(code: str) -> None:
    assert judged(SICK[code](), alive=False)[0][0].severity != "info"


def test_unused_gradients_cost_their_part_of_backward() -> None:
    """Of steps of 0.32 s, 0.2 s are backward: a part of its own as a whole, single weights half of their share."""

    def lost(**changed: Any) -> float:
        return judged(unused(**changed)(), alive=False)[0][0].lost_fraction or 0.0

    whole = lost()
    assert 0.50 < whole < 0.9 * 0.2 / 0.32 + 1e-6, "nine tenths of the parameters"
    assert lost(needless=100) == pytest.approx(whole / 0.9, rel=0.02), "all of the operations"
    assert lost(cut=0, needless=0, beside=900_000) == pytest.approx(whole / 2, rel=0.02)


def test_few_values_are_enough_for_much_growth() -> None:
    findings, _ = judged(losses(lambda t: math.exp(8.0 * t), count=40)(), alive=False)
    assert findings[0].code == "loss-diverging"


def test_a_model_that_was_never_in_training_mode_may_be_meant() -> None:
    mode = {"steps": 64, "trained": False, "modules": ["Dropout"], "count": 2}
    findings, _ = judged(found(eval_mode=mode)(), alive=False)
    assert [(finding.code, finding.severity) for finding in findings] == [("eval-mode", "info")]


def test_a_rate_that_fell_to_zero_costs_the_time_since() -> None:
    findings, _ = judged(zero(8.0, 31.0)(), alive=False)
    (finding,) = [finding for finding in findings if finding.code == "learning-rate-zero"]
    assert finding.lost_fraction == pytest.approx(23.0 / 33.0, rel=0.05)


def test_a_constant_loss_is_explained_by_weights_that_never_change() -> None:
    story = Story()
    for _ in range(60):
        story.step_with({"metrics": {"loss": 2.3026}}, forward=0.1, backward=0.2)
    assert [finding.code for finding in judged(story)[0]] == ["loss-flat"]
    story.tell(Facts, facts={"updates": {"no_gradient": {"steps": 32, "parameters": 10, "frozen": 0}}})
    assert [finding.code for finding in judged(story)[0]] == ["weights-unchanged"]


@pytest.mark.parametrize("table", [None, "many", {"steps": "16"}, {"steps": True}, {"steps": -3}, []])
def test_facts_of_another_shape_are_no_finding(table: object) -> None:
    names = ("no_gradient", "zero_rate", "kept_gradients", "eval_mode", "eval_gradients", "retained", "embedding")
    story = found(**dict.fromkeys(names, table))()
    assert not judged(story, alive=False)[0]


def test_what_an_average_costs_is_what_no_idle_core_does() -> None:
    def told(story: Told) -> Finding:
        return next(each for each in judged(story(), alive=False)[0] if each.code == "accumulation-sync")

    assert told(averages()).lost_fraction == pytest.approx(7 * 0.05 / 0.9, rel=0.02)
    assert told(averages(cpu=99.0)).lost_fraction == pytest.approx(7 * 0.08 / 0.9, rel=0.02)
    # No average takes more of a backward pass than what its computing leaves.
    assert told(averages(comm=0.2)).lost_fraction == pytest.approx(7 * (0.78 - 0.1) / 8 / 0.9, rel=0.02)
    unknown = told(averages(comm=None))
    assert (unknown.severity, unknown.lost_fraction) == ("info", None)


def test_few_collections_are_information_and_calls_of_one_are_told_by_their_line() -> None:
    findings, _ = judged(collections(0.06)(), alive=False)
    assert [(finding.code, finding.severity) for finding in findings] == [("garbage-collection", "info")]
    assert "gc.freeze" in findings[0].advice
    story = Story()
    for _ in range(100):
        story.step(forward=0.1, backward=0.1, other=0.2)
    rows = [("other", "train.py:12 (gc.collect) in <module>", 90), ("forward", "train.py:9 in <module>", 90)]
    story.tell(Frames, rows=rows, activities=["garbage collection", ""])
    (finding,) = [each for each in judged(story, alive=False)[0] if each.severity != "info"]
    assert finding.code == "garbage-collection" and "train.py:12" in finding.evidence[1]
    assert "Remove gc.collect()" in finding.advice and finding.lost_fraction == pytest.approx(0.5, rel=0.05)


def test_a_learning_rate_of_zero_is_critical_where_it_is_all_there_is() -> None:
    def told(**rate: Any) -> Finding:
        table = {"steps": 30, "highest": 0.0, "since": 0.0, "until": 8.0, **rate}
        return next(each for each in judged(found(zero_rate=table)())[0] if each.code == "learning-rate-zero")

    assert told().severity == "critical"
    assert told(steps=9).severity == "warning"  # so far: a warm-up may begin at 0
    assert told(of=2).severity == "warning"
    assert "one of 2" in told(of=2).title
