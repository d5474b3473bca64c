"""The limits of control groups, on trees of files as Linux lays them out."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.sources.host import Cgroup, Limits


def lay(root: Path, **files: str) -> None:
    """Write files; `__` in a name stands for `/`, `_D_` for the dot."""
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_D_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_version_2_the_narrowest_limit_holds(tmp_path: Path) -> None:
    lay(
        tmp_path,
        cgroup_D_controllers="cpu memory\n",
        slice__cpu_D_max="800000 100000\n", slice__cpu_D_stat="usage_usec 9\nthrottled_usec 1000000\n",
        slice__memory_D_max="1000000\n", slice__memory_D_current="600000\n",
        slice__job__cpu_D_max="max 100000\n", slice__job__cpu_D_stat="throttled_usec 77\n",
        slice__job__memory_D_max="4000000\n", slice__job__memory_D_current="500000\n",
    )  # fmt: skip
    cgroup = Cgroup(tmp_path)
    assert cgroup.read(1, 10.0, "0::/slice/job\n") == Limits(8.0, None, 1000000, 600000)
    lay(tmp_path, slice__cpu_D_stat="throttled_usec 1500000\n")
    assert cgroup.read(1, 12.0, "0::/slice/job\n").throttled == pytest.approx(0.25)


def test_version_2_without_limits(tmp_path: Path) -> None:
    lay(tmp_path, cgroup_D_controllers="cpu memory\n", job__cpu_D_max="max 100000\n", job__memory_D_max="max\n")
    assert Cgroup(tmp_path).read(1, 0.0, "0::/job\n") == Limits()


def test_version_2_in_a_container_whose_group_is_the_mount(tmp_path: Path) -> None:
    lay(
        tmp_path,
        cgroup_D_controllers="cpu\n",
        cpu_D_max="150000 100000\n",
        memory_D_max="500\n",
        memory_D_current="1\n",
    )
    for rows in ("0::/\n", "0::/docker/0123abc\n", "0::/../../elsewhere\n", ""):
        assert Cgroup(tmp_path).read(1, 0.0, rows) == Limits(1.5, None, 500, 1)


def test_version_1(tmp_path: Path) -> None:
    lay(
        tmp_path,
        cpu__job__cpu_D_cfs_quota_us="250000\n", cpu__job__cpu_D_cfs_period_us="100000\n",
        cpu__job__cpu_D_stat="nr_periods 5\nthrottled_time 2000000000\n",
        cpu__cpu_D_cfs_quota_us="-1\n", cpu__cpu_D_cfs_period_us="100000\n",
        memory__job__memory_D_limit_in_bytes="9000000\n", memory__job__memory_D_usage_in_bytes="3000000\n",
        memory__memory_D_limit_in_bytes="9223372036854771712\n", memory__memory_D_usage_in_bytes="5\n",
    )  # fmt: skip
    rows = "4:memory:/job\n3:cpu,cpuacct:/job\n1:name=systemd:/else\n0::/\n"
    cgroup = Cgroup(tmp_path)
    assert cgroup.read(1, 0.0, rows) == Limits(2.5, None, 9000000, 3000000)
    lay(tmp_path, cpu__job__cpu_D_stat="throttled_time 3000000000\n")
    assert cgroup.read(1, 2.0, rows).throttled == pytest.approx(0.5)


def test_version_1_where_both_controllers_share_a_mount(tmp_path: Path) -> None:
    lay(tmp_path, **{"cpu,cpuacct__cpu_D_cfs_quota_us": "50000", "cpu,cpuacct__cpu_D_cfs_period_us": "100000"})
    assert Cgroup(tmp_path).read(1, 0.0, "3:cpu,cpuacct:/\n").cpus == 0.5


@pytest.mark.parametrize("text", ["", "max", "rubbish 5", "100 0", "-5 -5 -5", "9" * 400])
def test_files_that_hold_something_else(tmp_path: Path, text: str) -> None:
    lay(tmp_path, cgroup_D_controllers="", cpu_D_max=text, memory_D_max=text, cpu_D_stat=text)
    found = Cgroup(tmp_path).read(1, 0.0, "0::/\n")
    assert (found.cpus, found.throttled, found.memory) == (None, None, None)


def test_no_control_groups(tmp_path: Path) -> None:
    assert Cgroup(tmp_path / "none").read(1, 0.0, "0::/\n") == Limits()


def test_the_kernels_kills_are_counted_by_the_group_itself(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("memory\n")
    (tmp_path / "job").mkdir()
    assert Cgroup(tmp_path).oom_kills("0::/job\n") is None
    (tmp_path / "job" / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    assert Cgroup(tmp_path).oom_kills("0::/job\n") == 2
    (tmp_path / "cgroup.controllers").unlink()
    (tmp_path / "memory" / "job").mkdir(parents=True)
    (tmp_path / "memory" / "job" / "memory.oom_control").write_text("oom_kill_disable 0\noom_kill 4\n")
    assert Cgroup(tmp_path).oom_kills("4:memory:/job\n0::/\n") == 4


def test_what_is_left_of_memory_and_tasks_in_version_2(tmp_path: Path) -> None:
    lay(
        tmp_path,
        cgroup_D_controllers="memory pids\n",
        memory_D_max="max\n", memory_D_current="5\n", pids_D_max="40\n", pids_D_current="30\n",
        job__memory_D_max="1000\n", job__memory_D_current="900\n",
        job__memory_D_stat="anon 500\ninactive_file 200\nactive_file 50\n",
        job__pids_D_max="max\n", job__pids_D_current="3\n",
    )  # fmt: skip
    assert Cgroup(tmp_path).room("0::/job\n") == (350, 10)
    assert Cgroup(tmp_path / "none").room("0::/job\n") == (None, None)


def test_what_is_left_of_memory_and_tasks_in_version_1(tmp_path: Path) -> None:
    lay(
        tmp_path,
        memory__job__memory_D_limit_in_bytes="9000\n", memory__job__memory_D_usage_in_bytes="3000\n",
        memory__job__memory_D_stat="inactive_file 7\ntotal_inactive_file 20\ntotal_active_file 5\n",
        memory__memory_D_limit_in_bytes="9223372036854771712\n", memory__memory_D_usage_in_bytes="5\n",
        pids__pids_D_max="max\n", pids__job__pids_D_max="40\n", pids__job__pids_D_current="4\n",
    )  # fmt: skip
    assert Cgroup(tmp_path).room("3:memory:/job\n4:pids:/job\n") == (6025, 36)
