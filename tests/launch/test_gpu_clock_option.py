"""Steps timed on the GPU: on, unless an option, the configuration or the environment says no."""

from __future__ import annotations

import pytest

from .conftest import State

pytestmark = pytest.mark.long

SAY = ("sh", "-c", 'echo "clock ${TRAINMON_GPU_CLOCK-default}"')
SAY_TRACE = ("sh", "-c", 'echo "trace ${TRAINMON_TRACE-default}, control ${TRAINMON_CONTROL-default}"')


@pytest.mark.parametrize(
    ("options", "configuration", "said"),
    [
        ((), "", b"clock default\n"),
        (("--gpu-clock",), "", b"clock 1\n"),
        ((), "[run]\ngpu_clock = true\n", b"clock 1\n"),
        ((), "[run]\ngpu_clock = false\n", b"clock 0\n"),
        (("--no-gpu-clock",), "", b"clock 0\n"),
        (("--no-gpu-clock",), "[run]\ngpu_clock = true\n", b"clock 0\n"),
        (("--gpu-clock",), "[run]\ngpu_clock = false\n", b"clock 1\n"),
    ],
)
def test_the_training_is_told(state: State, options: tuple[str, ...], configuration: str, said: bytes) -> None:
    state.path.mkdir(parents=True, exist_ok=True)
    (state.path / "config.toml").write_text(configuration)
    ended = state.call("run", "--no-tui", *options, "--", *SAY)
    assert (ended.returncode, ended.stdout) == (0, said)


def test_what_is_no_yes_or_no_is_reported(state: State) -> None:
    state.path.mkdir(parents=True, exist_ok=True)
    (state.path / "config.toml").write_text("[run]\ngpu_clock = 'cuda'\n")
    ended = state.call("run", "--no-tui", "--", *SAY)
    assert ended.returncode == 0 and b"gpu_clock in [run] is 'cuda'; it must be true or false" in ended.stderr


def test_the_environment_has_its_say(state: State) -> None:
    state.environment["TRAINMON_GPU_CLOCK"] = "0"
    assert state.call("run", "--no-tui", "--", *SAY).stdout == b"clock 0\n"
    assert state.call("run", "--no-tui", "--gpu-clock", "--", *SAY).stdout == b"clock 1\n"


@pytest.mark.parametrize(
    ("configuration", "said"),
    [
        ("", b"trace default, control default\n"),
        ("[run]\ntrace = true\ncontrol = true\n", b"trace 1, control 1\n"),
        ("[run]\ntrace = false\n", b"trace 0, control default\n"),
        ("[run]\ncontrol = false\n", b"trace default, control 0\n"),
    ],
)
def test_traces_are_turned_off_in_the_configuration(state: State, configuration: str, said: bytes) -> None:
    state.path.mkdir(parents=True, exist_ok=True)
    (state.path / "config.toml").write_text(configuration)
    ended = state.call("run", "--no-tui", "--", *SAY_TRACE)
    assert (ended.returncode, ended.stdout) == (0, said)
