"""What macOS lacks is asked for behind a guard. Nothing was run there: this is what the types of the library tell."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.versions.environments import ROOT

# Names that macOS has not, and what guards their use.
GUARDED = {
    ("monitor/running/isolation.py", "O_PATH"): "only in a namespace, which is Linux's",
    ("trainhooks/recording/facts.py", "sched_getaffinity"): "AttributeError is caught",
    ("monitor/running/inherited.py", "F_SETSIG"): "AttributeError is caught",
    ("monitor/running/stopping.py", "io_counters"): "AttributeError is suppressed",
    ("monitor/running/leaving.py", "pidfd_open"): "AttributeError is caught",
    ("monitor/running/output.py", "memfd_create"): "AttributeError is caught",
    ("monitor/running/supervise.py", "pidfd_open"): "AttributeError is caught",
    ("monitor/running/waiting.py", "pidfd_open"): "`leaving` has tried it",
    ("monitor/sources/process_tree.py", "io_counters"): "within `attempt`",
    ("monitor/sources/host.py", "steal"): "within `attempt`",
    ("monitor/running/launched_training.py", "waitid"): "behind `_subreaper`, which is Linux's",
}


@pytest.mark.long
@pytest.mark.timeout(300)
def test_no_call_of_linux_alone_is_unguarded() -> None:
    words = [sys.executable, "-m", "mypy", "--platform", "darwin", "--no-warn-unused-ignores", "--no-warn-return-any"]
    told = subprocess.run(words, cwd=ROOT, capture_output=True, text=True).stdout
    errors = [line for line in told.splitlines() if ": error: " in line]
    found = {(line.partition(":")[0], name[1]) for line in errors if (name := re.search(r'attribute "(\w+)"', line))}
    assert found == set(GUARDED), told
    assert len(errors) == sum('attribute "' in line for line in errors), told


# What the kernel of Linux alone has: the files below /proc and /sys are missing elsewhere.
WITHOUT_PROC = """
import builtins, os
def refused(name):
    return isinstance(name, (str, bytes, os.PathLike)) and os.fsdecode(name).startswith(("/proc", "/sys"))
real_open, real_list, real_link, real_os_open = builtins.open, os.listdir, os.readlink, os.open
def without(function):
    def call(name=".", *rest, **more):
        if refused(name):
            raise FileNotFoundError(2, "not on this system", os.fsdecode(name))
        return function(name, *rest, **more)
    return call
builtins.open, os.listdir, os.readlink, os.open = map(without, (real_open, real_list, real_link, real_os_open))
for name in ("sched_getaffinity", "waitid", "pidfd_open"):
    if hasattr(os, name):
        delattr(os, name)
"""
USE = """
import importlib, os, pkgutil, sys, time
import monitor, trainhooks
for package in (monitor, trainhooks):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if "__main__" not in module.name and "adapters." not in module.name:  # these need their frameworks
            importlib.import_module(module.name)
from pathlib import Path
from monitor.sources.amdgpu import AmdSource
from monitor.sources.host import HostSource
from trainhooks.protocol import process_identity, rundir
from trainhooks.recording import facts
host = HostSource(Path(sys.argv[1]))
reading = host.read([os.getpid()], time.monotonic())
sys.platform = "darwin"
print(AmdSource().read(0.0), process_identity.boot_id(), process_identity.start_ticks(os.getpid()))
print(process_identity.process_alive(os.getpid(), None, None), process_identity.process_alive(2**30, None, None))
"""


def test_every_module_is_imported_and_the_host_read_without_proc(tmp_path: Path) -> None:
    words = [sys.executable, "-c", WITHOUT_PROC + USE, str(tmp_path)]
    told = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert told.returncode == 0, told.stderr
    assert told.stdout.split() == ["[]", "None", "None", "True", "False"]
