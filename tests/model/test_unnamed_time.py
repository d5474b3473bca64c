"""The time in no phase, divided by stack samples: it adds up to what was measured."""

from __future__ import annotations

import pytest

from monitor.model.report import Report
from monitor.model.steps.stack_samples import MAX_PLACES, MAX_STRETCHES, StackSamples, UnnamedTime
from trainhooks.protocol.events import Frames

from .conftest import Story, judged, placed, report_of

Looks = list[tuple[str, str, int, str]]


def sampled(told: Story, looks: Looks, since: float) -> Story:
    rows = [(where, place, count) for where, place, count, _ in looks]
    return told.tell(Frames, rows=rows, activities=[activity for *_, activity in looks], begin=since)


def loop(parts: list[Looks], other: list[float], steps: int = 10) -> Story:
    """Each part is some steps with so many seconds in no phase, and what was seen in them."""
    told = Story()
    for looks, seconds in zip(parts, other, strict=True):
        since = told.now
        for _ in range(steps):
            told.step(forward=0.1, backward=0.2, other=seconds)
        sampled(told, looks, since)
    return told


def unnamed(report: Report) -> UnnamedTime:
    assert report.unnamed is not None
    return report.unnamed


FSYNC = ("other", "log.py:14 (os.fsync) in write", 30, "fsync")
AUC = ("between steps", "train.py:61 (auc) in main", 8, "")


def test_parts_add_up_to_what_was_measured() -> None:
    known = report_of(loop([[FSYNC, AUC, ("other", "train.py:9 in main", 2, "")]] * 3, [0.3] * 3))
    other = next(row for row in known.phases if row.name == "other")
    measured = other.mean * other.count + known.wall.between_steps
    account = unnamed(known)
    assert account.seconds == pytest.approx(measured)
    assert sum(part.seconds for part in account.parts) == pytest.approx(measured)
    assert sum(part.looks for part in account.parts) == account.looks == 120
    first = account.parts[0]
    assert (first.place, first.activity, first.looks) == ("log.py:14 (os.fsync) in write", "fsync", 90)
    assert first.seconds == pytest.approx(0.75 * measured)
    assert first.share == pytest.approx(first.seconds / known.wall.stepping)


def test_few_samples_divide_nothing() -> None:
    one, other = ("other", "a.py:1 in f", 5, ""), ("other", "b.py:1 in g", 5, "")
    assert report_of(loop([[one, other]], [0.3])).unnamed is None
    assert unnamed(report_of(loop([[one]], [0.3]))).parts[0].looks == 5, "unless all of them agree"


def test_samples_of_a_denser_time_count_for_less() -> None:
    """Ten steps in which many samples were taken are as long as ten with few."""
    dense, sparse = ("other", "a.py:1 in f", 200, ""), ("other", "b.py:1 in g", 20, "")
    account = unnamed(report_of(loop([[dense], [sparse]], [0.3, 0.3])))
    assert {part.place: part.seconds for part in account.parts} == pytest.approx(
        {"a.py:1 in f": account.seconds / 2, "b.py:1 in g": account.seconds / 2}
    )


def growing(counts: list[int]) -> Report:
    """A line that takes so many of the samples, at 50 ms, in the no phase of ten steps each."""
    told = Story()
    for count in counts:
        since = told.now
        for _ in range(10):
            told.step(forward=0.1, backward=0.2, other=count * 0.005)
        sampled(
            told, [("other", "train.py:61 (auc) in main", count, ""), ("forward", "train.py:9 in main", 60, "")], since
        )
    return report_of(told)


def test_a_line_whose_seconds_per_step_rise_grows() -> None:
    (part,) = unnamed(growing(list(range(4, 44, 4)))).parts
    assert part.grows and part.early is not None and part.late is not None and part.late > 2 * part.early
    (part,) = unnamed(growing([20, 24, 19, 22, 21, 18, 23, 20, 22, 19])).parts
    assert not part.grows and part.early is None


def test_a_line_in_which_a_library_runs_the_loop_is_not_all_that_is_said() -> None:
    inner, users = "transformers/trainer.py:3821 (loss.item) in _inner, from ", "train.py:83 (trainer.train) in main"
    phases = [(phase, f"transformers/x.py:1 in f, from {users}", 9, "") for phase in ("data", "forward", "backward")]
    within = unnamed(report_of(loop([[*phases, ("other", inner + users, 30, "tensor read")]], [0.3])))
    assert within.parts[0].place == inner + users
    called = unnamed(
        report_of(loop([[("other", "numpy/core.py:5 in wrap, from a.py:3 (np.sort) in f", 30, "")]], [0.3]))
    )
    assert called.parts[0].place == "a.py:3 (np.sort) in f", "the user's own line says what goes on"


def test_what_libraries_do_names_the_finding() -> None:
    """The user's line calls a function of the program's own: its name says nothing."""
    told = loop([[("other", "train.py:12 (report) in main", 30, activity)] for activity in ("plot",) * 6], [0.3] * 6)
    assert "logging-overhead" in [finding.code for finding in judged(told, alive=False)[0]]
    told = loop([[("other", "train.py:12 (report) in main", 30, activity)] for activity in ("lock",) * 6], [0.3] * 6)
    assert [finding.code for finding in judged(told, alive=False)[0]] == ["unaccounted-time"]


def test_a_loss_outside_of_the_model_is_no_unaccounted_time() -> None:
    for activity, codes in (("loss", []), ("", ["unaccounted-time"])):
        told = loop([[("other", "train.py:12 (criterion) in main", 30, activity)] for _ in range(6)], [0.3] * 6)
        assert [finding.code for finding in judged(told, alive=False)[0]] == codes


@pytest.mark.parametrize(("layers", "found"), [(30, False), (3, True)])
@pytest.mark.parametrize("where", ["other", "between steps"])  # of a step that begins in hindsight
def test_layers_called_one_by_one_are_no_unaccounted_time(layers: int, found: bool, where: str) -> None:
    rows = [(where, "train.py:12 (self.enc) in main", layers, "model"), ("other", "train.py:9 in f", 33 - layers, "")]
    told = loop([rows for _ in range(6)], [0.3] * 6)
    assert ("unaccounted-time" in [finding.code for finding in judged(told, alive=False)[0]]) == found


@pytest.mark.parametrize(("call", "found"), [("zero_grad", False), ("step", True)])
def test_of_the_optimizer_only_its_step_has_a_phase(call: str, found: bool) -> None:
    """Samples of the step in no phase were at its borders; those of `zero_grad` are computing in no phase."""
    told = Story()
    for _ in range(40):
        told.step(forward=0.1, backward=0.2, optimizer=0.05, other=0.3)
    looks = [
        ("other", f"train.py:9 (of_critics.{call}) in main", 20, "optimizer"),
        ("other", "train.py:7 in main", 20, ""),
    ]
    codes = [finding.code for finding in judged(sampled(told, looks, 0.0))[0] if finding.severity != "info"]
    assert ("unaccounted-time" in codes) is found


def test_memory_is_bounded_however_many_places_and_reports() -> None:
    samples = StackSamples()
    for i in range(5000):
        rows = [("other", f"a.py:{i} in f", 1), (f"phase {i}", "b.py:1 in g", 2)]
        samples.take(Frames("p", i, float(i + 1), rows=placed(rows), begin=float(i)))
    assert len(samples.looks) <= MAX_PLACES + 4 and len(samples.stretches) <= MAX_STRETCHES
    assert sum(samples.seconds.values()) == pytest.approx(5000.0), "nothing is lost"
    assert sum(samples.looks.values()) == 15_000


@pytest.mark.parametrize(("looks", "severity"), [(0, "warning"), (4, "info"), (12, "warning")])
def test_what_few_samples_show_is_no_warning(looks: int, severity: str) -> None:
    """It may be computing; where nothing is sampled at all, the measured time alone leads."""
    rows = [("other", f"train.py:{line} in main", looks, "") for line in (7, 8)] if looks else []
    told = loop([rows] + [[]] * 5, [0.3] * 6)
    found = [(row.code, row.severity) for row in judged(told, alive=False)[0]]
    assert found == [("unaccounted-time", severity)]
