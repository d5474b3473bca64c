"""Old runs go, oldest first; live and pinned ones stay."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from monitor import retention
from monitor.retention import Stored, surplus
from trainhooks import rundir

from .conftest import State, python

STORED = st.lists(
    st.builds(Stored, st.just(Path("run")), st.floats(0, 1e9), st.integers(0, 1000), st.booleans()), max_size=30
)


@given(STORED, st.integers(0, 10), st.integers(0, 3000))
def test_what_is_left_fits_and_nothing_kept_is_touched(runs: list[Stored], number: int, size: int) -> None:
    gone = surplus(runs, number, size)
    assert not any(each.kept for each in gone)
    left = [each for each in runs if not any(each is one for one in gone)]
    loose = [each for each in left if not each.kept]
    assert len(left) <= max(number, sum(each.kept for each in left))
    assert not loose or sum(each.size for each in left) <= size


@given(STORED)
def test_the_oldest_go_first(runs: list[Stored]) -> None:
    gone = surplus(runs, 5, 10**9)
    left = [each for each in runs if not each.kept and not any(each is one for one in gone)]
    assert not gone or not left or max(each.started for each in gone) <= min(each.started for each in left)


def test_pruning_leaves_the_live_and_the_pinned(state: State, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    for _ in range(3):
        state.run(*python("pass"))
    oldest, middle, newest = sorted(state.runs(), key=lambda path: path.stat().st_mtime)
    (oldest / retention.PIN).touch()
    living = state.start(*python("import time; time.sleep(60)"))
    monkeypatch.setenv(rundir.STATE_VARIABLE, str(state.path))
    gone = surplus(retention.stored(), keep_runs=0)
    assert [each.path for each in gone] == [middle, newest]
    assert all(retention.remove(each) for each in gone)
    assert oldest.exists() and not middle.exists() and not newest.exists()
    assert len(state.runs()) == 2
    living.terminate()
    living.wait()
