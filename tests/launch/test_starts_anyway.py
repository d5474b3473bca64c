"""Trouble of trainmon's own does not keep a training from starting; only a wrong option of `run` does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from .conftest import ROOT, TRAINMON, State

# What the program sees of the world: signals that Python ignores, and whether trainmon has changed its environment.
PROGRAM = (
    "import os, signal, sys; print(signal.getsignal(signal.SIGXFSZ), 'TRAINMON_RUN' in os.environ); sys.exit(3)",
)


def started(state: State, *options: str) -> subprocess.CompletedProcess[bytes]:
    return state.run(sys.executable, "-S", "-c", *PROGRAM, options=options)


def starts_without(state: State, reason: str) -> None:
    """The program runs as it would alone, and one line says why nothing is recorded."""
    done = started(state)
    alone = subprocess.run([sys.executable, "-S", "-c", *PROGRAM], capture_output=True)
    assert (done.returncode, done.stdout) == (3, alone.stdout), done.stderr
    (line,) = done.stderr.decode().splitlines()
    assert reason in line and "started without trainmon" in line


def test_a_directory_open_to_others(state: State) -> None:
    state.path.mkdir(mode=0o700)
    state.path.chmod(0o777)
    starts_without(state, "chmod o-w")


def test_a_file_in_place_of_the_directory(state: State) -> None:
    state.path.write_text("")
    starts_without(state, "Not a directory")


def test_a_directory_that_cannot_be_made(state: State) -> None:
    state.environment["TRAINMON_DIR"] = "/dev/null/nothing"
    starts_without(state, "Not a directory")


def test_a_disk_that_is_nearly_full(state: State) -> None:
    """The program's output goes to that disk: it would fail at its next print."""
    code = (
        "import os, sys; full = os.statvfs_result((4096, 4096, 9, 1, 1, 9, 9, 9, 0, 255)); os.statvfs = lambda _: full;"
        "from monitor.entry import main; main()"
    )
    words = ["run", "--no-tui", "--", sys.executable, "-c", "print('hi')"]
    done = subprocess.run([sys.executable, "-c", code, *words], env=state.environment, cwd=ROOT, capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"hi\n"), done.stderr
    assert b"1 MiB are free" in done.stderr and state.runs() == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.toml", "nonsense["),
        ("config.toml", '[run]\nprice = "much"\n'),
        ("config.toml", '[screen]\ntheme = "no such"\n'),
        ("config.toml", '[keys]\ndetach = "1"\n'),
        ("config.toml", '[alerts]\ncommand = "no-such-program"\n'),
        ("TRAINMON_RUN_EXPECT_TPS", "many"),
    ],
)
def test_a_bad_value_in_the_configuration(state: State, name: str, text: str) -> None:
    state.path.mkdir(mode=0o700)
    if name.startswith("TRAINMON"):
        state.environment[name] = text
    else:
        (state.path / name).write_text(text)
    done = started(state)
    assert done.returncode == 3, done.stderr
    assert done.stderr.decode().splitlines()[0].endswith("; the defaults are used")
    assert state.ended(state.only) is not None, "it is recorded"


@pytest.mark.parametrize(
    "variables",
    [
        {"PYTHONWARNDEFAULTENCODING": "1", "PYTHONWARNINGS": "error"},
        {"PYTHONTRACEMALLOC": "25"},
        {"PYTHONINSPECT": "1"},
        {"PYTHONDEVMODE": "1", "PYTHONASYNCIODEBUG": "1"},
    ],
)
def test_variables_for_the_program_s_interpreter_do_nothing_to_trainmon(
    state: State, variables: dict[str, str]
) -> None:
    state.environment |= variables
    done = state.run("sh", "-c", "env | grep ^PYTHON; exit 3")
    given = set(done.stdout.decode().split())
    assert done.returncode == 3 and {f"{name}={value}" for name, value in variables.items()} <= given, done.stderr
    assert done.stderr.startswith(b"trainmon: sh failed (exit code 3)") and state.ended(state.only) is not None


def test_the_dashboard_is_not_driven_by_variables_of_textual() -> None:
    code = "import monitor.tui, os, textual.constants as c; print(c.DRIVER, c.PRESS, os.environ.get('TEXTUAL'))"
    given = {**os.environ, "TEXTUAL": "debug", "TEXTUAL_DRIVER": "no.such:Driver", "TEXTUAL_PRESS": "q"}
    done = subprocess.run([sys.executable, "-c", code], env=given, cwd=ROOT, capture_output=True)
    assert done.stdout == b"None  None\n", done.stderr


@pytest.mark.skipif(os.getuid() != 0 or shutil.which("unshare") is None, reason="needs a file system of its own")
def test_a_jail_without_dev_null(state: State) -> None:
    jail = 'mount -t tmpfs none /dev && exec "$@"'
    words = [*TRAINMON, "run", "--no-tui", "--", sys.executable, "-c", "import sys; print(sys.stdin.read())"]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", jail, "sh", *words],
        env=state.environment, cwd=ROOT, input=b"in", capture_output=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, b"in\n"), done.stderr
    assert state.ended(state.only) is not None


def test_no_run_is_removed_while_the_configuration_is_not_understood(state: State) -> None:
    started(state)
    (state.path / "config.toml").write_text("[retention]\nruns = 0\nspelled = 'wrong'\n")
    for _ in range(2):
        started(state)
    assert len(state.runs()) == 3


@pytest.mark.parametrize("options", [("--price", "-1"), ("--on-alert", "no-such-program"), ("--no-such-option",)])
def test_a_wrong_option_of_run_stops_it(state: State, options: tuple[str, ...]) -> None:
    state.path.mkdir(mode=0o700)
    (state.path / "config.toml").write_text("nonsense[")
    done = started(state, *options)
    assert (done.returncode, done.stdout) == (2, b""), done.stderr
    assert len(done.stderr.decode().splitlines()) == 1
