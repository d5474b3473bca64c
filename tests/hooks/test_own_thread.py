"""The hooks' thread: the program meets it in no list, no signal ends in it, and it is gone while the process forks."""

from __future__ import annotations

import sys

import pytest

from .conftest import Trainings


def test_the_program_waits_for_all_threads_but_ours(train: Trainings) -> None:
    told = train(
        """
        for _ in th.steps(range(3)): th.log(a=1)
        written()
        for thread in threading.enumerate():
            if thread is not threading.main_thread(): thread.join()
        while threading.active_count() > 1: sleep(0.01)
        print(threading.enumerate() == [threading.main_thread()])
        """
    )
    assert told.out == "True\n"


def test_a_thread_below_threading_is_recorded_and_stays_below(train: Trainings) -> None:
    told = train(
        """
        import _thread
        over = _thread.allocate_lock(); over.acquire()
        def work():
            for _ in th.steps(range(3)): th.log(a=1)
            over.release()
        _thread.start_new_thread(work, ())
        over.acquire(); written()
        print(threading.enumerate() == [threading.main_thread()])
        """
    )
    assert told.out == "True\n" and told.indices == [1, 2, 3]


def test_signals_that_the_program_waits_for_reach_it(train: Trainings) -> None:
    told = train(
        """
        import signal
        for _ in th.steps(range(3)): th.log(a=1)
        written()
        print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        waited = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
        signal.pthread_sigmask(signal.SIG_BLOCK, waited)
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM, signal.SIGCHLD, signal.SIGRTMIN):
            os.kill(os.getpid(), number); sleep(0.05)
            print(signal.sigtimedwait(waited, 5).si_signo == number)
        """
    )
    assert told.out.split() == ["set()", *["True"] * 5]


def test_the_stack_is_of_its_own_size(train: Trainings) -> None:
    told = train(
        """
        threading.stack_size(32768)
        for _ in th.steps(range(3)): th.log(a=1)
        written()
        print(threading.stack_size())
        """
    )
    assert told.out == "32768\n" and told.indices == [1, 2, 3]


def test_functions_that_trace_all_threads_see_little_of_it(train: Trainings) -> None:
    told = train(
        """
        seen = set()
        def look(frame, event, argument):
            if threading.get_ident() != main and 'trainhooks' in frame.f_code.co_filename: seen.add(frame.f_code)
        main = threading.get_ident()
        threading.settrace(look); threading.setprofile(look)
        for _ in th.steps(range(3)): th.log(a=1)
        if hasattr(threading, 'setprofile_all_threads'):
            threading.setprofile_all_threads(look); threading.settrace_all_threads(look)
        written()
        seen.clear()
        sleep(0.2)
        sys.settrace(None); sys.setprofile(None)
        print(seen)
        """
    )
    assert told.out == "set()\n"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads are counted in /proc")
def test_it_is_gone_while_the_process_forks_and_goes_on_after(train: Trainings) -> None:
    told = train(
        """
        from trainhooks import own_thread
        th.log(a=1); written()
        alone, pause = [], own_thread.before_fork
        def paused():
            pause(); alone.append(len(os.listdir('/proc/self/task')) == 1)
        own_thread.before_fork = paused
        for _ in th.steps(range(20)):
            if not (child := os.fork()): os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            sleep(0.001)
        written()
        print(sum(alone))
        """
    )
    assert int(told.out) >= 15, "within the time that a fork waits"
    assert told.indices == list(range(1, 21))


def test_what_a_signal_handler_raises_while_a_fork_waits_is_raised_after_it(train: Trainings) -> None:
    told = train(
        """
        import signal
        from trainhooks import own_thread
        class TimeIsUp(Exception): pass
        def handle(number, frame): raise TimeIsUp
        signal.signal(signal.SIGALRM, handle)
        th.log(a=1); written()
        count = own_thread._count_threads
        def interrupted():
            signal.raise_signal(signal.SIGALRM); return count()
        own_thread._count_threads = interrupted
        caught = []
        for n in th.steps(range(3)):
            try:
                if not (child := os.fork()): os._exit(0)
            except TimeIsUp: caught.append(n)
        own_thread._count_threads = count
        written()
        print(caught)
        """
    )
    assert told.out == "[0, 1, 2]\n" and told.indices == [1, 2, 3]


def test_the_program_s_finalizers_run_in_its_own_thread(train: Trainings) -> None:
    told = train(
        """
        import gc
        finalized = []
        class Cycle:
            def __init__(self): self.own = self
            def __del__(self): finalized.append(threading.get_ident())
        def work(count, pause):
            for _ in th.steps(range(count)):
                with th.phase('forward'): Cycle()
                th.log(loss=0.5, rate=1e-3)
                sleep(pause)
        work(20, 0.01); written()  # what it imports is there
        finalized.clear()
        work(5000, 0.0002); work(800, 0.005)
        print(len(finalized), sum(ident != threading.get_ident() for ident in finalized))
        """
    )
    finalized, elsewhere = map(int, told.out.split())
    assert finalized > 3000 and elsewhere <= finalized // 100
