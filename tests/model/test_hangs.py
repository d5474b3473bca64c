"""A run that stands still: where, who waits for whom, and why; what is slow stands not still."""

from __future__ import annotations

from dataclasses import replace

import pytest

from monitor.diagnosis.diagnose import diagnose
from monitor.diagnosis.rule import Evidence
from monitor.model.report import Finding
from monitor.model.standing import may_stall
from monitor.model.summary import make_report, open_work
from trainhooks.protocol import calls
from trainhooks.protocol.events import Facts, Frames, Host
from trainhooks.protocol.vocabulary import ACTOR, BETWEEN_CELLS

from .conftest import Story, around, folded, judged_state, parts_of

LINE = "train.py:88 (q.get) in rewards"


def waiting(
    told: Story,
    seconds: int,
    cpu: float = 1.0,
    flow: float = 0.0,
    frame: str = LINE,
    moves: bool = False,
    **pulse: object,
) -> Story:
    """A pulse a second, with the machine's readings, for so long."""
    for second in range(seconds):
        told.wait(1.0)
        place = f"train.py:{second}" if moves else frame
        told.pulse(frame=place if second >= 5 else None, **pulse)
        told.tell(Host, tree_cpu=cpu, disk_write=flow, cores=4)
    return told


def steps(n: int, **hello: object) -> Story:
    told = Story(**hello)  # type: ignore[arg-type]
    for _ in range(n):
        told.step(forward=0.01, backward=0.02)
    return told


def found(*told: Story) -> Finding | None:
    rows = judged_state(folded(*told), alive=True)[0]
    return next((row for row in rows if row.code == "stalled"), None)


@pytest.mark.parametrize(
    ("activity", "words"),
    [(calls.LOCK, "waits for a lock"), (calls.QUEUE, "nobody fills"), (calls.POOL, "worker pool"),
     (calls.SUBPROCESS, "a subprocess"), (calls.LOADING, "DataLoader worker"), (None, "stands at")],
)  # fmt: skip
def test_where_and_why_after_usual_steps(activity: str | None, words: str) -> None:
    told = found(waiting(steps(50), 90, activity=activity))
    assert told is not None and told.severity == "critical"
    assert words in told.title and LINE in told.title and "py-spy" not in told.advice


@pytest.mark.parametrize(("cpu", "flow"), [(0.5, 0.0), (60.0, 0.0), (0.5, 5e6)])
def test_of_what_is_read_from_outside_only_the_idle_stands_still(cpu: float, flow: float) -> None:
    told = steps(50, source="console")
    for second in range(90):
        told.wait(1.0).pulse(step=51, step_open=float(second + 1))
        told.tell(Host, tree_cpu=cpu, disk_write=flow, cores=4)
    finding = found(told)
    assert finding is not None
    is_idle = (cpu, flow) == (0.5, 0.0)
    assert (finding.severity, finding.title.partition(":")[0]) == (
        ("critical", "Stalled") if is_idle else ("info", "Long")
    )


@pytest.mark.parametrize("source", ["console", ACTOR, "recorder"])
def test_what_others_tell_beside_it_takes_no_line_away(source: str) -> None:
    told, other = waiting(steps(50), 90), Story("other", source=source)
    for _ in range(92):  # the last word is theirs
        other.wait(1.0).pulse()
    finding = found(told, other)
    assert finding is not None and LINE in finding.title


def test_in_the_first_steps_it_is_a_guess_and_says_so() -> None:
    told = found(waiting(steps(3), 90, activity=calls.SLEEP))
    assert told is not None and told.severity == "info" and "a guess" in told.evidence[0]
    told = found(waiting(steps(3), 150, activity=calls.LOCK))
    assert told is not None and told.severity == "warning" and "waits for a lock" in told.title


@pytest.mark.parametrize("healthy", [{"cpu": 95.0}, {"flow": 5e6}, {"moves": True}])
def test_what_computes_or_writes_or_goes_on_does_not_stand_still(healthy: dict[str, float]) -> None:
    assert found(waiting(steps(3), 200, activity=calls.LOCK, **healthy)) is None  # type: ignore[arg-type]


def test_a_span_that_stands_still_is_told_and_not_as_a_habit() -> None:
    told = steps(40)
    for second in range(200):
        told.wait(1.0)
        told.pulse(frame=LINE if second >= 5 else None, activity=calls.LOCK, spans=[("eval", second + 1.0)])
        told.tell(Host, tree_cpu=0.5, cores=4)
    rows = judged_state(folded(told), alive=True)[0]
    assert rows[0].code == "stalled" and "in eval" in rows[0].title
    assert not {"eval-heavy", "worker-wait", "unaccounted-time"} & {row.code for row in rows}


def test_a_notebook_that_waits_for_a_person_does_not_stand_still() -> None:
    for name, is_told in (("eval", True), (BETWEEN_CELLS, False)):
        told = steps(50)
        for second in range(1000):
            told.wait(1.0)
            told.pulse(frame=LINE if second >= 5 else None, spans=[(name, second + 1.0)])
            told.tell(Host, tree_cpu=1.0, disk_write=0.0, cores=4)
        rows = judged_state(folded(told), alive=True)[0]
        assert {row.code for row in rows} == ({"stalled"} if is_told else set())


def test_no_time_left_is_shown_while_nobody_knows_when_it_goes_on() -> None:
    told = steps(50).tell(Facts, total_steps=100)
    for seconds, is_known in ((1, True), (90, False)):
        state = folded(waiting(told, seconds, activity=calls.QUEUE))
        about = around(state, alive=True)
        report = make_report(state, about)
        report.progress.eta_seconds = report.progress.eta_seconds or 1.0
        diagnose(Evidence(state, report, open_work(state, about, report.outcome)))
        assert (report.progress.eta_seconds is not None) is is_known


def ranks(elsewhere: object, ended: bool = False) -> list[Story]:
    stories = []
    for rank in range(3):
        told = Story(f"p{rank}", rank=rank)
        for _ in range(3):
            told.step(forward=0.01, backward=0.02)
        if rank == 1 and ended:
            told.bye()
        elif rank == 1:
            waiting(told, 100, **elsewhere)  # type: ignore[arg-type]
        else:
            waiting(told, 100, frame="loss.py:7 (all_reduce) in sync", activity=calls.COLLECTIVE)
        stories.append(told)
    return stories


def test_the_rank_that_the_others_wait_for_is_named_with_its_line() -> None:
    told = found(*ranks({"frame": "data.py:31 in __getitem__", "activity": calls.LOCK}))
    assert told is not None and told.severity == "critical"
    assert "ranks 0, 2 wait for rank 1" in told.title and any("data.py:31" in line for line in told.evidence)


def test_a_rank_that_has_ended_is_named() -> None:
    told = found(*ranks({}, ended=True))
    assert told is not None and told.severity == "critical" and "rank 1, which has ended" in told.title


def test_one_that_ended_where_it_stood_is_named_and_one_that_was_restarted_is_not() -> None:
    stood = ranks({"frame": "data.py:31 in load"})
    stood[1].bye()
    told = found(*stood)
    assert told is not None and "rank 1, which has ended" in told.title
    again = Story("again", rank=1)
    for _ in range(3):
        again.step(forward=0.01, backward=0.02)
    told = found(*ranks({}, ended=True), again)
    assert told is None or "which has ended" not in told.title


def test_processes_that_were_stopped_are_evidence() -> None:
    told = waiting(steps(50), 90, activity=calls.LOADING).tell(Host, tree_cpu=1.0, cores=4, tree_stopped=1)
    finding = found(told)
    assert finding is not None and any(line.startswith("1 process of it is stopped") for line in finding.evidence)


def test_a_process_that_ended_meanwhile_is_evidence_and_one_of_long_before_is_none() -> None:
    told = waiting(steps(50), 80, activity=calls.MESSAGE)
    for _ in range(10):
        told.wait(1.0).pulse(frame=LINE, activity=calls.MESSAGE)
        told.tell(Host, tree_cpu=1.0, cores=4, tree_ended=1, tree_ended_by="SIGKILL")
    finding = found(told)
    assert finding is not None and "waits for a message over a socket" in finding.title
    assert "1 process of it ended 10 s ago, with SIGKILL, and nothing has waited for that" in finding.evidence
    told = steps(50)
    for _ in range(90):
        told.wait(1.0).pulse(frame=LINE, activity=calls.MESSAGE)
        told.tell(Host, tree_cpu=1.0, cores=4, tree_ended=1)
    finding = found(told)
    assert finding is not None and not any("ended" in line for line in finding.evidence)


PRINTED = """step 49
Exception in thread actor:
Traceback (most recent call last):
  File "train.py", line 8, in actor
    raise RuntimeError("environment reset failed")
RuntimeError: environment reset failed"""


@pytest.mark.parametrize(("after", "is_told"), [(0, True), (40, False)])
def test_an_error_that_was_printed_just_before_is_evidence(after: int, is_told: bool) -> None:
    state = folded(waiting(steps(50), 90, activity=calls.LOCK))
    console = (*PRINTED.split("\n"), *[f"step {n}" for n in range(after)])
    about = replace(around(state, alive=True), console=console)
    report = make_report(state, about)
    rows = diagnose(Evidence(state, report, open_work(state, about, report.outcome)))
    line = "before that it printed RuntimeError: environment reset failed, at train.py:8 in actor"
    assert rows[0].code == "stalled" and (line in rows[0].evidence) is is_told


@pytest.mark.parametrize(("ended", "severity"), [(None, "info"), (1, "critical")])
def test_what_the_machine_receives_is_no_message_of_a_process_that_ended(ended: int | None, severity: str) -> None:
    told = steps(50)
    for second in range(90):
        told.wait(1.0).pulse(frame=LINE, activity=calls.MESSAGE)
        told.tell(Host, tree_cpu=1.0, cores=4, net_in=3e6, tree_ended=ended if second else None)
    finding = found(told)
    assert finding is not None and finding.severity == severity


@pytest.mark.parametrize(("activity", "is_told"), [(calls.INPUT, True), (calls.HTTP, True), (calls.SLEEP, False)])
def test_what_waits_after_the_last_step_is_told(activity: str, is_told: bool) -> None:
    done = steps(50).tell(Facts, total_steps=50)
    finding = found(waiting(done, 60, activity=activity))
    assert (finding is not None) is is_told
    assert finding is None or (finding.severity == "info" and LINE in finding.title)


def test_a_rank_that_evaluates_alone_is_information() -> None:
    told = found(*ranks({"moves": True, "spans": [("eval", 100.0)]}))
    assert told is not None and told.severity == "info"


def test_what_to_do_is_about_the_rank_that_the_others_wait_for() -> None:
    told = found(*ranks({"frame": "save.py:3 (fcntl.flock) in save", "activity": calls.LOCK_FILE}))
    assert told is not None and "waits for a lock file at save.py:3" in told.title and "lsof" in told.advice


def test_all_ranks_in_a_collective_wait_for_nobody_else() -> None:
    told = found(*ranks({"frame": "loss.py:7 (all_reduce) in sync", "activity": calls.COLLECTIVE}))
    assert told is None or "wait for rank" not in told.title


def test_a_wait_that_goes_on_is_no_habit() -> None:
    told = steps(50)
    waiting(told, 50, activity=calls.QUEUE)
    codes = {row.code for row in judged_state(folded(told), alive=True)[0]}
    assert not {"worker-wait", "unaccounted-time"} & codes


@pytest.mark.parametrize(
    "healthy", [{"tree_cpu": 90.0}, {"tree_write": 5e6}, {"net_in": 5e6}, {"output": 20.0, "tree_cpu": 1.0}]
)
def test_a_step_that_works_on_is_long_and_information(healthy: dict[str, float]) -> None:
    told = steps(50)
    for second in range(100):
        told.wait(1.0).pulse(frame=LINE if second >= 5 else None)
        told.tell(Host, cores=4, **healthy)
    row = found(told)
    assert row is not None and row.severity == "info"


def test_a_cpu_that_spins_in_a_collective_is_no_work() -> None:
    told = steps(50)
    for second in range(100):
        told.wait(1.0).pulse(frame=LINE if second >= 5 else None, activity=calls.COLLECTIVE, busy=1.0)
        told.tell(Host, cores=4, tree_cpu=101.0)
    row = found(told)
    assert row is not None and row.severity == "critical"


def test_who_waits_for_a_person_is_not_accused() -> None:
    row = found(waiting(steps(50), 300, activity=calls.INPUT))
    assert row is not None and row.severity == "info" and "for input" in row.title


def test_a_program_that_sleeps_for_a_while_does_so_on_purpose() -> None:
    assert [
        row.severity for seconds in (100, 400) if (row := found(waiting(steps(50), seconds, activity=calls.SLEEP)))
    ] == ["info", "critical"]


def test_bytes_of_others_on_the_network_end_no_wait_for_a_lock() -> None:
    told = steps(3)
    for second in range(150):
        told.wait(1.0).pulse(frame=LINE if second >= 5 else None, activity=calls.LOCK)
        told.tell(Host, cores=4, tree_cpu=1.0, net_in=5e8)
    assert found(told) is not None


def test_a_loop_that_looks_for_something_stands_at_its_line() -> None:
    told = steps(3)
    for second in range(100):
        here = LINE if second % 7 else "train.py:87 (path.exists) in wait_for"
        told.wait(1.0).pulse(frame=here if second >= 5 else None, activity=calls.SLEEP)
        told.tell(Host, cores=4, tree_cpu=1.0)
    row = found(told)
    assert row is not None and LINE in row.title


def test_the_other_threads_are_evidence() -> None:
    told = steps(50)
    for second in range(100):
        threads = [("flush", "log.py:7 in flush", calls.LOCK)] if second == 20 else None
        told.wait(1.0).pulse(frame=LINE if second >= 5 else None, activity=calls.LOCK, threads=threads)
        told.tell(Host, cores=4, tree_cpu=0.0)
    row = found(told)
    assert row is not None and any("log.py:7" in line for line in row.evidence)
    assert any("each for the other's" in line for line in row.evidence)


def in_two_collectives(step: int | None) -> Finding | None:
    first, second = Story("p0", rank=0), Story("p1", rank=1)
    for told in (first, second):
        for _ in range(3):
            told.step(forward=0.01, backward=0.02)
    waiting(first, 100, frame="train.py:40 (all_reduce)", activity=calls.COLLECTIVE, step=4, step_open=99.0)
    waiting(second, 100, frame="train.py:50 (barrier)", activity=calls.COLLECTIVE, step=step)
    return found(first, second)


def test_ranks_in_different_collectives_are_told_apart_by_how_far_they_have_come() -> None:
    row = in_two_collectives(None)
    assert row is not None and row.severity == "critical" and "train.py:50" in row.title
    assert "rank 0 waits for rank 1" in row.title


def test_a_stall_has_a_name_of_its_own_in_the_account_also_after_it_was_given_up() -> None:
    for kind in ("running", "interrupted"):
        told = steps(50)
        waiting(told, 100, activity=calls.QUEUE)
        if kind == "interrupted":
            told.bye("KeyboardInterrupt")
        state = folded(told)
        wall = make_report(state, around(state, alive=kind == "running")).wall
        assert wall.spans["stalled"] > 80.0 and wall.teardown < 20.0
        assert sum(parts_of(wall)) == pytest.approx(wall.total)
        assert judged_state(state, alive=kind == "running")[0][0].code == "stalled"


def test_a_process_that_does_not_end_after_its_bye_is_told() -> None:
    told = steps(50).bye()
    for _ in range(100):
        told.wait(1.0).tell(Host, cores=4, tree_cpu=0.0, trainers_rss=10**8)
    row = found(told)
    assert row is not None and row.severity == "info"
    told.wait(1.0).tell(Host, cores=4, tree_cpu=0.0, trainers_rss=None)  # it has ended, and its script goes on
    assert found(told) is None


def test_the_thread_that_keeps_a_program_from_ending_is_named_also_after_it_was_given_up() -> None:
    for alive in (True, False):
        told = steps(50)
        for second in range(100):
            threads = [("uploader", "push.py:9 in upload", calls.LOCK)] if second == 20 else None
            told.wait(1.0).pulse(frame="threading.py:1590 in _shutdown" if second >= 5 else None, activity=calls.EXIT,
                                 threads=threads)  # fmt: skip
            told.tell(Host, cores=4, tree_cpu=0.0)
        if not alive:
            told.bye()
        rows = judged_state(folded(told), alive=alive)[0]
        assert rows[0].code == "stalled" and "uploader" in rows[0].title and "push.py:9" in rows[0].title


@pytest.mark.parametrize(
    ("cpu", "waits", "severity"), [(6.0, 0.9, "info"), (1.5, 0.9, "critical"), (6.0, 0.0, "critical")]
)
def test_on_a_crowded_machine_who_waits_for_a_core_computes(cpu: float, waits: float, severity: str) -> None:
    told = steps(50)
    for second in range(100):
        told.wait(1.0).pulse(frame=LINE if second >= 5 else None)
        told.tell(Host, cores=4, tree_cpu=cpu, tree_waiting=waits)
    row = found(told)
    assert row is not None and row.severity == severity


def test_the_hooks_of_many_idle_ranks_are_no_work() -> None:
    told = [Story(f"p{rank}", rank=rank) for rank in range(16)]
    for each in told:
        for _ in range(20):
            each.step(forward=0.01, backward=0.02)
        for second in range(100):
            each.wait(1.0).pulse(frame=LINE if second >= 5 else None, activity=calls.QUEUE)
            if each is told[0]:
                each.tell(Host, cores=64, tree_cpu=20.0)
    row = found(*told)
    assert row is not None and row.severity == "critical"


def test_a_call_that_computes_and_keeps_the_interpreter_is_information() -> None:
    for cpu, severity in ((100.0, "info"), (0.0, "critical")):
        told, box = steps(50).pulse(), Story("box", source="recorder")
        box.now = told.now
        for _ in range(100):
            box.wait(1.0).tell(Host, cores=4, tree_cpu=cpu)
        state = folded(told, box)
        rows = judged_state(state, alive=True, now=box.now)[0]
        row = next(each for each in rows if each.code == "stalled")
        assert row.severity == severity and "heartbeat" in row.title
        assert "unaccounted-time" not in {each.code for each in rows}


def test_the_time_left_is_in_doubt_long_before_a_stall_is_told() -> None:
    assert not may_stall(folded(waiting(steps(50), 10)))
    assert may_stall(folded(waiting(steps(50), 30)))
    assert not may_stall(folded(waiting(steps(50), 30, cpu=90.0)))


def test_samples_of_nothing_but_a_stall_say_nothing_else() -> None:
    told = steps(50)
    told.wait(1.0).tell(Frames, rows=[("between steps", LINE, 20)], begin=told.now - 1.0)
    waiting(told, 100, activity=calls.INPUT)
    told.bye("KeyboardInterrupt")
    assert [row.code for row in judged_state(folded(told), alive=False)[0]][:1] == ["stalled"]


def test_what_stands_still_is_the_verdict_before_it_is_a_stall() -> None:
    findings, verdict = judged_state(folded(waiting(steps(50), 30, activity=calls.LOCK)), alive=True)
    assert [row.code for row in findings if row.code == "stalled"] == []
    assert verdict.title == f"No step for 30 s: it waits for a lock at {LINE}" and "trainmon stack" in verdict.advice
    _, verdict = judged_state(folded(waiting(steps(50), 30, cpu=90.0)), alive=True)
    assert not verdict.title.startswith("No step"), "it computes"


@pytest.mark.parametrize(
    ("activity", "line", "severity"),
    [(calls.LOCK, LINE, "critical"), ("", LINE, "critical"), (calls.LOCK, "", "info")],
)
def test_a_long_step_is_told_by_the_line_that_took_it(activity: str, line: str, severity: str) -> None:
    """A lock that comes free after 40 s: it is a fact, once, and makes no other step slower."""
    told = steps(50)
    rows = [("between steps", line or f"train.py:{number}", 40 if line else 4) for number in range(1 if line else 10)]
    told.step(other=40.0, forward=0.01, backward=0.02)
    told.tell(Frames, rows=rows, activities=[activity] * len(rows), begin=told.now - 40.0)
    for _ in range(10):
        told.step(forward=0.01, backward=0.02)
    finding = next(row for row in judged_state(folded(told.bye()), alive=False)[0] if row.code == "slow-steps")
    assert finding.severity == severity
    assert (LINE in finding.title) is bool(line) and ("waits for a lock" in finding.title) is (
        bool(line) and bool(activity)
    )
