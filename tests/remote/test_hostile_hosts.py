"""A host that lies: nothing it tells is written outside of its copy, or run, or taken without a limit."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from monitor.commands.far_runs import fetched
from monitor.errors import UserError
from monitor.remote import copier
from monitor.remote.line import Target
from tests.launch.conftest import State
from tests.remote import hostile

PROGRAM = Path(hostile.__file__)


def _attach(near: State, kind: str) -> tuple[int, bytes, set[str]]:
    """Return the exit code and what was told of it, and the files in the state directory outside the copy."""
    done = near.call("attach", "--via", f"{sys.executable} {PROGRAM} {kind}", "box:r", "--once")
    copy = near.path / "copies" / "box" / "r"
    files = {str(path.relative_to(near.path)) for path in near.path.rglob("*") if path.is_file()}
    return (
        done.returncode,
        done.stderr,
        {name for name in files if not name.startswith(f"{copy.relative_to(near.path)}/")},
    )


@pytest.mark.parametrize("kind", [*hostile.KINDS, "banner"])
def test_a_lie_ends_the_line(near: State, kind: str) -> None:
    code, told, strays = _attach(near, kind)
    assert code == 2 and told.count(b"\n") == 1 and told.startswith(b"trainmon: box: "), told
    assert not strays
    copy = near.path / "copies" / "box" / "r"
    assert not {"config.toml", "state.cache"} & set(os.listdir(copy) if copy.is_dir() else [])
    assert sum(path.stat().st_blocks for path in near.path.rglob("*")) < 1000
    assert not Path("/tmp/stolen-by-a-relay.jsonl").exists()


@pytest.mark.parametrize("kind", hostile.HARMLESS)
def test_what_makes_no_sense_is_left_out(near: State, kind: str) -> None:
    code, told, strays = _attach(near, kind)
    assert code == 0 and not strays, told


@pytest.mark.parametrize("kind", hostile.LATE)
def test_what_never_comes_is_not_waited_for(near: State, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A limit without progress: it speaks on, and a long history that keeps coming is not cut."""
    monkeypatch.setenv("TRAINMON_DIR", str(near.path))
    monkeypatch.setattr(copier, "ANSWER_SECONDS", 2.0)
    target = Target("box", (sys.executable, str(PROGRAM), kind))
    with nullcontext() if kind == "slow" else pytest.raises(UserError, match="box: no answer within 2 s"):
        fetched(target, "r")


def test_a_run_of_an_impossible_name_has_its_copy_in_place(near: State) -> None:
    near.call("attach", "--via", f"{sys.executable} {PROGRAM} name", "box:r", "--once")
    assert all(path.relative_to(near.path).parts[:2] == ("copies", "box") for path in near.path.rglob("run.json"))


def test_a_link_in_the_copy_is_not_written_through(near: State, tmp_path: Path) -> None:
    """Whoever could put one there is this user; a mistake of theirs costs them no file."""
    copy = near.path / "copies" / "box" / "r"
    for directory in (near.path, *reversed(copy.parents[:2]), copy):
        directory.mkdir(mode=0o700, exist_ok=True)
    mine = tmp_path / "mine"
    mine.write_text("keep")
    (copy / "console.log").symlink_to(mine)
    near.call("attach", "--via", f"{sys.executable} {PROGRAM} before", "box:r", "--once")
    assert mine.read_text() == "keep"
