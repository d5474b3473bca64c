"""Exceptions that come from outside while our code runs reach the program, once, and the recording goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainhooks.program_errors import DEBUG_VARIABLE, FAILED, is_programs

from .watched import SCRIPTS, long, watched


@pytest.mark.long
@pytest.mark.parametrize(
    "what, stride, kind",
    [("steady", 1, "own"), ("anew", 41, "builtin"), long("steady", 1, "base"), long("anew", 3, "own")],
)
def test_one_is_raised_at_each_place(what: str, stride: int, kind: str, tmp_path: Path) -> None:
    seen = watched(tmp_path, str(SCRIPTS / "interrupted.py"), what, str(stride), kind)
    assert seen.code == 0, seen.err
    raised, caught, whole = map(int, seen.out.split())
    assert raised == caught > 10
    # What follows an optimizer that is gone as soon as it was made can take one step to tell.
    assert whole - raised - 3 <= len(seen.steps()) <= whole + raised
    assert not [note for note in seen.events("note") if note.get("code") == FAILED]


@pytest.mark.parametrize("what, stride", [("steady", 3), long("steady", 1), long("anew", 7)])
def test_an_error_of_ours_at_each_place_reaches_nobody(what: str, stride: int, tmp_path: Path) -> None:
    seen = watched(tmp_path, str(SCRIPTS / "interrupted.py"), what, str(stride), "ours", env={DEBUG_VARIABLE: ""})
    assert seen.code == 0, seen.err
    raised, caught, _ = map(int, seen.out.split())
    assert raised > 5 and caught == 0
    assert any(note.get("code") == FAILED for note in seen.events("note"))


ASYNCHRONOUS = """
import ctypes, threading, time, torch
from torch import nn
torch.set_num_threads(1)
class Stop(Exception): pass
main, caught, sent, steps = threading.get_ident(), 0, 0, 0
def stop():
    global sent
    while sent < 300:
        time.sleep(0.002); asked.wait(); asked.clear(); sent += 1
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main), ctypes.py_object(Stop))
asked = threading.Event()
def train(count):
    global steps
    for _ in range(count): model(torch.ones(2, 4)).sum().backward(); optimizer.step(); optimizer.zero_grad(); steps += 1
model = nn.Linear(4, 1); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train(20); time.sleep(0.3)  # before Python 3.12 one that is sent while a thread starts may be raised in that one
thread = threading.Thread(target=stop); thread.start()
while caught < 300:
    try:
        try:
            model = nn.Linear(4, 1); optimizer = torch.optim.SGD(model.parameters(), lr=0.1); asked.set()
            while True: train(1)
        except Stop: caught += 1
    except Stop: caught += 1
thread.join()
train(50)
print(caught, sent, steps)
"""


@pytest.mark.long
def test_each_exception_of_another_thread_comes(tmp_path: Path) -> None:
    """Where one got lost the program would wait for ever."""
    (tmp_path / "train.py").write_text(ASYNCHRONOUS)
    seen = watched(tmp_path, str(tmp_path / "train.py"))
    assert seen.code == 0, seen.err
    caught, sent, steps = map(int, seen.out.split())
    assert caught == sent == 300
    assert steps - 2 * caught <= len(seen.steps()) <= steps + 2 * caught


# An alarm at some moment in which models and optimizers are made and go: where nothing gets lost, each is caught.
ALARMS = """
import random, signal, sys, torch
from torch import nn
torch.set_num_threads(1)
class Stop(Exception): pass
raised = caught = 0
def handler(number, frame):
    global raised
    raised += 1; raise Stop
def make():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2, 4)).sum().backward(); optimizer.step(); optimizer.zero_grad()
random.seed(1); signal.signal(signal.SIGALRM, handler)
for _ in range(20): make()
for _ in range(1500):
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0001 + random.random() * 0.004)
            for _ in range(3): make()
        finally: signal.setitimer(signal.ITIMER_REAL, 0)
    except Stop: caught += 1; torch.set_grad_enabled(True)
print(raised, caught)
"""


@pytest.mark.long
def test_what_is_raised_while_a_model_goes_is_not_lost(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ALARMS)
    seen = watched(tmp_path, str(tmp_path / "train.py"))
    assert (seen.code, seen.err) == (0, "")
    raised, caught = map(int, seen.out.split())
    assert raised == caught > 300


CALLBACKS = """
import gc, sys, types, weakref, torch
from torch import nn
torch.set_num_threads(1)
for _ in range(12):
    model = nn.Sequential(nn.Embedding(8, 4), nn.Linear(4, 4), nn.Linear(4, 1)); twin = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6): model(torch.ones(2, dtype=int)).sum().backward(); optimizer.step(); optimizer.zero_grad()
refs = [one for one in gc.get_objects() if type(one) is weakref.ref and one.__callback__ is not None]
names = [one.__callback__.__code__.co_name for one in refs
    if isinstance(one.__callback__, types.FunctionType) and '/trainhooks/' in one.__callback__.__code__.co_filename]
print(names, len([one for one in refs if type(one.__callback__).__name__ == 'partial']) > 0)
"""


@pytest.mark.long
def test_no_python_runs_as_something_of_the_program_goes(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CALLBACKS)
    seen = watched(tmp_path, str(tmp_path / "train.py"))
    assert (seen.code, seen.out, seen.err) == (0, "[] True\n", "")


def raised_by(call: object) -> bool:
    try:
        call()  # type: ignore[operator]
    except Exception as error:
        return is_programs(error)
    raise AssertionError("it does not raise")


class Late(Exception):
    pass


def test_a_handler_is_known_by_what_it_was_given_though_it_is_installed_no_more() -> None:
    import signal

    def handler(number: int, frame: object) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        raise Late("with a text")

    class Bound:
        def handler(self, *given: object) -> None:
            raise ValueError("with a text")

    for each in (handler, Bound().handler):
        signal.signal(signal.SIGALRM, each)
        assert raised_by(lambda: signal.raise_signal(signal.SIGALRM))


def test_errors_of_foreign_objects_are_no_interruptions() -> None:
    class Odd:
        def __len__(self) -> int:
            raise Late

        def __getattr__(self, name: str) -> object:
            raise AttributeError

    for call in (
        lambda: len(Odd()),
        lambda: Odd().any,
        lambda: next(iter(())),
        lambda: {}["no"],
        lambda: int("x"),
        lambda: Odd() + 1,
        lambda: (_ for _ in ()).throw(KeyError("it")),
    ):
        assert not raised_by(call)


FAILING = """
import torch
from torch import nn
torch.set_num_threads(1)
model = nn.Linear(4, 1); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(60):
    if step == 30:
        from trainhooks.auto.steps.step_loss import StepLoss
        StepLoss.of_step = None  # a mistake of ours
    model(torch.ones(2, 4)).sum().backward(); optimizer.step(); optimizer.zero_grad()
"""


@pytest.mark.long
def test_an_error_of_ours_ends_a_part_and_the_report_says_so(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FAILING)
    seen = watched(tmp_path, str(tmp_path / "train.py"), env={DEBUG_VARIABLE: ""})
    assert (seen.code, seen.out, seen.err) == (0, "", "")
    (note,) = [note for note in seen.events("note") if note.get("code") == FAILED]
    assert "no steps from here on" in note["text"] and "TypeError" in note["text"]
    assert 20 <= len(seen.steps()) <= 30
    assert any(alert.code == FAILED for alert in seen.report.alerts)
