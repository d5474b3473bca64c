"""The runs of several hosts in one list."""

from __future__ import annotations

import json
import sys

from tests.launch.conftest import State, wait_for
from tests.remote import hostile
from tests.remote.conftest import configure, trainings, via


def test_hosts_are_listed_together(far: State, near: State) -> None:
    far.run(*trainings(30, 0.005))
    far.start(*trainings(3000, 0.02))
    wait_for(lambda: any(json.loads(far.call("ls", "--json").stdout)[0]["step"] or 0 for _ in (1,)))
    configure(near, box=via(far), bare=via(far, with_trainmon=False), gone="false")
    done = near.call("ls", "--host", "box,bare", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    here = json.loads(far.call("ls", "--json").stdout)
    assert {row["id"] for row in found} == {f"{host}:{row['id']}" for host in ("box", "bare") for row in here}
    for row in found:
        (same,) = [other for other in here if row["id"].endswith(other["id"])]
        assert (row["state"], row["name"], row["exit_code"], row["steps_total"]) == (
            same["state"],
            same["name"],
            same["exit_code"],
            same["steps_total"],
        )
        assert (row["step"] or 0) > 0
    text = near.call("ls", "--host", "all")
    assert text.returncode == 1 and b"gone: " in text.stderr and text.stdout.count(b"box:") == 2
    assert not list(near.path.glob("copies/*/*"))


def test_a_part_without_rank_0_tells_of_its_lowest_rank(far: State, near: State) -> None:
    far.environment.update(RANK="3", WORLD_SIZE="4")
    assert far.run(*trainings(30, 0.005)).returncode == 0
    configure(near, box=via(far))
    for listed in (far.call("ls", "--json"), near.call("ls", "--host", "box", "--json")):
        (row,) = json.loads(listed.stdout)
        assert (row["step"], row["steps_total"]) == (30, 30) and row["steps_per_second"] > 0


def test_a_list_needs_hosts(near: State) -> None:
    near.path.mkdir()
    assert b"[hosts]" in near.call("ls", "--host", "all").stderr
    assert near.call("ls", "--host", "-oProxyCommand=x").returncode == 2


def test_a_hostile_host_is_one_line(near: State) -> None:
    done = near.call("ls", "--via", f"{sys.executable} {hostile.__file__} peek", "--host", "bad")
    assert done.returncode == 1 and done.stderr.startswith(b"bad: ") and done.stderr.count(b"\n") == 1
