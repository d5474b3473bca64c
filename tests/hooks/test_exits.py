"""Every way out of a program: what was said is in the journal, and the exit is the program's own."""

from __future__ import annotations

import signal
import socket

import pytest

from trainhooks.protocol import rundir

from .conftest import Told, Trainings, lines_of, wait_for

WORK = "for _ in th.steps(range(5)): th.log(loss=1.5)\nwritten()\n"


@pytest.mark.parametrize(
    ("last", "code", "bye", "error"),
    [
        ("", 0, True, None),
        ("sys.exit(3)", 3, True, None),
        ("raise SystemExit('words')", 1, True, None),
        ("raise RuntimeError('it broke')", 1, True, "RuntimeError: it broke"),
        ("raise KeyboardInterrupt", -signal.SIGINT, True, "KeyboardInterrupt: "),
        ("os._exit(7)", 7, True, None),
        ("try: 1 / 0\nexcept Exception: os._exit(1)", 1, True, "ZeroDivisionError: division by zero"),
        ("os.kill(os.getpid(), 15)", -signal.SIGTERM, False, None),
        ("os.kill(os.getpid(), 9)", -signal.SIGKILL, False, None),
        ("os.abort()", -signal.SIGABRT, False, None),
    ],
)
def test_every_exit_keeps_all_steps_and_its_error(
    train: Trainings, last: str, code: int, bye: bool, error: str | None
) -> None:
    told = train(WORK + last, code=code, quiet=code == 0)
    assert told.out == ""
    assert "trainhooks" not in told.err
    assert told.indices == [1, 2, 3, 4, 5]
    assert [event.get("error") for event in told.kind("bye")] == ([error and error.strip()] if bye else [])


def test_entries_of_the_last_moment_are_written_on_an_orderly_exit(train: Trainings) -> None:
    """Nothing waits for the background thread's next turn."""
    told = train("for i in th.steps(range(50)): th.log(i=i)\nth.note('last words')")
    assert told.indices == list(range(1, 51))
    assert told.kind("note")[0]["text"] == "last words"
    assert told.events[-1]["kind"] == "bye"


def test_a_killed_training_keeps_its_steps_and_is_lost(train: Trainings) -> None:
    process = train.start(WORK + "with th.step(), th.phase('generation'): sleep(60)")
    told = Told(train.state)
    wait_for(lambda: told.journals and b'"phase":"generation"' in told.journals[0].read_bytes())
    process.kill()
    process.wait()
    assert told.indices == [1, 2, 3, 4, 5]
    assert told.report.outcome.state == "lost"  # nobody was there to see how it ended


def test_signal_handlers_stay_the_user_s(train: Trainings) -> None:
    told = train(
        """
        import signal
        before = [signal.getsignal(number) for number in range(1, 65) if number not in (32, 33)]
        signal.signal(signal.SIGTERM, lambda *_: print('mine') or sys.exit(5))
        with th.step(): th.log(a=1)
        sleep(0.2)
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        after = [signal.getsignal(number) for number in range(1, 65) if number not in (32, 33)]
        print(sum(a is not b and a != b for a, b in zip(before, after)))
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGTERM)
        """,
        code=5,
    )
    assert told.out == "1\nmine\n"
    assert told.kind("bye")


def test_an_import_alone_leaves_nothing_behind(train: Trainings) -> None:
    train("print('done')")
    assert not train.state.exists()


def test_calls_in_exit_handlers_do_no_harm(train: Trainings) -> None:
    told = train("import atexit\natexit.register(th.log, a=1)\natexit.register(print, 'bye')\nwith th.step(): pass")
    assert told.out == "bye\n"
    assert told.indices == [1]


def test_the_exit_does_not_wait_for_a_recorder_that_does_not_read(train: Trainings) -> None:
    """One that was stopped: its inbox is full at once, and neither the training nor its end may wait."""
    process = train.start(
        """
        th.note('up')
        while not os.path.exists('go'): sleep(0.01)
        for i in th.steps(range(2000)): th.note('x' * 4000)
        """
    )
    told = Told(train.state)
    wait_for(lambda: told.journals and lines_of(told.journals[0]))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as inbox:
        inbox.bind(str(rundir.inbox_path(told.run)))
        inbox.settimeout(30)
        assert inbox.recv(1 << 20) in told.journals[0].read_bytes()  # it is found within some seconds
        (train.work / "go").touch()
        assert process.wait(timeout=30) == 0
        rundir.inbox_path(told.run).unlink()
    assert told.indices == list(range(1, 2001))
    assert len(told.kind("note")) == 2001 and told.kind("bye")


@pytest.mark.long
def test_the_exit_waits_for_a_slow_disk_that_makes_progress(train: Trainings) -> None:
    """What a flood left takes longer than the wait for a disk that stalls; it is written nevertheless."""
    told = train(
        """
        from trainhooks.recording.background_writer import BackgroundWriter
        write = BackgroundWriter._write
        BackgroundWriter._write = lambda self: (sleep(0.4), write(self))
        for _ in th.steps(range(20_000)): pass
        """
    )
    assert told.indices == list(range(1, 20_001))
    assert told.kind("bye")
