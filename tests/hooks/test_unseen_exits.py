"""Ways out that no exit handler sees: `os._exit`, an exec, a kill. What can be written before is written."""

from __future__ import annotations

import signal
import time

import pytest

from monitor.reports.run_text import summary
from trainhooks.session import MAX_PART_SECONDS

from .conftest import Told, Trainings

LAST = """
with th.step(): th.log(loss=1.5)
written()
for last in range(3):
    with th.step(): th.log(last=last)
"""
EXECS = [
    "os.execv('/bin/sh', ['sh', '-c', 'echo then'])",
    "os.execve('/bin/sh', ['sh', '-c', 'echo then'], os.environ)",
    "os.execlp('sh', 'sh', '-c', 'echo then')",
    "os.execvpe('sh', ['sh', '-c', 'echo then'], os.environ)",
]
EXITS = [
    "os._exit(0)",
    "import posix; posix._exit(0)",
    "threading.Thread(target=os._exit, args=(0,)).start(); sleep(60)",
    "import signal; signal.signal(signal.SIGALRM, lambda *_: os._exit(0)); signal.alarm(1); sleep(60)",
]


def cut_off(told: Told) -> list[str]:
    return [text for label, text in summary(told.report) if label == "Cut off"]


@pytest.mark.parametrize("way", [*EXITS, *EXECS])
def test_the_last_moment_is_written(train: Trainings, way: str) -> None:
    told = train(LAST + way)
    assert told.out == ("then\n" if "exec" in way else "")
    assert told.indices == [1, 2, 3, 4]
    assert told.steps[-1]["metrics"] == {"last": 2}
    assert told.events[-1]["kind"] == "bye" and told.report.dropped.broken_off == 0
    assert cut_off(told) == []


def test_a_function_imported_before_is_the_same(train: Trainings) -> None:
    told = train("from os import _exit as leave\n_exit = leave\n" + LAST + "_exit(0)")
    assert told.indices == [1, 2, 3, 4] and told.kind("bye")


def test_the_head_says_that_the_end_was_cut_off(train: Trainings) -> None:
    told = train(LAST + "os.kill(os.getpid(), 9)", code=-signal.SIGKILL)
    assert told.indices[:1] == [1]
    (text,) = cut_off(told)
    assert text.startswith("1 process ended without a last word")


def test_a_call_that_fails_changes_nothing(train: Trainings) -> None:
    """The program goes on, and so does the recording."""
    told = train(
        LAST
        + """
        calls = [(os.execv, ('/nowhere', ['x'])), (os.execvp, ('nowhere', ['x']))]
        calls += [(os._exit, ('words',)), (os._exit, ())]
        for call, given in calls:
            try: call(*given)
            except (OSError, TypeError) as error: print(type(error).__name__)
        written()
        broken = os.path.join(os.getcwd(), 'broken')  # no program, and the system sees that only when it starts it
        open(broken, 'w').write('no program')
        os.chmod(broken, 0o755)
        try: os.execv(broken, ['x'])
        except OSError as error: print(error.strerror)
        with th.step(): th.log(last=3)
        """.replace("\n        ", "\n")
    )
    assert told.out == "FileNotFoundError\nFileNotFoundError\nTypeError\nTypeError\nExec format error\n"
    assert told.indices == [1, 2, 3, 4, 5]
    assert told.events[-1]["kind"] == "bye"


def test_children_leave_as_quickly_as_without(train: Trainings) -> None:
    """What is forked does not record: nothing is waited for, and the parent's journal stays its own."""
    told = train(
        LAST
        + """
import multiprocessing
before = time.perf_counter()
for _ in range(20):
    if not (pid := os.fork()): os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
print(time.perf_counter() - before)
worker = multiprocessing.get_context('fork').Process(target=print, args=('child',))
worker.start()
worker.join()
"""
    )
    seconds, child = told.out.split()
    assert child == "child"
    assert float(seconds) < 20 * MAX_PART_SECONDS / 2, "none waits"
    assert told.indices == [1, 2, 3, 4] and len(told.journals) == 1


def test_a_disk_that_hangs_delays_the_exit_by_a_fraction_of_a_second(train: Trainings) -> None:
    told = train(
        """
        from trainhooks.recording.background_writer import BackgroundWriter
        with th.step(): th.log(loss=1.5)
        written()
        BackgroundWriter._write = lambda self: sleep(60)
        with th.step(): pass
        sleep(0.2)
        print(time.time(), flush=True)
        os._exit(0)
        """
    )
    assert time.time() - float(told.out) < MAX_PART_SECONDS + 5, "the machine may be busy, but 60 s are not waited for"
    assert len(cut_off(told)) == 1


def test_what_was_replaced_is_saved_copied_and_inspected_as_before(train: Trainings) -> None:
    told = train(
        LAST
        + """
import copy, inspect, pickle, posix, subprocess
for name in ('_exit', 'execv', 'execve'):
    function = getattr(os, name)
    assert function is getattr(posix, name) and (function.__module__, function.__qualname__) == ('posix', name)
    assert copy.copy(function) is copy.deepcopy(function) is pickle.loads(pickle.dumps(function)) is function
    code = 'import inspect, os; f = os.' + name + '; print(inspect.signature(f), f.__doc__)'
    alone = [sys.executable, '-I', '-c', code]
    bare = subprocess.run(alone, capture_output=True, text=True).stdout
    assert bare == str(inspect.signature(function)) + ' ' + function.__doc__ + chr(10), bare
with open('saved', 'wb') as file: pickle.dump([os._exit, os.execv], file)
code = 'import os, pickle; assert pickle.load(open("saved", "rb")) == [os._exit, os.execv]'
subprocess.run([sys.executable, '-I', '-c', code], check=True)
"""
    )
    assert told.indices == [1, 2, 3, 4]
