"""A run, followed: views of whatever lies in its directory, however little or broken."""

from __future__ import annotations

import contextlib
import shutil
import threading
from pathlib import Path

import pytest

from monitor.model.view import View
from monitor.runs import catalogue, follow, state_cache
from monitor.runs.follow import Follower, Run, load
from monitor.sources.run_directory import RunDirectory
from trainhooks.protocol import rundir
from trainhooks.protocol.events import Bye, Event, Facts, Pulse

from .conftest import Story, line_of, parts_of, wait_for


def life(steps: int = 10) -> Story:
    told = Story(name="told")
    for i in range(steps):
        told.step_with({"metrics": {"loss": 1 / (i + 1)}, "tokens": 100}, data=0.5, forward=1)
    return told


def test_an_empty_directory(tmp_path: Path) -> None:
    view = load(tmp_path)
    assert view.report.outcome.state == "lost"
    assert view.report.wall.total is None and view.report.progress.steps_done == 0
    assert view.open.silent_for is None


def test_no_directory_at_all(tmp_path: Path) -> None:
    assert load(tmp_path / "none").report.progress.steps_done == 0


def test_a_whole_run(tmp_path: Path) -> None:
    life().bye().write(tmp_path)
    view = load(tmp_path)
    known = view.report
    assert (known.run.name, known.progress.steps_done, known.outcome.state) == ("told", 10, "finished")
    assert sum(parts_of(known.wall)) == pytest.approx(known.wall.total)
    assert known.dropped.lines == 0 and view.loading is None
    assert view.metrics["loss"].mean[0] == 1


def test_a_torn_last_line(tmp_path: Path) -> None:
    path = life().write(tmp_path)
    path.write_bytes(path.read_bytes()[:-20])
    assert load(tmp_path).report.progress.steps_done == 9


def test_a_journal_without_its_first_lines(tmp_path: Path) -> None:
    path = life().write(tmp_path)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[5:]))
    known = load(tmp_path).report
    assert known.progress.steps_done == 6 and known.dropped.lines == 5


def test_files_that_are_no_journals(tmp_path: Path) -> None:
    life().bye().write(tmp_path)
    (tmp_path / "rank-1-dir.jsonl").mkdir()
    (tmp_path / "rank-2-link.jsonl").symlink_to(tmp_path / "nowhere")
    (tmp_path / "rank-3-noise.jsonl").write_bytes(bytes(range(256)) * 100)
    for name in (rundir.IDENTITY, rundir.EXIT, rundir.CONSOLE):
        (tmp_path / name).write_bytes(b'["\xff')
    assert load(tmp_path).report.progress.steps_done == 10


@pytest.mark.parametrize(
    ("told", "state"),
    [
        ({"exit_code": 0}, "finished"), ({"exit_code": 2}, "failed"), ({"signal": 9}, "killed"), ({}, "lost"),
        ({"exit_code": "x", "signal": []}, "lost"),
    ],
)  # fmt: skip
def test_how_it_ended_without_a_recorder(tmp_path: Path, told: dict[str, object], state: str) -> None:
    life().write(tmp_path)
    rundir.write_json(tmp_path / rundir.EXIT, told)
    assert load(tmp_path).report.outcome.state == state


def test_a_run_of_another_boot_stands_at_its_last_word(tmp_path: Path) -> None:
    told = life()
    told.write(tmp_path)
    rundir.write_json(tmp_path / rundir.IDENTITY, {"boot_id": "another", "pid": 1, "started_monotonic": 99.0})
    known = load(tmp_path).report
    assert known.outcome.state == "lost"
    assert known.wall.total == pytest.approx(told.now - 99)


def test_odd_identities_raise_nothing(tmp_path: Path) -> None:
    life().bye().write(tmp_path)
    odd = {"name": 5, "pid": "x", "boot_id": [], "started_monotonic": "y", "price": "z", "tags": [1], "command": 7}
    rundir.write_json(tmp_path / rundir.IDENTITY, odd)
    assert load(tmp_path).report.progress.steps_done == 10


class Watched:
    """A follower and the views it gave."""

    def __init__(self, path: Path) -> None:
        self.views: list[View] = []
        self.follower = Follower(path, frame=0.02)

    def __enter__(self) -> Watched:
        self.follower.start(self.views.append)
        return self

    def __exit__(self, *_: object) -> None:
        self.follower.stop()
        given = len(self.views)
        assert "follower" not in {thread.name for thread in threading.enumerate()}
        assert len(self.views) == given

    def wait_for_steps(self, steps: int) -> None:
        wait_for(lambda: self.views and self.views[-1].report.progress.steps_done == steps)


def test_a_follower_sees_a_run_grow(tmp_path: Path) -> None:
    told = life(3)
    path = told.write(tmp_path)
    with Watched(tmp_path) as watched:
        watched.wait_for_steps(3)
        first = watched.views[-1]
        with open(path, "ab") as out:
            for event in told.step(forward=1).step(forward=1).events[-2:]:
                out.write(line_of(event))
        watched.wait_for_steps(5)
        assert first.report.progress.steps_done == 3, "a view is frozen"


def test_a_run_that_ended_long_ago_is_left_in_peace_until_something_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = life(3).bye()
    path = told.write(tmp_path)
    run = Run(tmp_path)
    while run.advance():
        pass
    run.view()
    assert not run.rests(), "its exit may still be written down"
    monkeypatch.setattr(follow, "RESTING_FRAME", -1.0)
    assert run.rests()
    run.close()
    monkeypatch.setattr(follow, "RESTING_FRAME", 0.2)
    with Watched(tmp_path) as watched:
        watched.wait_for_steps(3)
        with open(path, "ab") as out:
            for event in told.step(forward=1).events[-1:]:
                out.write(line_of(event))
        watched.wait_for_steps(4)


def appended(path: Path, *events: Event) -> None:
    with open(path, "ab") as out:
        out.write(b"".join(map(line_of, events)))


def test_a_step_is_news_and_a_pulse_only_where_another_phase_is_open(tmp_path: Path) -> None:
    told = life(3)
    path = told.write(tmp_path)
    run = Run(tmp_path)

    def news_after(*events: Event) -> bool:
        appended(path, *events)
        run.advance()
        news = run.has_news
        run.view()
        assert not run.has_news, "a view has it"
        return news

    assert news_after()
    assert not news_after()
    assert news_after(told.step(forward=1).events[-1])
    assert news_after(told.tell(Pulse, phase="forward", phase_open=1.0).events[-1])
    assert not news_after(told.tell(Pulse, phase="forward", phase_open=2.0).events[-1])
    assert news_after(told.tell(Pulse, phase="backward", phase_open=0.1).events[-1])
    run.close()


def test_a_follower_wakes_for_news_and_otherwise_by_the_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no socket the growth of the journal wakes it: the tick is set far off here."""
    monkeypatch.setattr(follow, "MAX_VIEW_SECONDS", 1e6)
    told = life(3)
    path = told.write(tmp_path)
    with Watched(tmp_path) as watched:
        watched.wait_for_steps(3)
        given = len(watched.views)
        appended(path, told.step(forward=1).events[-1])
        watched.wait_for_steps(4)
        assert len(watched.views) == given + 1, "one view for one step, none for nothing"


def test_waiting_ends_with_the_growth_of_a_journal_and_an_unfinished_line_is_no_news_twice(tmp_path: Path) -> None:
    told = life(3)
    path = told.write(tmp_path)
    source = RunDirectory(tmp_path)
    while source.poll():
        pass
    assert not source.wait(0.0)
    line = line_of(told.step(forward=1).events[-1])
    path.write_bytes(path.read_bytes() + line[:10])
    assert source.wait(60.0)
    assert not source.poll() and not source.wait(0.0)
    path.write_bytes(path.read_bytes() + line[10:])
    assert source.wait(60.0) and len(source.poll()) == 1
    source.close()


def test_the_next_view_comes_with_the_next_whole_second_of_the_run(tmp_path: Path) -> None:
    told = life(3)
    told.write(tmp_path)
    known = load(tmp_path).report
    known.outcome.state, known.progress.elapsed_seconds = "running", 12.75
    assert follow._until_next_second(known) == pytest.approx(0.25)
    known.progress.elapsed_seconds = 12.0
    assert follow._until_next_second(known) == follow.MAX_VIEW_SECONDS
    known.progress.elapsed_seconds = None
    assert follow._until_next_second(known) == follow.MAX_VIEW_SECONDS
    known.outcome.state, known.progress.elapsed_seconds = "finished", 12.999
    assert follow._until_next_second(known) == follow.MAX_VIEW_SECONDS, "it stands still"


def test_a_view_that_calls_a_run_over_has_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = life(3)
    path = told.write(tmp_path)
    monkeypatch.setattr(follow, "LIVENESS_SECONDS", 0.0)
    monkeypatch.setattr(catalogue, "lives", lambda _: True)
    run = Run(tmp_path)
    while run.advance():
        pass
    assert run.view().report.outcome.state == "running"
    # It ends between the last reading and the look at whether it lives, and a rank that was short-lived with it.
    path.write_bytes(b"".join(map(line_of, told.step(forward=1).step(forward=1).bye().events)))
    Story("q", rank=1).step(forward=1).bye().write(tmp_path, rank=1)
    monkeypatch.setattr(catalogue, "lives", lambda _: False)
    known = run.view().report
    run.close()
    assert (known.outcome.state, known.progress.steps_done, known.run.ranks) == ("finished", 5, 2)


def test_a_follower_outlives_its_directory(tmp_path: Path) -> None:
    run = tmp_path / "run"
    life(3).write(run)
    with Watched(run) as watched:
        watched.wait_for_steps(3)
        shutil.rmtree(run)
        given = len(watched.views)
        wait_for(lambda: len(watched.views) > given + 2)
        assert watched.views[-1].report.progress.steps_done == 3


def test_a_follower_waits_for_a_run_that_is_not_there_yet(tmp_path: Path) -> None:
    with Watched(tmp_path / "run") as watched:
        wait_for(lambda: watched.views)
        life(4).write(tmp_path / "run")
        watched.wait_for_steps(4)


def test_a_keepsake_gives_the_same_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_cache, "MIN_JOURNAL_BYTES", 1)
    told = life(700)
    told.tell(Facts, facts={"huge": 2**53, "nested": {"a": [1.5, None]}})
    path = told.write(tmp_path)
    load(tmp_path)
    assert (tmp_path / state_cache.STATE_CACHE).exists()
    with open(path, "ab") as out:
        for event in told.step(forward=9).bye().events[-2:]:
            out.write(line_of(event))
    assert isinstance(told.events[-1], Bye)
    with contextlib.closing(Run(tmp_path)) as again:
        assert again.state.main.steps_ok == 700, "it goes on from the keepsake"
    kept = load(tmp_path)
    (tmp_path / state_cache.STATE_CACHE).unlink()
    assert load(tmp_path) == kept


def test_a_finding_that_came_while_one_reader_watched_is_an_alert_for_the_next(tmp_path: Path) -> None:
    """As after `d` and `trainmon attach`."""
    told = Story(name="told")
    path = told.write(tmp_path)
    with contextlib.closing(Run(tmp_path)) as watched:
        watched.advance()
        watched.view()
        before = len(told.events)
        for _ in range(40):
            told.step(data=3, forward=1)
        with open(path, "ab") as out:
            out.writelines(line_of(event) for event in told.events[before:])
        watched.advance()
        seen = [(alert.code, alert.text) for alert in watched.view().report.alerts]
    assert "input-bound" in dict(seen)
    with contextlib.closing(Run(tmp_path)) as again:
        again.advance()
        assert [(alert.code, alert.text) for alert in again.view().report.alerts] == seen


@pytest.mark.parametrize("content", [b"", b"\x00" * 100, b"\x93\x01\x02\x03"])
def test_a_keepsake_that_is_broken_is_passed_over(tmp_path: Path, content: bytes) -> None:
    life().bye().write(tmp_path)
    (tmp_path / state_cache.STATE_CACHE).write_bytes(content)
    assert load(tmp_path).report.progress.steps_done == 10


def ranks(run: Path, number: int = 4) -> None:
    """Synchronous ranks: the last one takes longer for its data, the others wait in backward."""
    for rank in range(number):
        story, data = Story(f"r{rank}", rank=rank, world_size=number), 0.5 if rank == number - 1 else 0.1
        for _ in range(60):
            story.step_with({"tokens": 100 + rank}, data=data, forward=1.0, backward=1.5 - data)
        story.bye().write(run, rank=rank)


def test_one_rank_is_shown_among_all(tmp_path: Path) -> None:
    ranks(tmp_path)
    lowest, chosen = load(tmp_path), load(tmp_path, rank=3)
    assert (lowest.report.run.rank, chosen.report.run.rank) == (None, 3)
    shares = [{row.name: row.mean for row in view.report.phases} for view in (lowest, chosen)]
    assert shares[0]["data"] == pytest.approx(0.1) and shares[1]["data"] == pytest.approx(0.5)
    assert {step.tokens for step in chosen.details.steps} == {103}
    assert chosen.report.throughput.rank == 3
    assert chosen.report.ranks == lowest.report.ranks and chosen.report.straggler == lowest.report.straggler
    codes = [[finding.code for finding in view.report.findings] for view in (lowest, chosen)]
    assert (codes[0][0], codes[1][0]) == ("straggler", "input-bound"), "findings are of that rank"


def test_a_follower_goes_to_a_rank_and_back(tmp_path: Path) -> None:
    run = tmp_path / "run"
    ranks(run)
    views: list[View] = []
    follower = Follower(run, rank=2)
    follower.start(views.append)
    try:
        for rank, tokens in ((2, 102), (None, 100), (3, 103), (None, 100)):
            follower.show_rank(rank)
            wait_for(lambda rank=rank: views and views[-1].report.run.rank == rank and views[-1].details.steps)
            assert views[-1].details.steps[-1].tokens == tokens
    finally:
        follower.stop()
