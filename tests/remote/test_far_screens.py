"""Runs of other hosts on a real terminal: in the list of all, opened from it, and marked while their host is silent."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Box
from tests.launch.conftest import State
from tests.remote.conftest import configure, relays, trainings, via
from tests.signals import send_signal

pytestmark = pytest.mark.long


@pytest.fixture
def viewer(tmp_path: Path) -> Iterator[Box]:
    box = Box(tmp_path / "near")
    yield box
    box.clear()


def test_the_list_shows_hosts_and_opens_a_run_there(far: State, near: State, viewer: Box) -> None:
    far.run(*trainings(30, 0.005))
    configure(near, box=via(far), gone="false")
    terminal = viewer.trainmon()
    terminal.wait_for(lambda screen: "box:far training" in screen and "gone: " in screen)
    terminal.press("\r")
    terminal.wait_for("Where the time goes")
    terminal.press("q")
    terminal.wait_for("box:far training")
    terminal.press("q")
    assert terminal.exit_code() == 0
    assert (near.path / "copies" / "box" / far.only.name / "run.json").is_file()


def test_the_dashboard_says_that_a_host_is_silent(far: State, near: State, viewer: Box) -> None:
    front = far.start(*trainings(5000, 0.02))
    configure(near, box=via(far))
    terminal = viewer.trainmon("attach", "box:")
    terminal.wait_for("Where the time goes")
    (relay,) = relays(far)
    send_signal(relay, signal.SIGSTOP)
    terminal.wait_for("box silent for")
    terminal.wait_for(lambda screen: "silent for" not in screen)  # another line was opened
    terminal.press("q")
    assert terminal.exit_code() == 0
    assert front.poll() is None
