"""Phases timed on the GPU: asked for by option, configuration or environment, and off otherwise."""

from __future__ import annotations

import pytest

from .conftest import State

SAY = ("sh", "-c", 'echo "clock ${TRAINMON_GPU_CLOCK-off}"')


@pytest.mark.parametrize(
    ("options", "configuration", "said"),
    [
        ((), "", b"clock off\n"),
        (("--gpu-clock",), "", b"clock 1\n"),
        ((), "[run]\ngpu_clock = true\n", b"clock 1\n"),
        ((), "[run]\ngpu_clock = false\n", b"clock off\n"),
    ],
)
def test_the_training_is_told(state: State, options: tuple[str, ...], configuration: str, said: bytes) -> None:
    state.path.mkdir(parents=True, exist_ok=True)
    (state.path / "config.toml").write_text(configuration)
    ended = state.call("run", "--no-tui", *options, "--", *SAY)
    assert (ended.returncode, ended.stdout) == (0, said)


def test_what_is_no_yes_or_no_is_refused(state: State) -> None:
    state.path.mkdir(parents=True, exist_ok=True)
    (state.path / "config.toml").write_text("[run]\ngpu_clock = 'cuda'\n")
    ended = state.call("run", "--no-tui", "--", *SAY)
    assert ended.returncode == 2 and b"gpu_clock in [run] is 'cuda'; it has to be true or false" in ended.stderr
