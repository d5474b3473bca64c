"""`trainmon doctor` warns of what bites later: a logout that ends trainings, directories that others may change."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from monitor.doctor.checks import room_for_both, session_lifetime
from monitor.doctor.owner_checks import parent_directories
from monitor.running import lifetime
from trainhooks.protocol import rundir

from .conftest import State

LOGIN = "0::/user.slice/user-1000.slice/session-3.scope\n"


def test_both_looks_are_among_the_doctor_s(state: State) -> None:
    told = json.loads(state.call("doctor", "--json").stdout)
    parts = {check["part"]: check for check in told["checks"]}
    assert parts["parent directories"]["state"] in ("works", "limited")
    assert parts["logging out"]["state"] in ("works", "limited")
    assert parts["room in this container"]["state"] in ("works", "limited")
    assert not parts["parent directories"]["essential"] and not parts["logging out"]["essential"]


def test_a_container_without_room_for_both() -> None:
    found = room_for_both("this container has 9 tasks left")
    assert (found.state, room_for_both(None).state) == ("limited", "works") and "9 tasks" in found.text


def test_a_machine_that_ends_all_processes_at_logout() -> None:
    found = session_lifetime(lifetime.logind_limit(["[Login]\nKillUserProcesses=yes\n"], LOGIN, "ann"))
    assert found.state == "limited"
    assert "KillUserProcesses=yes" in found.text and "systemd-run --user --scope" in found.text


def test_the_settings_are_read_as_systemd_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, local = tmp_path / "usual", tmp_path / "local"
    for base in (usual, local):
        (base / "logind.conf.d").mkdir(parents=True)
    monkeypatch.setattr(lifetime, "LOGIND", (str(usual), str(local)))
    (usual / "logind.conf").write_text("[Login]\nKillUserProcesses=no\n")
    assert lifetime.logind_limit(lifetime._settings(), LOGIN, "ann") is None
    (local / "logind.conf.d" / "50-lab.conf").write_text("[Login]\nKillUserProcesses=yes\n")
    assert lifetime.logind_limit(lifetime._settings(), LOGIN, "ann") is not None
    (local / "logind.conf.d" / "60-spare.conf").write_text("[Login]\nKillExcludeUsers=ann\n")
    assert lifetime.logind_limit(lifetime._settings(), LOGIN, "ann") is None


def test_without_a_lifetime_limit_the_session_check_works_without_advice() -> None:
    found = session_lifetime(None)
    assert (found.state, found.advice) == ("works", None)


def test_a_tie_to_trainmon_itself() -> None:
    found = session_lifetime(
        lifetime.LifetimeLimit("trainmon is the first process of this container, which ends with it", this_process=True)
    )
    assert found.state == "limited" and found.advice


# Directories above the runs


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(rundir.STATE_VARIABLE, str(tmp_path / "team" / "state"))
    (tmp_path / "team").mkdir(mode=0o755)
    return tmp_path / "team"


def test_private_directories_are_no_reason_to_warn(place: Path) -> None:
    place.chmod(0o700)
    assert parent_directories().state == "works"


def test_a_directory_that_everybody_may_change(place: Path) -> None:
    place.chmod(0o777)
    found = parent_directories()
    assert found.state == "limited"
    assert str(place) in found.text and "every user" in found.text
    assert found.advice is not None and rundir.STATE_VARIABLE in found.advice


def test_a_sticky_one_is_as_good_as_tmp(place: Path) -> None:
    place.chmod(0o1777)
    assert parent_directories().state == "works"


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives a directory to any group or user")
def test_a_directory_that_a_group_may_change(place: Path) -> None:
    os.chown(place, 0, 4321)
    place.chmod(0o775)
    found = parent_directories()
    assert found.state == "limited" and "the group 4321" in found.text
    place.chmod(0o755)
    assert parent_directories().state == "works"


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives a directory to any group or user")
def test_a_directory_of_another_user(place: Path) -> None:
    os.chown(place, 4321, 0)
    assert "its owner 4321" in parent_directories().text


def test_a_group_of_one_s_own_is_no_reason(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from monitor.doctor import owner_checks

    place.chmod(0o775)
    monkeypatch.setattr(owner_checks, "_own_group", lambda number: True)
    assert parent_directories().state == "works"


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives a directory to any group or user")
def test_a_link_on_the_way_is_followed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place.chmod(0o777)
    (place / "state").mkdir(mode=0o700)
    link = place.parent / "short"
    link.symlink_to(place / "state")
    monkeypatch.setenv(rundir.STATE_VARIABLE, str(link))
    assert "every user" in parent_directories().text
