"""A recording played: what is shown at a moment is what could be known then, whichever way one came to it."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from demo.record import recorded
from monitor.arrays import np
from monitor.errors import UserError
from monitor.model.view import View
from monitor.runs import replay
from monitor.runs.follow import load
from monitor.runs.replay import Playback, Player, open_player
from monitor.sources.recording import Recording
from tests.model.conftest import Story
from trainhooks.protocol.encoding import encoder, to_dict
from trainhooks.protocol.events import Event, Gpu, Note

encode = encoder()
RECORDINGS = sorted((Path(__file__).resolve().parents[2] / "demo" / "recordings").glob("*.jsonl"))
PATH = re.compile(r"(?<![\w.:/<)])/\w[\w.\-]*")  # absolute, on any machine


def write(path: Path, events: list[Event]) -> Path:
    path.write_bytes(b"".join(encode(to_dict(event)) + b"\n" for event in events))
    return path


def training(steps: int = 60) -> Story:
    story = Story(name="pulsar")
    for index in range(steps):
        story.step_with({"metrics": {"loss": 2.0 / (index + 1)}, "tokens": 100}, data=0.25, forward=0.5, other=0.25)
    return story


@pytest.fixture
def player(tmp_path: Path) -> Player:
    return open_player(str(write(tmp_path / "pulsar.jsonl", training().events)))


def go(player: Player, moment: float) -> View:
    assert player.play_to(moment, 60)
    return player.view()


def shown(view: View) -> object:
    """All of a view. A sum's last digit depends on when one looked, as the order of summing does."""

    def rounded(value: object) -> object:
        if isinstance(value, float):
            return f"{value:.12g}"
        if isinstance(value, dict):
            return {key: rounded(each) for key, each in value.items()}
        value = value.tolist() if isinstance(value, np.ndarray) else value
        return [rounded(each) for each in value] if isinstance(value, (list, tuple)) else value

    return rounded(asdict(replace(view, label=None)))


def test_at_each_moment_it_shows_what_was_known_then(player: Player) -> None:
    for second in (0, 1, 10, 30):
        view = go(player, 100.0 + second)
        assert view.report.progress.steps_done == second
        assert view.report.outcome.state == "running"
        assert len(view.step_seconds.x) == second
    assert go(player, 1e9).report.progress.steps_done == 60


def test_going_back_ends_where_going_forward_does(player: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "KEEP_EVERY", 7)  # with states kept on the way
    kept = Player(player._recording, player._known)
    forward = [shown(go(player, 100.0 + second)) for second in range(0, 60, 7)]
    for second in range(61):
        go(kept, 100.0 + second)
    assert len(kept._kept) > 3
    back = [shown(go(kept, 100.0 + second)) for second in reversed(range(0, 60, 7))]
    assert back[::-1] == forward


def test_few_states_are_kept_of_a_long_recording(player: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "KEEP_EVERY", 1)
    monkeypatch.setattr(replay, "MAX_KEPT", 4)
    long = Player(player._recording, {})
    for second in range(60):
        go(long, 100.0 + second)
    assert len(long._kept) <= 4


def test_steps_forward_and_back(player: Player) -> None:
    go(player, 110.0)
    for steps, done in ((1, 11), (5, 16), (-1, 15), (-3, 12), (-100, 0), (1, 1), (1000, 60)):
        assert go(player, player.step_target(steps)).report.progress.steps_done == done


def test_other_producers_come_in_at_their_time(tmp_path: Path) -> None:
    story = training(10)
    noted = [Note("node", 1, 104.5, "half way"), Note("node", 2, 102.5, "late in the file, early in time")]
    player = open_player(str(write(tmp_path / "two.jsonl", [*noted, *story.events])))
    assert go(player, 104.0).notes == []
    assert go(player, 106.0).notes == ["half way", "late in the file, early in time"]  # a producer's own order stays


def test_a_clock_of_another_machine_is_set_right(tmp_path: Path) -> None:
    one, two = Story("a", 0, host="one"), Story("b", 1, host="two")
    two.now = 5000.0  # its clock began earlier; both say the time of day, 1e9, at their hello
    two.events[0].t = 5000.0
    for story in (one, two):
        for _ in range(10):
            story.step(forward=1.0)
    player = open_player(str(write(tmp_path / "hosts.jsonl", [*one.events, *two.events])))
    assert player.length == 10.0
    assert [row.steps for row in go(player, 104.0).report.ranks] == [4, 4]


def test_what_is_broken_is_counted_and_passed_over(tmp_path: Path) -> None:
    lines = [encode(to_dict(event)) for event in training(10).events]
    lines[3:3] = [b"{", b"\xff\xfe", lines[2], b"[" * 5000]
    path = tmp_path / "torn.jsonl"
    path.write_bytes(b"\n".join(lines[:-1]) + b'\n{"kind":"step"')
    view = go(open_player(str(path)), 1e9)
    assert view.report.progress.steps_done == 9
    assert view.report.dropped.lines == 4


@pytest.mark.parametrize("text", ["", "not json\n", '{"a": 1}\n'])
def test_a_file_that_is_no_journal_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "log.txt"
    path.write_text(text)
    with pytest.raises(UserError, match="holds no events"):
        open_player(str(path))


def test_every_view_says_replay_and_simulated(tmp_path: Path) -> None:
    events = training(5).events
    gpu = Gpu("node", 0, 104.9, uuid="GPU-1", simulated=True)
    feed = Playback(open_player(str(write(tmp_path / "gpu.jsonl", [*events, gpu]))), 0)
    assert feed.view().label == "REPLAY · SIMULATED GPU · paused at 0:00"  # before its first reading, too


class Screen:
    """Takes the views of a playback, and waits for the one that shows what a test wants."""

    def __init__(self, feed: Playback) -> None:
        import threading

        self.feed, self.views = feed, []
        self._new = threading.Condition()
        feed.start(self.take)

    def take(self, view: View) -> None:
        with self._new:
            self.views.append(view)
            self._new.notify()

    def wait_for(self, steps: int, label: str) -> None:
        def there() -> bool:
            newest = self.views[-1] if self.views else None
            return newest is not None and newest.report.progress.steps_done == steps and label in newest.label

        with self._new:
            assert self._new.wait_for(there, 30), self.views[-1].label


def test_a_person_at_the_keys(player: Player) -> None:
    feed = Playback(player, 0)
    screen = Screen(feed)
    screen.wait_for(0, "paused")
    feed.step(3)
    screen.wait_for(3, "paused")
    feed.step(-1)
    screen.wait_for(2, "paused")
    feed.seek(0.5)
    screen.wait_for(32, "paused")
    feed.faster(1024)
    feed.pause()
    screen.wait_for(60, "ended")
    feed.pause()  # at the end: begin anew
    screen.wait_for(60, "ended")
    assert min(view.report.progress.steps_done for view in screen.views[-3:]) < 60
    feed.stop()


def test_it_begins_shortly_before_the_first_step(tmp_path: Path) -> None:
    story = Story(name="pulsar").span("import torch", 21.0)
    for _ in range(5):
        story.step(forward=0.5)
    playback = Playback(open_player(str(write(tmp_path / "pulsar.jsonl", story.events))))
    first = next(playback.views(0.0))
    assert first.report.progress.steps_done == 0 and first.label is not None and "0:20/0:23" in first.label


def test_speed_and_its_limits(player: Player) -> None:
    feed = Playback(player, 2)
    for _ in range(30):
        feed._change_speed(2)
    assert feed.view().label.startswith("REPLAY · 1024x 0:00/1:00")
    for _ in range(30):
        feed._change_speed(0.5)
    assert feed.view().label.startswith("REPLAY · 0.0625x")


def test_a_run_ends_as_its_report_does(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text(json.dumps({"id": "run", "name": "pulsar"}))
    story = training(20)
    write(run / "rank-0-p.jsonl", story.events)
    at_end = go(open_player(str(run)), 1e9).report
    assert asdict(at_end) == asdict(load(run, measured=False).report)
    assert at_end.outcome.state == "lost"


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_the_shipped_recordings_play(path: Path) -> None:
    player = open_player(str(path))
    view = go(player, 1e12)
    assert view.report.outcome.state == "finished"
    assert view.report.progress.steps_done == view.report.progress.steps_total
    assert view.report.dropped.lines == 0
    assert player.simulated == ("SIMULATED" in path.name)
    assert player.simulated or "cpu" in path.name


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_the_shipped_recordings_are_small_and_name_no_machine(path: Path) -> None:
    assert path.stat().st_size < 2 * 2**20
    text = path.read_text()
    assert not [word for word in ('"host":"', '"pid":', '"cwd":') if word in text]
    assert not PATH.findall(text)


def test_there_are_recordings() -> None:
    assert len(RECORDINGS) >= 3


def test_a_recording_made_of_a_run_leaves_out_what_names_a_machine(tmp_path: Path) -> None:
    story = Story(host="ml-box-7", pid=4711, facts={"cwd": "/home/jo", "command": ["/usr/bin/python", "train.py"]})
    story.step(forward=1.0)
    write(tmp_path / "rank-0-p.jsonl", story.events)
    hello, step = recorded(tmp_path)
    assert "ml-box-7" not in json.dumps(hello) and "/home" not in json.dumps(hello) and "pid" not in hello
    assert hello["facts"]["command"] == ["python", "train.py"]
    assert step["kind"] == "step"


def test_an_index_of_no_files_is_empty() -> None:
    assert len(Recording([])) == 0


def test_one_rank_of_a_recording_is_played(tmp_path: Path) -> None:
    events: list[Event] = []
    for rank in range(3):
        story = Story(f"r{rank}", rank=rank)
        for _ in range(20):
            story.step_with({"tokens": 100 + rank}, forward=1.0)
        events += story.events
    path = write(tmp_path / "job.jsonl", events)
    player = open_player(str(path), rank=2)
    assert {step.tokens for step in go(player, 115.0).details.steps} == {102}
    player.show_rank(1)
    assert {step.tokens for step in go(player, 115.0).details.steps} == {101}, "at the same moment"
    player.show_rank(None)
    assert {step.tokens for step in go(player, 110.0).details.steps} == {100}
    with pytest.raises(UserError, match="no rank 3: its ranks are 0 to 2"):
        open_player(str(path), rank=3)
