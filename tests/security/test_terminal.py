"""No control byte of a publisher reaches a terminal, whichever command shows its texts."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import Terminal
from tests.fuzz.targets import clean_text
from tests.launch.conftest import State
from tests.security import hostile


def harmless(output: bytes) -> str:
    shown = output.decode("utf-8")
    clean_text(shown)
    return shown


@pytest.fixture
def evil(state: State) -> State:
    """Two runs, full of it."""
    for name in ("a", "b"):
        hostile.write(state.path / "runs" / name)
    (state.path / "runs").chmod(0o700)
    return state


@pytest.mark.parametrize(
    ("words", "shows"),
    [
        (("ls",), False),
        (("ls", "--json"), True),
        (("report", "a"), True),
        (("report", "a", "--markdown"), True),
        (("report", "a", "--json"), True),
        (("report", "a", "--html", "-", "--against", "b"), True),
        (("snapshot", "a"), True),
        (("compare", "a", "b"), False),
        (("compare", "a", "b", "--json"), True),
        (("compare", "a", "b", "--markdown"), False),
        (("attach", "a", "--once"), True),
        (("export", "a", "--format", "csv"), True),
        (("export", "a", "--format", "chrome"), True),
        (("wait", "a", "--until", "end,step=1,critical"), False),
        (("stop", "a"), False),
        (("prune", "--dry-run", "--keep", "0"), False),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_every_verb_cleans_what_a_run_says(evil: State, words: tuple[str, ...], shows: bool) -> None:
    done = evil.call(*words)
    assert done.returncode == 0, done.stderr
    told = done.stdout.replace(b"\r\n", b"\n") if "csv" in words else done.stdout  # its own line ends
    shown = harmless(told) + harmless(done.stderr)
    assert hostile.MARK in shown or not shows, "what is harmless in such a text is still shown"


@pytest.mark.parametrize(
    "words",
    [
        ("report", hostile.EVIL),
        ("explain", hostile.EVIL),
        ("attach", hostile.EVIL),
        ("wait", "--until", hostile.EVIL),
        (hostile.EVIL,),
        ("ls", hostile.EVIL),
    ],
    ids=lambda words: words[0][:7],
)
def test_a_user_error_repeats_no_control_byte(evil: State, words: tuple[str, ...]) -> None:
    done = evil.call(*(word.replace("\0", "") for word in words))
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1
    harmless(done.stderr)


def test_names_and_tags_given_by_hand_are_cleaned(state: State) -> None:
    evil = hostile.EVIL.replace("\0", "")
    done = state.run(sys.executable, "-c", "", options=("--name", evil, "--tag", f"{evil}={evil}"))
    assert done.returncode == 0
    assert hostile.MARK in harmless(done.stderr)
    for words in (("ls",), ("report",), ("ls", "--json")):
        assert hostile.MARK in harmless(state.call(*words).stdout)


def test_a_hostile_log_is_shown_and_imported_as_text(state: State, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(f"{hostile.EVIL} step {step}/90 loss: 0.5\n" for step in range(1, 90)))
    for words in (("lines", str(log)), ("lines", "--json", str(log)), ("import", str(log), "--name", "x")):
        done = state.call(*words)
        assert done.returncode == 0, done.stderr
        harmless(done.stdout)
        harmless(done.stderr)
    harmless(state.call("report", "x").stdout)


def test_a_hostile_configuration_is_refused_in_one_line(state: State, tmp_path: Path) -> None:
    state.path.mkdir()
    (tmp_path / "log").write_text("step 1\n")
    for text in (
        '[[console.pattern]]\nregex = "(\\u001b]0;x\\u0007"\n',
        "\x1b]0;x\x07 = [",
        "retention = 5\n",
        "x = 1\nx = 2\n",
    ):
        (state.path / "config.toml").write_text(text)
        words = ("prune", "--dry-run") if text.startswith("retention") else ("lines", str(tmp_path / "log"))
        done = state.call(*words)
        assert done.returncode == 2 and done.stderr.count(b"\n") == 1
        assert "config.toml" in harmless(done.stderr)


def test_a_spreadsheet_finds_no_formula_in_a_table(evil: State) -> None:
    journal = evil.path / "runs" / "a" / "rank-0-p.jsonl"
    for reason in ("=cmd|' /C calc'!A0", "@SUM(1)", "+1+1", "-1+1", "＝1+1"):
        step = {"kind": "step", "producer": "q", "seq": 0, "t": 1.0, "index": 1, "status": "skipped", "reason": reason}
        with open(journal, "a") as out:
            out.write(json.dumps({**step, "producer": reason, "role": reason, "metrics": {reason: 1.0}}) + "\n")
    rows = csv.reader(io.StringIO(evil.call("export", "a", "--format", "csv").stdout.decode()))
    cells = [cell for row in rows for cell in row if cell]
    assert any(cell.startswith("'=cmd") for cell in cells)
    for cell in cells:
        assert cell[0] not in "=@＝" and (cell[0] not in "+-" or float(cell) < 0)


@pytest.mark.parametrize("size", [(160, 45), (60, 15)], ids=str)
def test_the_dashboard_of_a_hostile_run_on_a_terminal(state: State, size: tuple[int, int]) -> None:
    """Through a pty and an emulator: the screen shows the texts, and the emulator was told nothing by them."""
    hostile.write(state.path / "runs" / "a")
    (state.path / "runs").chmod(0o700)
    environment = {**state.environment, "TERM": "xterm-256color"}
    terminal = Terminal([sys.executable, "-m", "monitor", "attach", "a"], environment, *size)
    try:
        terminal.wait_for(hostile.MARK)
        for keys in ("w", "\x1b", "m", "5", "f", "1"):
            terminal.press(keys)
            terminal.read(0.5)
        clean_text(terminal.text)
        terminal.press("q")
        terminal.read(1.0)
        sent = terminal.raw.decode("utf-8", "replace")
        for told in (
            "\x1b]52",
            "\x1b]0;owned",
            "\x1bP1$r",
            "\x9b",
            "\x9d",
            "\x90",
            "\u202e",
            "\u2066",
            "\x07\x08",
            "\x7f",
        ):
            assert told not in sent
        assert terminal.screen.title != "owned"
    finally:
        terminal.kill()


def test_plain_screens_and_raw_lines_on_a_terminal(state: State) -> None:
    """What goes to a terminal where no dashboard can be drawn, and journals printed there as they are."""
    hostile.write(state.path / "runs" / "a")
    (state.path / "runs").chmod(0o700)
    for words, term in ((("attach", "a"), "dumb"), (("export", "a", "--format", "jsonl"), "xterm")):
        command = [sys.executable, "-m", "monitor", *words]
        terminal = Terminal(command, {**state.environment, "TERM": term}, 200, 50)
        try:
            terminal.wait_for(hostile.MARK)
            while os.waitpid(terminal.pid, os.WNOHANG) == (0, 0):
                terminal.read(0.2)
            terminal.read(0.2)
            clean_text(terminal.raw.decode("utf-8").replace("\r\n", "\n"))
        finally:
            terminal.kill()


def test_escaping_changes_no_value_of_a_line() -> None:
    from trainhooks.protocol.limits import escape

    line = json.dumps({"a": hostile.EVIL}, ensure_ascii=False)
    assert json.loads(escape(line)) == {"a": hostile.EVIL}
