"""Alerts that reach people: the log of what came and went, the command that is told, the bell and the notification."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from monitor import alerts
from monitor.alerts import MAX_COMMAND_SECONDS, MAX_WAITING, MIN_REPEAT_SECONDS, MIN_START_SECONDS, AlertRunner
from monitor.diagnosis.finding_log import CLEARED_AFTER, FindingLog
from monitor.model.report import Finding, Outcome
from monitor.model.view import FindingChange, View
from monitor.runs.finding_history import keep_changes, kept_changes
from monitor.tui.feed import NewAlerts, notification

from ..launch.conftest import wait_for
from ..tui.sample_views import running as sample
from .conftest import Runs


def found(code: str = "input-bound", severity: str = "warning") -> Finding:
    return Finding(code=code, severity=severity, title=f"{code} {severity}")


def kinds(turns: list[FindingChange]) -> list[tuple[str, str]]:
    return [(turn.kind, turn.finding.code) for turn in turns]


def test_findings_come_grow_worse_and_go() -> None:
    log = FindingLog()
    assert log.update([], 0.0) == []
    assert kinds(log.update([found()], 1.0)) == [("appeared", "input-bound")]
    assert log.update([found()], 2.0) == []
    assert kinds(log.update([found(severity="critical")], 3.0)) == [("worse", "input-bound")]
    assert log.update([], 4.0) == [], "it may come back"
    assert kinds(log.update([found()], 5.0)) == []
    assert kinds(log.update([], 5.0 + CLEARED_AFTER)) == [("cleared", "input-bound")]
    assert kinds(log.turns) == [("appeared", "input-bound"), ("worse", "input-bound"), ("cleared", "input-bound")]


def test_what_was_there_before_is_no_news_in_the_log() -> None:
    log = FindingLog()
    assert kinds(log.update([found(), found("idle", "info")], 0.0)) == [("present", "input-bound")]
    assert log.turns == []


def test_what_is_only_worth_knowing_alerts_nobody() -> None:
    log = FindingLog()
    log.update([], 0.0)
    assert log.update([found(severity="info")], 1.0) == []


# The command


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def view(*turns: FindingChange, state: str = "running") -> View:
    shown = sample()
    return replace(shown, finding_changes=turns, report=replace(shown.report, outcome=Outcome(state)))


def appeared(code: str = "input-bound", kind: str = "appeared") -> FindingChange:
    return FindingChange(0.0, kind, found(code))


class Told:
    """A bell with a clock of its own, and a command that writes down what it is told."""

    def __init__(self, run: Path, program: str = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read())") -> None:
        run.mkdir(exist_ok=True)
        self.file, self.clock = run / "told", Clock()
        self.bell = AlertRunner([sys.executable, "-c", program, str(self.file)], run, self.clock)

    def step(self, seconds: float = 0.0) -> None:
        """Time passes; whatever is started comes to its end."""
        self.clock.now += seconds
        self.bell.poll()
        child = self.bell._child
        if child is not None:
            child.wait(20)

    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.read_text().splitlines()] if self.file.exists() else []


def test_the_command_is_told_by_json(tmp_path: Path) -> None:
    told = Told(tmp_path / "run")
    told.bell.add_view(view(appeared()))
    told.step()
    (message,) = told.messages()
    assert message["event"] == "appeared" and message["finding"]["code"] == "input-bound"
    assert message["run"]["id"] and message["missed"] == 0 and message["outcome"]["state"] == "running"


def test_alerts_keep_their_distance_and_are_not_repeated(tmp_path: Path) -> None:
    told = Told(tmp_path / "run")
    told.bell.add_view(view(appeared("a"), appeared("b")))
    told.step()
    told.step(MIN_START_SECONDS / 2)
    assert len(told.messages()) == 1
    told.bell.add_view(view(appeared("a"), appeared("a")))
    told.step(MIN_START_SECONDS)
    told.step(MIN_START_SECONDS)
    assert [each["finding"]["code"] for each in told.messages()] == ["a", "b"]
    told.clock.now += MIN_REPEAT_SECONDS
    told.bell.add_view(view(appeared("a")))
    told.step()
    assert len(told.messages()) == 3


def test_too_many_are_counted_and_the_end_is_told(tmp_path: Path) -> None:
    told = Told(tmp_path / "run")
    told.bell.add_view(view(*(appeared(f"code-{number}") for number in range(MAX_WAITING + 5))))
    told.step()
    assert told.messages()[0]["missed"] == 5
    told.bell._waiting.clear()
    told.bell.add_view(view(state="killed"))
    told.bell.finish()
    assert told.messages()[-1]["event"] == "ended" and told.messages()[-1]["outcome"]["state"] == "killed"


def test_a_command_that_hangs_is_killed(tmp_path: Path) -> None:
    told = Told(tmp_path / "run", "import time; time.sleep(600)")
    told.bell.add_view(view(appeared()))
    told.bell.poll()
    child = told.bell._child
    assert child is not None and child.poll() is None
    told.clock.now += MAX_COMMAND_SECONDS - 1
    told.bell.poll()
    assert child.poll() is None, "it has its time"
    told.clock.now += 2
    told.bell.poll()
    assert child.wait(20) < 0 and told.bell._child is None


def test_a_command_that_is_gone_by_now_does_no_harm(tmp_path: Path) -> None:
    bell = AlertRunner([str(tmp_path / "gone")], tmp_path, Clock())
    bell.add_view(view(appeared()))
    bell.poll()
    assert bell._child is None


def test_what_the_command_prints_is_kept(tmp_path: Path) -> None:
    told = Told(tmp_path / "run", "print('posted')")
    told.bell.add_view(view(appeared()))
    told.step()
    log = tmp_path / "run" / alerts.LOG_NAME
    assert log.read_text() == "posted\n" and log.stat().st_mode & 0o077 == 0


@pytest.mark.long
def test_a_run_tells_its_alerts_and_its_end(runs: Runs, tmp_path: Path) -> None:
    """With --no-tui, from a process of its own; the words are the user's, and no shell reads them."""
    told, script = tmp_path / "told", tmp_path / "tell.py"
    script.write_text("import sys\nopen(sys.argv[1], 'a').write(sys.stdin.read())\nassert sys.argv[2] == '$HOME;x'\n")
    command = f"{sys.executable} {script} {told} '$HOME;x'"
    runs.train("slow", "workers", "--workers", "0", options=("--on-alert", command))
    wait_for(lambda: told.exists() and '"ended"' in told.read_text(), 60)
    messages = [json.loads(line) for line in told.read_text().splitlines()]
    assert any((each["finding"] or {}).get("code") == "input-bound" for each in messages)
    assert messages[-1]["outcome"] == {
        "state": "finished",
        "exit_code": 0,
        "signal": None,
        "error": None,
        "place": None,
        "left": None,
    }
    log = runs.only / alerts.LOG_NAME
    assert not log.exists() or log.read_text() == ""


@pytest.mark.parametrize(
    ("command", "said"), [("no-such-program-here x", "no program"), ("'", "quotation"), ("", "no program")]
)
def test_a_command_that_cannot_be_run_is_refused_before_the_training_starts(
    runs: Runs, tmp_path: Path, command: str, said: str
) -> None:
    mark = tmp_path / "ran"
    done = runs.run(sys.executable, "-c", f"open({str(mark)!r}, 'w')", options=("--on-alert", command))
    assert done.returncode == 2 and said in done.stderr.decode() and done.stderr.count(b"\n") == 1
    assert not mark.exists()


def test_the_configuration_may_name_the_command(runs: Runs) -> None:
    runs.path.mkdir()
    (runs.path / "config.toml").write_text("[alerts]\nbell = 3\n")
    done = runs.run(sys.executable, "-c", "1")
    assert done.returncode == 0 and b"[alerts] bell is true or false; the defaults are used" in done.stderr
    (runs.path / "config.toml").write_text('[alerts]\ncommand = "no-such-program-here"\n')
    done = runs.run(sys.executable, "-c", "1")
    assert done.returncode == 0 and b"no program" in done.stderr


# The bell


def test_news_is_what_came_and_the_end() -> None:
    news = NewAlerts()
    assert news.of(view()) is None
    said = news.of(view(appeared(), appeared("b", "cleared")))
    assert said is not None and "input-bound warning" in said and "b warning" not in said
    assert (news.of(view(state="failed")) or "").endswith("the training failed")
    assert news.of(view(state="failed")) is None


@pytest.mark.parametrize(
    ("environment", "sequence"),
    [
        ({"TERM_PROGRAM": "WezTerm", "TERM": "xterm-256color"}, "\x1b]9;loss is nan\x07"),
        ({"LC_TERMINAL": "iTerm2", "TERM": "xterm-256color"}, "\x1b]9;loss is nan\x07"),
        ({"TERM": "foot"}, "\x1b]777;notify;trainmon;loss is nan\x07"),
        ({"TERM": "xterm-256color", "VTE_VERSION": "7600"}, "\x1b]777;notify;trainmon;loss is nan\x07"),
        ({"TERM": "xterm-kitty"}, "\x1b]99;;loss is nan\x1b\\"),
        ({"TERM": "xterm-256color"}, ""),
        ({"TERM": "linux"}, ""),
    ],
)
def test_notifications_where_the_terminal_has_them(environment: dict[str, str], sequence: str) -> None:
    assert notification("loss is nan", environment) == sequence


def test_a_notification_carries_no_control_of_its_own() -> None:
    sent = notification("a\x07b\x1b]52;c;x\x07", {"TERM": "foot"})
    assert sent.count("\x1b") == 1 and sent.count("\x07") == 1 and sent.endswith("\x07")


# What an earlier reader saw


def test_changes_outlive_who_saw_them(tmp_path: Path) -> None:
    log = FindingLog()
    log.update([found("idle", "info")], 0.0)
    keep_changes(tmp_path, log.update([found(), found("oom-risk")], 1.0))
    again = FindingLog(kept_changes(tmp_path))
    assert kinds(again.turns) == [("appeared", "input-bound"), ("appeared", "oom-risk")]
    assert kinds(again.update([found()], 100.0)) == [("present", "input-bound")], "who comes is told what is there"
    assert kinds(again.update([found()], 100.0 + CLEARED_AFTER)) == [("cleared", "oom-risk")]


def test_two_who_watch_are_one_change(tmp_path: Path) -> None:
    now = time.monotonic()
    for t in (now, now + 1.0):
        keep_changes(tmp_path, [replace(appeared(), t=t)])
    assert kinds(kept_changes(tmp_path)) == [("appeared", "input-bound")]


def test_what_no_findings_are_is_left_out(tmp_path: Path) -> None:
    keep_changes(
        tmp_path, [replace(appeared("a"), finding=Finding(code="a", severity="warning", title="a\x1b[31m")), appeared()]
    )
    with (tmp_path / "finding-changes.jsonl").open("ab") as out:
        out.write(b'{"time": 1e999, "kind": "appeared", "code": "b", "severity": "warning", "title": ""}\n')
        out.write(b'{"time": 1, "kind": "gone", "code": "b", "severity": "warning", "title": ""}\n\xff\n[]\n{"time": 1')
    changes = kept_changes(tmp_path)
    assert kinds(changes) == [("appeared", "a"), ("appeared", "input-bound")] and "\x1b" not in changes[0].finding.title


def test_an_ended_run_clears_nothing(tmp_path: Path) -> None:
    log = FindingLog([appeared()])
    log.update([], 0.0)
    assert log.update([], 2 * CLEARED_AFTER, is_last=True) == []
