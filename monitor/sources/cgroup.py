"""The limits of the training's control group, version 1 or 2. No limit and "cannot be told" are both None."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from monitor.sources.attempts import attempt, text_of
from monitor.sources.rates import Rate
from trainhooks.events import MAX_INTEGER

ROOT = Path("/sys/fs/cgroup")


@dataclass
class Limits:
    """What a control group allows, and how much of it is used."""

    cpus: float | None = None
    throttled: float | None = None  # share of the time since the last reading
    memory: int | None = None
    memory_used: int | None = None


class Cgroup:
    """The limits that hold for one process."""

    def __init__(self, root: Path = ROOT) -> None:
        # Texts, no paths: the table in which Python keeps the parts of paths grows with how often one is made.
        self._root = str(root)
        self._throttled = Rate()

    def read(self, pid: int, now: float, membership: str | None = None) -> Limits:
        """
        Args:
            membership: the content of /proc/PID/cgroup, where it is known already.
        """
        rows = membership if membership is not None else text_of(f"/proc/{pid}/cgroup") or ""
        groups = _groups(rows)
        limits = Limits()
        if os.path.exists(f"{self._root}/cgroup.controllers"):
            self._read_unified(self._root, groups.get("", "/"), limits, now)
        else:
            self._read_separate(groups, limits, now)
        return limits

    def _read_unified(self, mount: str, group: str, limits: Limits, now: float) -> None:
        """Version 2: one tree for everything. The narrowest limit of a group and those above it holds."""
        throttled = None
        for directory in _upwards(mount, group):
            quota, _, period = (text_of(f"{directory}/cpu.max") or "").partition(" ")
            cpus = attempt(lambda quota=quota, period=period: int(quota) / int(period))  # type: ignore[misc]
            if cpus is not None and int(period) > 0 < cpus and (limits.cpus is None or cpus < limits.cpus):
                limits.cpus = cpus
                throttled = _row(f"{directory}/cpu.stat", "throttled_usec")
            _take_memory(limits, f"{directory}/memory.max", f"{directory}/memory.current")
        limits.throttled = _share(self._throttled(None if throttled is None else throttled / 1e6, now))

    def _read_separate(self, groups: dict[str, str], limits: Limits, now: float) -> None:
        """Version 1: a tree for each resource."""
        throttled = None
        for directory in _upwards(self._mount("cpu", "cpu,cpuacct"), groups.get("cpu", "/")):
            quota, period = (_whole(f"{directory}/cpu.cfs_{name}_us") for name in ("quota", "period"))
            if quota is None or period is None or quota <= 0 or period <= 0:
                continue
            if limits.cpus is None or quota / period < limits.cpus:
                limits.cpus = quota / period
                throttled = _row(f"{directory}/cpu.stat", "throttled_time")
        limits.throttled = _share(self._throttled(None if throttled is None else throttled / 1e9, now))
        for directory in _upwards(self._mount("memory"), groups.get("memory", "/")):
            _take_memory(limits, f"{directory}/memory.limit_in_bytes", f"{directory}/memory.usage_in_bytes")

    def _mount(self, *names: str) -> str:
        places = [f"{self._root}/{name}" for name in names]
        return next(filter(os.path.isdir, places), places[0])


def _groups(rows: str) -> dict[str, str]:
    """The path of a process's group by controller; version 2 has the empty name."""
    found = {}
    for row in rows.splitlines():
        _, _, rest = row.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            found[controller] = path.strip()
    return found


def _upwards(mount: str, group: str) -> Iterator[str]:
    """The directories of a group and of those above it. In a container its own group is the mount itself."""
    parts = [part for part in group.split("/") if part]
    if ".." in parts or not os.path.isdir("/".join([mount, *parts])):
        parts = []
    for depth in range(len(parts), -1, -1):
        yield "/".join([mount, *parts[:depth]])


def _take_memory(limits: Limits, limit_file: str, used_file: str) -> None:
    limit = _whole(limit_file)
    if limit is None or not 0 < limit < MAX_INTEGER:  # "max", or the huge number that stands for it in version 1
        return
    if limits.memory is None or limit < limits.memory:
        limits.memory, limits.memory_used = limit, _whole(used_file)


def _whole(path: str) -> int | None:
    text = text_of(path)
    return None if text is None else attempt(lambda: int(text))


def _row(path: str, name: str) -> int | None:
    for row in (text_of(path) or "").splitlines():
        key, _, value = row.partition(" ")
        if key == name:
            return attempt(lambda value=value: int(value))  # type: ignore[misc]
    return None


def _share(rate: float | None) -> float | None:
    return None if rate is None or not math.isfinite(rate) else min(rate, 1.0)
