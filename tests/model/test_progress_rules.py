"""Rules on how a run goes on, beside others and beside its past: each fires on its own trouble, not on its kin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from monitor.diagnosis.diagnose import diagnose
from monitor.diagnosis.rule import Evidence
from monitor.model.comparison.compare import Side
from monitor.model.comparison.loop_pace import loop_time
from monitor.model.report import Finding
from monitor.model.summary import make_report, open_work
from trainhooks.protocol.events import Facts, Frames, Metrics

from .conftest import Story, around, folded, judged, judged_state
from .test_hardware_rules import disk
from .test_host_contention import spikes, steady
from .test_ranks import steady as ranks_work
from .test_ranks import synchronous
from .test_rules import healthy, jitter, padded

SETTINGS = {"config": {"dataloader_num_workers": 4}, "cpus": 8}
Scene = Callable[[], list[Finding]]


def ended(told: Story) -> Scene:
    return lambda: judged(told, alive=False)[0]


def running(told: Story) -> Scene:
    return lambda: judged(told, alive=True)[0]


def stopped(told: Story, seconds: float, **pulse: Any) -> Scene:
    """Somebody ends it, so long after its last step."""
    return ended(told.wait(seconds).pulse(**pulse).bye("KeyboardInterrupt: "))


def launched(seconds: float, told: Story | None = None, alive: bool = True) -> Scene:
    """A program that was started under `trainmon run`, so long ago."""
    identity = {"launched": True, "started_monotonic": 100.0, "command": ["python", "train.py"]}
    state = folded(told or Story("node", source="recorder"))
    return lambda: judged_state(state, alive=alive, now=100.0 + seconds, **identity)[0]


def expecting(wanted: float | None, told: Story) -> Scene:
    return lambda: judged_state(folded(told), alive=False, expect_tps=wanted)[0]


def ranked(*told: Story) -> Scene:
    return lambda: judged_state(folded(*told), alive=False)[0]


def working(n: int, work: float, facts: dict[str, Any] | None = None, **fields: Any) -> Story:
    told = Story().tell(Facts, facts=facts or SETTINGS)
    for _ in range(n):
        told.step_with(fields, data=jitter(0.004), forward=jitter(work), backward=jitter(0.02))
    return told


def after(before: Story | None, told: Story) -> Scene:
    """The same command, with an earlier run of it at hand."""

    def judge() -> list[Finding]:
        state, earlier = folded(told), None
        if before is not None:
            old = folded(before)
            known = make_report(old, around(old, id="before", started=1000.0, command=["python", "t.py"]))
            earlier = Side(known, loop_time(old, known))
        about = around(state, id="after", started=9000.0, command=["python", "t.py"])
        now = make_report(state, about)
        return diagnose(Evidence(state, now, open_work(state, about, now.outcome), earlier))

    return judge


def skipping(every: int, n: int = 60) -> Story:
    told = Story()
    for i in range(n):
        skipped = {"status": "skipped", "reason": "empty code"} if i % every == 0 else {}
        told.step_with(skipped, forward=jitter(0.1), backward=jitter(0.2))
    return told


def standing(looks: list[tuple[str, str, int]], n: int = 60, **phases: float) -> Story:
    """A loop that tells nothing of what it does between forward, backward and optimizer, and where it was seen."""
    told = Story()
    for _ in range(n):
        told.step(**{name: jitter(seconds) for name, seconds in {"forward": 0.1, "backward": 0.2, **phases}.items()})
    return told.tell(Frames, rows=looks)


AT_A_PRINT = ("between steps", "train.py:12 (print) in <module>", 30)
AT_A_WRITE = ("other", "train.py:13 (f.flush) in <module>", 20)
AT_A_SAVE = ("between steps", "train.py:20 (pickle.dump) in <module>", 50)
AT_A_LOSS = ("between steps", "train.py:9 (math.log) in <module>", 50)
AT_AN_EVALUATION = ("between steps", "train.py:31 (model) in evaluate", 50)
AT_ANYTHING = ("between steps", "train.py:40 (simulate) in environment", 60)

AT_A_SAMPLE = ("between steps", "diffusion.py:80 (model) in sample", 50)
IN_THE_LOOP = ("between steps", "train.py:41 (net.generate) in main", 50)
AT_A_STEP = ("backward", "train.py:36 (loss.backward) in main", 20)


def working_between(
    looks: list[tuple[str, str, int]], gap: float = 0.0, each: int = 5, activity: str = "", **burst: float
) -> Story:
    """A loop that does something more every so many steps: with a loader between steps, else in the next step."""
    told = Story()
    for number in range(1, 61):
        done = number % each == 0
        told.step(**{"forward": jitter(0.01), "backward": jitter(0.02), **(burst if done else {})})
        told.wait(gap if done else 0.0)
    return told.tell(Frames, rows=looks, activities=[activity] * len(looks))


SICK: dict[str, Scene] = {
    "work-between-steps": ended(working_between([AT_A_SAMPLE, (*AT_A_PRINT[:2], 20)], gap=1.0)),
    "nothing-reports": launched(130),
    "stalled": stopped(steady(Story(), 60), 40),
    "slow-steps": ended(spikes()),
    "steps-skipped": ended(skipping(3)),
    "straggler": ranked(*synchronous(4, 80, ranks_work(slow=2))),
    "below-expected": expecting(10_000, padded(0.0)),
    "regressed": after(
        working(200, 0.05), working(200, 0.2, {"config": {"dataloader_num_workers": 0}, "cpus": 8})
    ),
    "disk-slow": ended(disk(70, 80)),
    "logging-overhead": ended(standing([AT_A_PRINT, AT_A_WRITE, (*AT_A_LOSS[:2], 9)], other=0.5)),
    "checkpoint-stall": ended(standing([AT_A_SAVE, AT_A_PRINT], other=0.5)),
    "eval-heavy": ended(standing([AT_AN_EVALUATION], other=0.5)),
    "unaccounted-time": ended(standing([AT_ANYTHING, AT_A_PRINT], other=0.5)),
}  # fmt: skip

NOT_IN_ZOO = {
    "nothing-reports": "it takes two minutes of silence, as of a program without Python",
    "regressed": "it takes two runs, one after the other",
    "disk-slow": "it needs a slow disk",
}
INNOCENT: dict[str, list[Scene]] = {
    "nothing-reports": [launched(5), launched(130, healthy()), launched(130, Story("h").span("import torch", 2))],
    "stalled": [
        stopped(steady(Story(), 60), 3),
        stopped(steady(Story(), 60), 40, spans=[("eval", 40.0)]),
        running(steady(Story(), 60, between=1.0).wait(90).pulse()),
    ],
    "slow-steps": [ended(healthy(150)), ended(healthy(100).step(forward=0.3, backward=0.2)), ended(healthy(4))],
    "steps-skipped": [ended(skipping(100, n=200)), ended(skipping(1, n=2)), ended(healthy())],
    "straggler": [
        ranked(*synchronous(4, 80, ranks_work())),
        ranked(*synchronous(4, 80, lambda rank, step: 0.1 + (0.05 if step % 4 == rank else 0.0))),
        ranked(*synchronous(4, 8, ranks_work(slow=2))),
    ],
    "below-expected": [expecting(3_300, padded(0.0)), expecting(None, padded(0.0)), expecting(10_000, healthy())],
    "regressed": [
        after(working(200, 0.2), working(200, 0.2)),
        after(working(200, 0.05), working(8, 0.2)),
        after(working(200, 0.1, samples=8), working(200, 0.2, samples=16)),
        after(None, working(200, 0.2)),
    ],
    "disk-slow": [ended(disk(70, 0.1)), ended(disk(5, 80)), ended(disk(70, 80, data=0.01))],
    "logging-overhead": [
        ended(standing([AT_ANYTHING, AT_A_PRINT], other=0.5)),  # a third of it is no reason
        ended(standing([AT_A_PRINT, AT_A_WRITE], other=0.05)),  # it is little
        ended(standing([(*AT_A_PRINT[:2], 9)], other=0.5)),  # few looks
        ended(standing([AT_A_LOSS], other=0.5)),
        ended(standing([("between steps", "train.py:7 in log_prob", 50)], other=0.5)),
    ],
    "checkpoint-stall": [
        ended(standing([AT_A_SAVE], other=0.02)),
        ended(standing([("between steps", "train.py:7 (torch.load) in restore", 50)], other=0.5)),
        ended(standing([("between steps", "train.py:7 (game.save) in play", 50)], other=0.5)),
    ],
    "work-between-steps": [
        ended(working_between([AT_A_SAMPLE], gap=0.02)),  # it is little
        ended(working_between([(*AT_A_SAMPLE[:2], 11)], gap=1.0)),  # few looks
        ended(working_between([("between steps", f"game.py:9 in part_{n}", 20) for n in range(3)], gap=1.0)),
        ended(working_between([AT_A_SAMPLE], gap=60.0, each=60)),  # once
        ended(standing([AT_A_SAMPLE], other=0.1)),  # each step has it: it may be the model, called as a function
        ended(working_between([("between steps", "train.py:9 (time.sleep) in pause", 50)], gap=1.0, activity="sleep")),
    ],
    "eval-heavy": [
        ended(standing([AT_AN_EVALUATION], other=0.03)),
        ended(standing([("between steps", "train.py:7 in evaluate_position", 50)], other=0.5)),
    ],
    "unaccounted-time": [
        ended(standing([AT_A_PRINT, AT_A_WRITE], other=0.5)),  # told as logging
        ended(standing([AT_A_SAVE], other=0.5)),
        ended(standing([AT_ANYTHING], other=0.04)),
    ],
}


def test_a_reason_has_a_number_of_its_own_where_there_are_others() -> None:
    def title(told: Story) -> str:
        return next(finding.title for finding in ended(told)() if finding.code == "steps-skipped")

    assert title(skipping(3)).endswith(": empty code")
    several = skipping(3).step_with({"status": "skipped", "reason": "no tests"}, forward=0.1)
    assert title(several).endswith(": empty code (20)")


@pytest.mark.parametrize("code", SICK)
def test_it_fires_and_nothing_else_of_weight(code: str) -> None:
    found = SICK[code]()
    (finding,) = [each for each in found if each.code == code]
    others = [finding.code for finding in found if finding.severity != "info" and finding.code != code]
    assert others == (["input-bound"] if code == "disk-slow" else []), "the disk is why the data is late"
    assert finding.evidence and finding.advice
    assert finding.lost_fraction is None or 0 <= finding.lost_fraction <= 1


def test_what_was_only_seen_names_its_lines_and_says_about() -> None:
    (found,) = SICK["logging-overhead"]()
    assert found.code == "logging-overhead" and "about 5" in found.title
    assert any(line.startswith("train.py:12 (print) in <module>: about") for line in found.evidence)


@pytest.mark.parametrize(
    ("told", "name"),
    [
        (working_between([AT_A_SAMPLE], gap=1.0), "sample()"),
        (working_between([AT_A_SAMPLE], other=1.0), "sample()"),
        (working_between([IN_THE_LOOP, AT_A_STEP], gap=1.0), "train.py:41 (net.generate) in main"),
        (working_between([AT_A_SAMPLE], other=1.0, each=1), None),
    ],
    ids=["between steps", "in the next step", "in the loop's function", "in each step"],
)
def test_work_between_steps_has_a_name(told: Story, name: str | None) -> None:
    titles = [finding.title for finding in ended(told)() if finding.code == "work-between-steps"]
    assert [title.endswith(f" in {name}") for title in titles] == ([True] if name else [])


def test_what_a_policy_learns_from_is_no_work_between_steps() -> None:
    told = working_between([AT_A_SAMPLE], gap=1.0)
    for number in range(60):
        told.tell(Metrics, step=number + 1, values={"reward": number / 60})
    assert "work-between-steps" not in [finding.code for finding in ended(told)()]


def test_printing_before_the_model_is_called_is_not_the_model_s_forward() -> None:
    """A plain loop's forward is all that lies between the data and backward."""
    (found,) = ended(standing([("forward", "train.py:8 (print) in <module>", 50)], forward=0.8))()
    assert found.code == "logging-overhead" and "train.py:8" in found.evidence[1]


def test_time_besides_logging_is_unaccounted() -> None:
    rows = [(*AT_A_PRINT[:2], 55), (*AT_ANYTHING[:2], 45)]
    found = {each.code: each for each in ended(standing(rows, other=3.0))()}
    assert set(found) == {"logging-overhead", "unaccounted-time"}
    assert "besides logging" in found["unaccounted-time"].title
    assert sum(each.lost_fraction or 0.0 for each in found.values()) < 1


def printed(loss: float, source: str = "console") -> Scene:
    told = Story("c", source=source)
    for _ in range(60):
        told.step_with({"metrics": {"loss": loss}}, forward=0.5)
    return ended(told)


def test_a_loss_that_is_printed_to_two_places_may_well_move() -> None:
    assert [finding.code for finding in printed(2.3026)()] == ["loss-flat"]
    assert printed(0.69)() == printed(0.7)() == printed(0.0)() == []
    assert [finding.code for finding in printed(0.69, "hooks")()] == ["loss-flat"], "the hooks have all of its digits"


@pytest.mark.parametrize(("saves", "seconds", "found"), [(30, 0.05, ["checkpoint-stall"]), (1, 1.5, [])])
def test_a_habit_is_measured_by_the_time_since_the_first_step(saves: int, seconds: float, found: list[str]) -> None:
    """A long start makes it no smaller; what comes once, at the end, is none."""
    told = Story().span("import", 60)
    for step in range(30):
        told.step(forward=0.2)
        if step >= 30 - saves:
            told.span("checkpoint", seconds)
    assert [finding.code for finding in judged(told, alive=False)[0] if finding.code == "checkpoint-stall"] == found


@pytest.mark.parametrize("looks", [12, 11])
def test_a_dozen_stack_samples_are_enough(looks: int) -> None:
    told = Story().span("import", 20)
    for _ in range(30):
        told.step(forward=0.01, backward=0.02, other=0.2)
    found, _ = judged(told.tell(Frames, rows=[(*AT_AN_EVALUATION[:2], looks)]), alive=False)
    assert ("eval-heavy" in [finding.code for finding in found]) is (looks == 12)


def test_batches_of_one_are_reported_in_a_short_run_with_a_long_start() -> None:
    told = Story().span("import", 20)
    for _ in range(40):
        told.step_with({"samples": 16, "forwards": 16}, data=0.001, forward=jitter(0.02), backward=jitter(0.03))
    assert [finding.code for finding in judged(told, alive=False)[0]][:1] == ["sequential-batching"]
