"""What of the interpreter the hooks replace: nothing but what SECURITY.md lists."""

from __future__ import annotations

import sys

import pytest

from .conftest import ROOT, State

# Trains, and prints what in modules and classes of the standard library is code of the hooks.
SCAN = """
import argparse, builtins, code, concurrent.futures, faulthandler, gc, importlib, io, logging, multiprocessing, os, pdb
import pickle, queue, random, runpy, signal, socket, subprocess, sys, threading, time, types, unittest, warnings
before = {name: {**vars(sys.modules[name])} for name in ('sys', 'threading', 'warnings', 'signal', 'builtins')}
import torch
torch.set_num_threads(1)
net = torch.nn.Linear(2, 1); optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x in torch.utils.data.DataLoader(torch.ones(300, 2), batch_size=2):
    optimizer.zero_grad(); net(x).sum().backward(); optimizer.step()
time.sleep(0.5)

def is_ours(value):
    code = getattr(getattr(value, '__func__', value), '__code__', None)
    return 'trainhooks' in getattr(code, 'co_filename', '')

found = {f'sys.{name}' for name in vars(sys) if 'trainmon' in name}
found |= {f'sys.meta_path: {getattr(one, "__name__", type(one).__name__)}' for one in sys.meta_path
          if 'trainhooks' in (getattr(one, '__module__', None) or type(one).__module__)}
for name in sys.stdlib_module_names & sys.modules.keys():
    for key, value in vars(sys.modules[name]).items():
        if is_ours(value): found.add(f'{name}.{key}')
        if isinstance(value, type) and value.__module__ == name:
            found |= {f'{name}.{key}.{each}' for each, inner in vars(value).items() if is_ours(inner)}
print('\\n'.join(sorted(found)))
for name in ('threading', 'warnings', 'signal', 'builtins'):
    now = vars(sys.modules[name])
    print(name, [key for key in now if key in before[name] and callable(now[key]) and now[key] != before[name][key]])
"""

LISTED = [
    "argparse.ArgumentParser.parse_known_args",
    "os._exit", "os.execv", "os.execve",
    "subprocess.Popen.communicate", "subprocess.Popen.wait", "subprocess.TimeoutExpired.__init__",
    "sys.__excepthook__", "sys._trainmon_started", "sys.excepthook", "sys.meta_path: Home", "sys.meta_path: _Finder",
]  # fmt: skip


@pytest.mark.long
def test_only_what_is_listed_is_replaced(state: State) -> None:
    done = state.run(sys.executable, "-c", SCAN, timeout=240)
    *found, threads, warned, signals, builtins = done.stdout.decode().splitlines()
    assert [name for name in found if not name.startswith("posix.")] == LISTED, done.stderr
    assert [threads, warned, signals, builtins] == ["threading []", "warnings []", "signal []", "builtins []"]
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    for name in LISTED:
        assert f"`{name.partition(': ')[0]}`" in text, name
