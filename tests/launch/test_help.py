"""What the help of each verb says holds: its options are explained, its numbers and its warnings are true."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from pathlib import Path

import click
import pexpect
import pytest

from monitor import alerts
from monitor.cli import cli
from monitor.commands import progress
from monitor.diagnosis.explain import CODES
from monitor.running import stopping
from monitor.runs import retention
from tests.signals import send_group_signal, send_signal
from trainhooks.protocol import process_identity, rundir

from .conftest import ROOT, TRAINMON, State, python, wait_for

OPTIONS = [(verb, each) for verb in cli.commands.values() for each in verb.params if isinstance(each, click.Option)]


def said(verb: str) -> str:
    """All that the help of a verb tells, as one line."""
    command = cli.commands[verb]
    options = (each.help or "" for each in command.params if isinstance(each, click.Option))
    return " ".join(" ".join((command.help or "", *options)).split())


@pytest.mark.parametrize("verb", sorted(cli.commands))
def test_every_verb_says_what_it_does_in_one_line(verb: str) -> None:
    first = cli.commands[verb].get_short_help_str(limit=200)
    assert 10 < len(first) < 120


@pytest.mark.parametrize(("verb", "option"), OPTIONS, ids=lambda each: each.name)
def test_every_option_is_explained(verb: click.Command, option: click.Option) -> None:
    told = {name.split("=")[0] for name in re.findall(r"--[a-z-]+", said(str(verb.name)))}
    assert option.help, f"{verb.name} {option.opts}"
    assert told <= {name for each in verb.params for name in (*each.opts, *each.secondary_opts)}


@pytest.mark.parametrize(
    ("verb", "sentence", "holds"),
    [
        (
            "run",
            "at most one in 10 s, killed after 30 s",
            (alerts.MIN_START_SECONDS, alerts.MAX_COMMAND_SECONDS) == (10, 30),
        ),
        (
            "attach",
            "at most one in 10 s, killed after 30 s",
            (alerts.MIN_START_SECONDS, alerts.MAX_COMMAND_SECONDS) == (10, 30),
        ),
        ("attach", "A line of JSON a second", progress.OBJECT_SECONDS == 1),
        ("stop", "SIGINT, after 30 s SIGTERM, after 30 s more SIGKILL", stopping.STOP_WAITS[:2] == (30, 30)),
        ("prune", "runs = 400, gib = 20", (retention.KEEP_RUNS, retention.KEEP_BYTES) == (400, 20 << 30)),
        ("prune", "not modified for a day", retention.MIN_AGE == 24 * 3600),
    ],
)
def test_its_numbers_are_those_of_the_code(verb: str, sentence: str, holds: bool) -> None:
    assert sentence in said(verb)
    assert holds


def test_runs_are_listed_newest_first(state: State) -> None:
    for name in ("first", "second", "third"):
        assert state.run("true", options=("--name", name)).returncode == 0
    assert [entry["name"] for entry in json.loads(state.call("ls", "--json").stdout)] == ["third", "second", "first"]


def on_terminal(state: State, columns: int, *words: str) -> str:
    """What a command writes to a terminal of so many columns."""
    written: bytes = pexpect.run(
        f"{sys.executable} -m monitor {' '.join(words)}",
        env={**state.environment, "TERM": "xterm", "COLUMNS": str(columns)},  # type: ignore[arg-type]
        cwd=str(ROOT),
        dimensions=(24, columns),
    )
    return written.decode()


@pytest.mark.parametrize(("columns", "is_told"), [(200, True), (80, False)])
def test_ls_says_why_and_what_to_do_where_a_line_has_room(state: State, columns: int, is_told: bool) -> None:
    run = state.run(*python("import time\nimport trainhooks as th\nfor _ in th.steps(range(9)): time.sleep(0.002)"))
    assert run.returncode == 0
    (entry,) = json.loads(state.call("ls", "--json").stdout)
    assert entry["verdict"] and entry["fix"] and entry["verdict"] in " ".join(run.stderr.decode().split())
    listed = on_terminal(state, columns, "ls")
    (line,) = [line for line in listed.split("\r\n") if line.startswith(entry["id"])]
    assert (entry["verdict"][:20] in line) is is_told and len(line) <= columns
    piped = state.call("ls").stdout.decode()
    assert f"{entry['verdict']} → {entry['fix']}" in piped


@pytest.mark.parametrize("columns", [60, 80])
def test_a_report_breaks_its_lines_between_words_of_the_terminal(state: State, columns: int) -> None:
    recording = "demo/recordings/sft-cpu.jsonl"
    shown = on_terminal(state, columns, "report", recording)
    whole = state.call("report", recording).stdout.decode()
    assert max(map(len, shown.split("\r\n"))) <= columns < max(map(len, whole.split("\n")))
    assert shown.split() == whole.split(), "no word is broken"


def test_explain_without_a_code_lists_them_all(state: State) -> None:
    listed = state.call("explain").stdout.decode()
    assert [code for code in CODES if code not in listed] == []


def test_parquet_is_not_written_to_a_terminal(state: State) -> None:
    assert state.run("true").returncode == 0
    words = [*TRAINMON[1:], "export", "last", "--format", "parquet"]
    child = pexpect.spawn(TRAINMON[0], words, env={**state.environment, "TERM": "xterm"}, cwd=str(ROOT), timeout=60)
    child.expect("name a file with --output FILE")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 2


# The price of --pty

TALKS = """
import sys
count = 0
while True:
    count += 1
    print("x" * 200)
    open(sys.argv[1], "w").write(str(count))
"""


def talking(state: State, count: Path) -> tuple[int, int]:
    """The pids of a training on a terminal of trainmon's that prints without end, and of its supervisor."""
    front = state.start(*python(TALKS), str(count), options=("--pty",))
    wait_for(lambda: count.exists() and count.read_text().isdigit())
    assert front.poll() is None
    wait_for(lambda: state.supervisor(state.only))
    return state.pid(state.only), state.supervisor(state.only)


def alive(state: State) -> bool:
    identity = rundir.read_json(state.only / rundir.IDENTITY) or {}
    return process_identity.process_alive(identity["pid"], identity["start_ticks"], identity["boot_id"])


def stands_still(count: Path) -> bool:
    before = count.read_text()
    time.sleep(0.5)
    return count.read_text() == before


def test_a_stopped_supervisor_stops_a_training_that_has_a_terminal(state: State, tmp_path: Path) -> None:
    count = tmp_path / "count"
    training, supervisor = talking(state, count)
    send_signal(supervisor, signal.SIGSTOP)
    wait_for(lambda: stands_still(count))
    send_signal(supervisor, signal.SIGCONT)
    wait_for(lambda: not stands_still(count))
    send_group_signal(training, signal.SIGKILL)


def test_a_killed_one_ends_it(state: State, tmp_path: Path) -> None:
    _, supervisor = talking(state, tmp_path / "count")
    assert alive(state)
    send_signal(supervisor, signal.SIGKILL)
    wait_for(lambda: not alive(state))
