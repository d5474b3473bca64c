"""The sections of gpu-check without a GPU: their time, their rows, their table, with made-up runs of programs."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.gpu_check import __main__ as main
from tests.gpu_check import cost, driver, lanes, programs, scripts_check, trace, traces
from tests.gpu_check.budget import LONG, SHORT, START, TWIN, Budget, Deadline, Pace
from tests.gpu_check.expected import Case
from tests.gpu_check.row import BAD, Row
from tests.gpu_check.runner import Ran, bare, last_json, watched
from tests.gpu_check.table import Book, printed


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_sections_share_the_time_and_leave_each_other_what_they_do_not_need(clock: Clock) -> None:
    budget = Budget(600.0, ["driver", "lanes", "cost", "scripts"], clock)
    name, deadline = budget.next()
    assert name == "driver" and deadline.left() == pytest.approx(90.0)
    clock.now = 30.0
    assert budget.next()[1].left() == pytest.approx(570 * 5 / 85)
    clock.now = 40.0
    assert budget.next()[1].left() == pytest.approx(560 * 16 / 80)
    clock.now = 500.0  # it took more than it was given
    name, deadline = budget.next()
    assert (name, deadline.left(), budget.to_come) == ("scripts", 100.0, 0)
    assert not deadline.over(99.0) and deadline.over(101.0)


def test_scripts_are_as_long_as_the_time_allows(clock: Clock) -> None:
    assert Pace(Deadline(10_000.0, clock)).seconds(30, 20) == LONG
    assert Pace(Deadline(300.0, clock)).seconds(30, 20) == SHORT
    middle = Pace(Deadline(10 * (START + 7.0) + 5 * (START + TWIN * 7.0), clock)).seconds(10, 5)
    assert middle == pytest.approx(7.0)
    assert Pace(Deadline(START + SHORT - 0.1, clock)).seconds(1, 1) is None


def test_the_cost_of_starting_is_learned(clock: Clock) -> None:
    pace = Pace(Deadline(100.0, clock))
    for _ in range(20):
        pace.took(wall=9.0, training=6.0)
    assert pace.start == pytest.approx((2 * START + 60.0) / 22)
    pace.took(wall=1.0, training=6.0)  # it ended before its time
    assert pace.start == pytest.approx((2 * START + 60.0) / 23)


def test_the_table_has_its_facts_its_rows_and_its_notes(tmp_path: Path) -> None:
    shown: list[str] = []
    book = Book([("Date", "2020-01-01"), ("Card", "a | b")], tmp_path / "new" / "table.md", shown.append)
    book.begin("First", ("what", "n", "verdict"), (6, 4, 3))
    book.row(("a|b", "1", "ok"))
    book.row(("c", "2", "BAD"), bad=True)
    book.note("Two.")
    book.end()
    assert book.bad == 1
    assert shown == ["\nFirst\nwhat      n verdict", "a|b       1 ok", "c         2 BAD", "Two."]
    assert (tmp_path / "new" / "table.md").read_text() == (
        "# What gpu-check found\n\n- Date: 2020-01-01\n- Card: a \\| b\n\n## First\n\n"
        "| what | n | verdict |\n|---|---|---|\n| a\\|b | 1 | ok |\n| c | 2 | BAD |\n\nTwo.\n"
    )


@pytest.mark.parametrize("module", [cost, driver, lanes, programs, traces])
def test_each_column_has_a_width(module: Any) -> None:
    assert len(module.HEAD) == len(module.WIDTHS)
    assert printed(module.HEAD, module.WIDTHS)


# Sections as a whole


def test_sections_are_chosen_by_name() -> None:
    assert main.chosen("", "") == ["driver", "lanes", "traces", "cost", "scripts"]
    assert main.chosen("", "python a.py") == list(main.SECTIONS)
    assert main.chosen("scripts, cost", "") == ["cost", "scripts"]
    for wrong in ("cots", "programs"):
        with pytest.raises(ValueError, match=wrong):
            main.chosen(wrong, "")


def test_a_section_that_breaks_is_a_fault_and_costs_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(given: main.Given, deadline: Deadline) -> None:
        raise RuntimeError("boom")

    def well(given: main.Given, deadline: Deadline) -> None:
        given.book.begin("Costs", ("loop", "verdict"), (4, 4))
        given.book.row(("mlp", "ok"))

    monkeypatch.setattr(main, "RUNS", {"driver": broken, "cost": well})
    book = Book([], tmp_path / "table.md", lambda text: None)
    main.run(main.Given(book, tmp_path, tmp_path / "out", ""), Budget(60.0, ["driver", "cost"]))
    assert book.bad == 1 and [each.title for each in book.sections] == ["driver", "Costs"]
    assert "driver: BROKEN: RuntimeError: boom" in (tmp_path / "table.md").read_text()


def test_the_drivers_checks_are_made_while_there_is_time(clock: Clock) -> None:
    def broken() -> list[Row]:
        raise OSError("gone")

    def checks() -> Iterator[tuple[str, Any]]:
        yield "idle", lambda: [Row("a", "1", "1")]
        yield "load", lambda: [Row("never", "", "")]
        yield "after the load", broken

    left: list[str] = []
    rows = list(driver.run(checks(), Deadline(10.0, clock), left.append))
    assert left == ["load"]
    assert [(row.check, row.ours, row.verdict) for row in rows] == [
        ("a", "1", "ok"),
        ("after the load", "OSError: gone", BAD),
    ]


def test_a_check_apart_that_fails_says_why() -> None:
    with pytest.raises(RuntimeError, match="KeyError: 'nothing'"):
        driver.apart("nothing")


# Scripts

SICK = Case("sick_small_batch.py", ("small-batch",))
SECRET = Case("sick_losses_kept.py", ("memory-leak",), gain=False)
WELL = Case("well_dense.py")


def report(*findings: tuple[str, str]) -> dict[str, Any]:
    return {"findings": [{"code": code, "severity": severity, "recoverable": None} for code, severity in findings]}


class Made:
    """Programs that take their time on a made-up clock, and say what they are to say."""

    def __init__(self, clock: Clock, seen: Ran, twin: Ran) -> None:
        self.clock, self.seen, self.twin = clock, seen, twin
        self.commands: list[list[str]] = []

    def recorded(self, name: str, command: list[str], state: Path, limit: float, turn: Path) -> Ran:
        return self._ran(command, self.seen, turn)

    def bare(self, command: list[str], state: Path, limit: float, turn: Path) -> Ran:
        return self._ran(command, self.twin, turn)

    def report(self, name: str, state: Path) -> dict[str, Any] | None:
        return self.seen.report

    def _ran(self, command: list[str], ran: Ran, turn: Path) -> Ran:
        while not turn.exists():
            time.sleep(0.001)
        self.commands.append(command)
        self.clock.now += float(command[command.index("--seconds") + 1]) + 4.0
        return ran


SEEN = Ran(0, 12.0, "", "", {"samples_per_second": 10.0}, report(("small-batch", "warning")))
TWIN_RAN = Ran(0, 8.0, "", "", {"samples_per_second": 50.0})


def test_a_sick_script_is_watched_and_its_twin_is_run_bare(clock: Clock, tmp_path: Path) -> None:
    made = Made(clock, SEEN, TWIN_RAN)
    (outcome,) = scripts_check.check(Deadline(100.0, clock), tmp_path, "cpu", [SICK], made)
    assert outcome.real == 5.0 and outcome.named
    options = [command[2:] for command in made.commands]
    assert options[0] == ["--device", "cpu", "--seconds", "9.0"]
    assert options[1] == ["--device", "cpu", "--seconds", f"{TWIN * 9.0:.1f}", "--mended"]


def test_healthy_scripts_and_those_whose_speed_says_nothing_have_no_twin(clock: Clock, tmp_path: Path) -> None:
    made = Made(clock, replace(SEEN, report=report(("memory-leak", "warning"))), TWIN_RAN)
    well, kept = scripts_check.check(Deadline(100.0, clock), tmp_path, "cpu", [WELL, SECRET], made)
    assert len(made.commands) == 2
    assert not well.good and kept.good


def test_what_there_is_no_time_for_is_told(clock: Clock, tmp_path: Path) -> None:
    seen: list[str] = []
    cases = [SICK, WELL, replace(WELL, script="well_lora.py"), replace(WELL, script="well_x.py", needs="no_such_thing")]
    made = Made(clock, SEEN, TWIN_RAN)
    outcomes = scripts_check.check(
        Deadline(30.0, clock), tmp_path, "cpu", cases, made, lambda each: seen.append(each.case.name)
    )
    assert seen == ["sick_small_batch", "well_dense", "well_lora", "well_x"]
    left_out = [None, None, "no time left", "no_such_thing is not installed"]
    assert [each.skipped for each in outcomes] == left_out


@pytest.mark.parametrize(
    ("seen", "twin", "trouble"),
    [
        (Ran(1, 3.0, "", "Traceback\n  x\nValueError: no\n"), TWIN_RAN, "exit code 1: ValueError: no"),
        (Ran(None, 3.0, "", ""), TWIN_RAN, "it hung"),
        (replace(SEEN, report=None), TWIN_RAN, "no report"),
        (SEEN, Ran(2, 3.0, "", "usage"), "its twin: exit code 2: usage"),
    ],
)
def test_a_script_that_breaks_is_told(clock: Clock, tmp_path: Path, seen: Ran, twin: Ran, trouble: str) -> None:
    (outcome,) = scripts_check.check(Deadline(100.0, clock), tmp_path, "cpu", [SICK], Made(clock, seen, twin))
    assert (outcome.trouble, outcome.good) == (trouble, False)


def test_each_program_is_started_before_its_turn_and_has_its_turn_alone(tmp_path: Path) -> None:
    events: list[str] = []
    started = [threading.Event() for _ in range(3)]

    def job(number: int) -> Callable[[Path], Ran]:
        def run(turn: Path) -> Ran:
            started[number].set()
            while not turn.exists():
                time.sleep(0.001)
            events.append(f"{number} trains")
            if number < 2:
                assert started[number + 1].wait(30), "the next one is started meanwhile"
            events.append(f"{number} ends")
            return Ran(number, 1.0, "", "")

        return run

    jobs = [((SICK, False, 1.0), job(number)) for number in range(3)]
    assert [ran.code for _, ran, _ in scripts_check.in_turns(jobs, tmp_path / "scratch")] == [0, 1, 2]
    assert events == [f"{number} {what}" for number in range(3) for what in ("trains", "ends")]


def test_what_was_kept_is_judged_again(clock: Clock, tmp_path: Path) -> None:
    made = Made(clock, SEEN, TWIN_RAN)
    first = scripts_check.check(Deadline(100.0, clock), tmp_path, "cpu", [SICK, WELL], made)
    assert scripts_check.judged(tmp_path, [SICK, WELL, SECRET], runs=made) == first, "what was not run is left out"
    made.seen = replace(SEEN, report=report(("launch-bound", "warning")))
    again, _ = scripts_check.judged(tmp_path, [SICK, WELL], runs=made)
    assert not again.named and again.real == 5.0


# Cost

BASE = {"mean": 1e-3, "median": 1e-3, "p99": 2e-3, "loss": 0.5, "peak": 1000}


def measured(name: str = "mlp", **modes: dict[str, Any]) -> cost.Measured:
    found = cost.Measured(name)
    for mode, place in (("bare", 0), ("zero", 1), ("api", 2), ("off", 3)):
        found.runs[cost.MODES[place]] = [{**BASE, **modes.get(mode, {})}]
    return found


@pytest.mark.parametrize(
    ("modes", "verdict"),
    [
        ({"zero": {"mean": 1.01e-3}, "off": {"mean": 1.005e-3}}, "ok"),
        ({"zero": {"mean": 1.2e-3}, "off": {"mean": 1.2e-3}}, "zero code: more than 5%; zero code, device lane off"),
        ({"api": {"mean": 1.06e-3}}, "trainhooks API: more than 5%"),
        ({"zero": {"mean": 1.04e-3}}, "device lane: 4.0%, budget 0.5%"),
        ({"zero": {"loss": 0.6}}, "the losses differ"),
        ({"zero": {"loss": 0.50001}}, "ok"),
        ({"api": {"peak": 1100}}, "the peaks of GPU memory differ"),
        ({each: {"mean": 0.1030} for each in ("zero", "off")} | {"bare": {"mean": 0.1}, "api": {"mean": 0.1}},
         "zero code: more than 2%"),
    ],
)  # fmt: skip
def test_what_watching_may_cost(modes: dict[str, Any], verdict: str) -> None:
    ((cells, bad),) = cost.rows(measured(**modes))
    assert cells[-1].startswith(verdict) and bad == (verdict != "ok"), cells


def test_the_99th_percentile_has_a_row_and_a_limit_of_its_own() -> None:
    (_, fine), (cells, bad) = cost.rows(measured("mlp-item", zero={"p99": 2.6e-3}))
    assert not fine and bad and cells[0] == "its 99th percentile"
    assert cells[1:3] == ("2.00 ms", "+600 us (+30.0%)") and "more than 25%" in cells[-1]


def test_a_loop_that_breaks_is_told() -> None:
    found = measured()
    found.trouble.append("bare: exit code 1: boom")
    ((cells, bad),) = cost.rows(found)
    assert bad and "boom" in cells[-1]


def test_loops_are_run_in_turns_while_there_is_time(clock: Clock, tmp_path: Path) -> None:
    order: list[tuple[str, str]] = []

    def run(loop: str, mode: str, state: Path) -> Ran:
        order.append((loop, mode))
        clock.now += 5.0
        return Ran(0, 5.0, "", "", dict(BASE)) if loop != "gpt" else Ran(1, 5.0, "", "boom")

    found = cost.measure(Deadline(112.0, clock), tmp_path, run)
    assert len(order) == 16 + 6, "the first round is made whole"
    assert order[:5] == [*(("mlp", mode) for mode in cost.MODES), ("mlp-item", cost.BARE)]
    assert [len(found[0].runs[mode]) for mode in cost.MODES] == [2, 2, 2, 2]
    assert len(found[2].trouble) == 4
    assert "1 or 2 runs" in cost.notes([each for each in found if each.name != "gpt"])[0]


# Lanes


def launch(ts: float, number: int, begin: float, lasts: float, cat: str = "kernel") -> list[dict[str, Any]]:
    return [
        {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": ts, "dur": 2, "args": {"correlation": number}},
        {"cat": cat, "name": "k", "ts": begin, "dur": lasts, "args": {"correlation": number}},
    ]


def mark(name: str, ts: float, lasts: float) -> dict[str, Any]:
    return {"cat": "user_annotation", "name": name, "ts": ts, "dur": lasts}


def test_kernels_belong_to_the_phase_that_launched_them() -> None:
    events = [
        mark("forward", 0, 10), mark("backward", 20, 10), mark("forward", 100, 10), mark("other", 0, 200),
        *launch(1, 1, 1000, 50), *launch(5, 2, 1040, 60),  # overlapping: 1000 to 1100
        *launch(25, 3, 1100, 30, "gpu_memcpy"), *launch(15, 4, 1130, 9),  # the second one: between the phases
        *launch(105, 5, 1200, 20), *launch(106, 6, 1230, 70),
        {"cat": "kernel", "name": "k", "ts": 5, "dur": 5, "args": {}},
        {"cat": "gpu_user_annotation", "name": "forward", "ts": 0, "dur": 5},
    ]  # fmt: skip
    found = trace.phases(events, ("forward", "backward", "optimizer"))
    assert found["forward"] == trace.Phase(2, pytest.approx(95e-6), pytest.approx(100e-6))
    assert found["backward"] == trace.Phase(1, pytest.approx(30e-6), pytest.approx(30e-6))
    assert "optimizer" not in found


def lane(**means: float) -> dict[str, Any]:
    rows = [{"name": name, "clock": "cuda", "mean": mean, "busy_least": mean / 2} for name, mean in means.items()]
    shares = [{"name": name, "share": 1 / 3} for name in KERNELS]
    phases = [*rows, {"name": "data", "clock": "host", "mean": 1.0}]
    return {"phases": phases, "device": {"trace": {"phases": shares}}}


KERNELS = {name: {"steps": 20, "busy": 0.010, "span": 0.011} for name in ("forward", "backward", "optimizer")}


def test_the_lane_is_held_against_the_kernels() -> None:
    rows = lanes.judge(lane(forward=0.0103, backward=0.0107, optimizer=0.0094), [KERNELS, KERNELS])
    assert [cells[-1] for cells, _ in rows] == ["ok", "DIFFERS by +7.0%", "DIFFERS by -6.0%"]
    assert [bad for _, bad in rows] == [False, True, True]
    assert rows[0][0][:5] == ("forward", "10.300 ms", "5.150 ms", "10.000 ms", "11.000 ms")


def test_a_lane_that_tells_nothing_or_too_much_is_seen() -> None:
    rows = lanes.judge(lane(forward=0.01), [KERNELS])
    assert [cells[-1][:7] for cells, _ in rows] == ["ok", "MISSING", "MISSING"]
    assert lanes.judge(lane(forward=0.01), [{}])[0][0][-1] == "BROKEN: the profiler saw no kernel"
    told = lane(forward=0.0101)
    told["phases"][0]["busy_least"] = 0.012
    assert lanes.judge(told, [KERNELS])[0][0][-1].startswith("DIFFERS: busy")
    hosts = lane(forward=0.01)
    hosts["phases"][0]["clock"] = "host"
    assert lanes.judge(hosts, [KERNELS])[0][1], "the host's clock is no device lane"


def test_a_share_by_the_trace_is_held_against_the_profilers() -> None:
    told = lane(forward=0.01, backward=0.01, optimizer=0.01)
    told["device"]["trace"]["phases"][0]["share"] = 0.30
    assert [cells[-1][:7] for cells, _ in lanes.judge(told, [KERNELS])] == ["DIFFERS", "ok", "ok"]
    told["device"] = {"trace": None}
    assert [cells[-1] for cells, _ in lanes.judge(told, [KERNELS])] == ["MISSING: no trace"] * 3


# Traces


def traced_run(after: float, traces: int = 3, errors: str = "") -> Ran:
    trace = {"begin": 0.02, "end": 0.06, "on_device": 3000, "on_host": 4000}
    told = {"before": [0.030, 0.030], "after": [after] * max(1, traces), "traces": [trace] * traces}
    return Ran(0, 9.0, "", errors, told)


def test_a_loop_that_stays_slower_after_its_traces_is_bad(clock: Clock, tmp_path: Path) -> None:
    def run(loop: str, variant: str, state: Path) -> Ran:
        slower = variant == traces.LEFT_ATTACHED or (variant == traces.TRACED and loop == "mlp")
        return traced_run(0.036 if slower else 0.0302, 0 if variant == traces.CONTROL else 3)

    found = traces.measure(Deadline(10_000.0, clock), tmp_path, run)
    rows = {each.name: traces.row(each) for each in found}
    assert [rows[name][1] for name in ("gpt", "mlp", "graph")] == [False, True, False]
    assert rows["gpt"][0][1:5] == ("30.00 ms", "+0.7%", "+0.7%", "+20.0%")


def test_what_the_profiler_prints_is_a_fault(clock: Clock, tmp_path: Path) -> None:
    ran = traced_run(0.03, errors="USDT: 1\n")
    found = traces.measure(Deadline(0.0, clock), tmp_path, lambda loop, variant, state: ran)
    assert all(traces.row(each)[1] and "USDT" in traces.row(each)[0][-1] for each in found)
    assert all(len(each.trouble) == len(traces.VARIANTS) for each in found), "once, where time is up"


# Programs


@pytest.mark.parametrize(
    ("text", "speed"),
    [
        ("iter 0: time 900ms\niter 1: loss 3.2, time 250.00ms, mfu 4%\niter 2: time 250.00ms\n", 4.0),
        ("12,345.5 tokens/s\n", 12345.5),
        ("10%|#| 5/50 [00:01<00:09, 4.80it/s]\r20%|#| 10/50 [00:02<00:08,  5.00it/s]", 5.0),
        ("  5/50 [00:10<01:30,  2.00s/it]", 0.5),
        ("{'train_runtime': 3.0, 'train_samples_per_second': 81.5}", 81.5),
        ('SPS: 4000\n{"samples_per_second": 7.5}\n', 7.5),
        ("SPS: 4000\nSPS: 4200", 4200.0),
        ("loss 0.5\n", None),
    ],
)
def test_a_programs_own_speed(text: str, speed: float | None) -> None:
    found = programs.throughput(text)
    assert found == (None if speed is None else pytest.approx(speed, rel=0.03))


def test_programs_are_compared_by_what_they_say_themselves() -> None:
    alone = Ran(0, 1.0, "", "100 it/s\n")
    watched = Ran(0, 1.0, "", "99.5 it/s\ntrainmon: x finished\n  12 steps; 3.0 it/s\n", {}, report(("x", "info")))
    cells, bad = programs.row(["python", "a.py"], alone, watched)
    assert cells == ("python a.py", "100", "99.5", "+0.5%", "x", "ok") and not bad
    cells, bad = programs.row(["python", "a.py"], alone, replace(watched, errors="90 it/s\n"))
    assert bad and cells[3] == "+11.1%"
    assert programs.row(["a"], alone, Ran(3, 1.0, "", "boom"))[1]
    assert programs.row(["a"], Ran(0, 1.0, "", ""), watched)[0][-1] == "its speed is not told"


def test_commands_are_split_as_a_shell_does() -> None:
    assert programs.split("python a.py --name 'x y'; ;./b") == [["python", "a.py", "--name", "x y"], ["./b"]]


# Running


def test_the_last_json_line_counts() -> None:
    assert last_json('{"a": 1}\n{"a": 2}\n{broken\n[3]\nend\n') == {"a": 2}
    assert last_json("nothing") == {}


def test_a_program_is_run_bare(tmp_path: Path) -> None:
    ran = bare([sys.executable, "-c", "print('{\"a\": 1}')"], tmp_path / "state", 30.0)
    assert (ran.code, ran.told, ran.report, ran.trouble) == (0, {"a": 1}, None, None)
    ran = bare([sys.executable, "-c", "raise ValueError('no')"], tmp_path / "state", 30.0)
    assert ran.trouble == "exit code 1: ValueError: no"


def test_a_program_that_hangs_is_ended_watched_or_not(tmp_path: Path) -> None:
    hangs = [sys.executable, "-c", "import time; time.sleep(60)"]
    assert bare(hangs, tmp_path / "bare", 0.5).trouble == "it hung"
    assert watched("hangs", hangs, tmp_path / "watched", 3.0).trouble == "it hung"
