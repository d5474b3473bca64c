"""The background thread's looks at the training thread's stack: they name the user's own line."""

from __future__ import annotations

from .conftest import Trainings

BUSY = """
import time
def encode():
    until = time.monotonic() + 0.1
    while time.monotonic() < until:
        sum(range(100))
for _ in th.steps(range(25)):
    with th.phase("forward"):
        time.sleep(0.02)
    encode()
"""


def rows(told) -> dict[str, dict[str, int]]:  # type: ignore[no-untyped-def]
    out: dict[str, dict[str, int]] = {}
    for event in told.kind("frames"):
        for where, place, looks in event["rows"]:
            out.setdefault(where, {})[place] = looks
    return out


def test_time_in_no_phase_has_a_line(train: Trainings) -> None:
    found = rows(train(BUSY))
    most = max(found["other"], key=found["other"].__getitem__)
    assert most.endswith("in encode"), found
    assert any(place.endswith("in <module>") for place in found["forward"]), "the user's line, not the sleep inside"


def test_it_can_be_turned_off(train: Trainings) -> None:
    assert rows(train(BUSY, TRAINMON_FRAMES="0")) == {}


def test_a_pulse_says_where_a_long_phase_stands(train: Trainings) -> None:
    told = train("import time\nwith th.step():\n  with th.phase('generation'):\n    time.sleep(7)")
    frames = [pulse["frame"] for pulse in told.kind("pulse") if pulse.get("frame")]
    assert frames and all("in <module>" in frame for frame in frames)
