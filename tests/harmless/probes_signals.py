"""Signals: dispositions, masks, timers, descriptors that tell of them, and what a caller sends."""

from __future__ import annotations

from functools import partial

from tests.harmless.probe import bash, caller, compiled, python

_signal = partial(python, "signal")

PROBES = (
    _signal(
        "sigwait takes a blocked signal",
        """
        import os, signal
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM})
        os.kill(os.getpid(), signal.SIGTERM)
        print(signal.sigpending(), signal.sigwait({signal.SIGUSR1, signal.SIGTERM}))
        """,
    ),
    _signal(
        "sigtimedwait runs out of time",
        """
        import signal
        print(signal.sigtimedwait({signal.SIGUSR2}, 0.05), signal.sigpending())
        """,
    ),
    _signal(
        "a wakeup descriptor gets the numbers",
        """
        import os, signal, socket
        a, b = socket.socketpair()
        b.setblocking(False)
        print(signal.set_wakeup_fd(b.fileno()))
        signal.signal(signal.SIGUSR1, lambda *_: print('handled'))
        os.kill(os.getpid(), signal.SIGUSR1)
        print(list(a.recv(9)), signal.set_wakeup_fd(-1) == b.fileno())
        """,
    ),
    _signal(
        "SIGCHLD handler counts children",
        """
        import os, signal, time
        seen = []
        signal.signal(signal.SIGCHLD, lambda *_: seen.append(os.waitpid(-1, os.WNOHANG)[1]))
        for code in (3, 4):
            if not os.fork(): os._exit(code)
            while len(seen) < code - 2: time.sleep(0.01)
        time.sleep(0.3)
        print([s >> 8 for s in seen])
        """,
    ),
    _signal(
        "an alarm during an import",
        """
        import signal
        signal.signal(signal.SIGALRM, lambda *_: print('alarm', flush=True))
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        import slow
        print(slow.x)
        """,
        files={"slow.py": "import time\nuntil = time.time() + 0.3\nwhile time.time() < until: pass\nx = 4\n"},
    ),
    _signal(
        "a handler raises within the import of a large library",
        """
        import signal
        def late(*_): raise TimeoutError('too slow')
        signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        try: import pandas
        except TimeoutError as e: print('caught', e)
        import sys; print('pandas' in sys.modules)
        """,
        files={"pandas.py": "import time\ntime.sleep(1)\n"},
    ),
    _signal(
        "profiling and virtual timers",
        """
        import signal
        seen = []
        signal.signal(signal.SIGPROF, lambda *_: seen.append('prof'))
        signal.signal(signal.SIGVTALRM, lambda *_: seen.append('virtual'))
        print(signal.getitimer(signal.ITIMER_PROF), signal.getitimer(signal.ITIMER_REAL))
        signal.setitimer(signal.ITIMER_PROF, 0.05); signal.setitimer(signal.ITIMER_VIRTUAL, 0.05)
        while len(seen) < 2: pass
        print(sorted(seen))
        """,
    ),
    _signal(
        "EINTR ends a read where no restart is asked for",
        """
        import ctypes, os, signal, threading, time
        libc = ctypes.CDLL(None, use_errno=True)
        signal.signal(signal.SIGUSR1, lambda *_: None)
        signal.siginterrupt(signal.SIGUSR1, True)
        r, w = os.pipe()
        threading.Timer(0.2, lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)).start()
        print(libc.read(r, ctypes.create_string_buffer(4), 4), os.strerror(ctypes.get_errno()))
        """,
    ),
    _signal(
        "SIGINT becomes KeyboardInterrupt",
        """
        import os, signal, time
        try:
            os.kill(os.getpid(), signal.SIGINT); time.sleep(2)
        except KeyboardInterrupt: print('interrupted')
        raise KeyboardInterrupt('again')
        """,
    ),
    _signal(
        "SIGINT that was ignored stays so",
        "import os, signal; print(signal.getsignal(2)); os.kill(os.getpid(), 2); print('on')",
        setup="trap '' INT",
    ),
    _signal(
        "SIGTERM and the user signals that were ignored",
        "import signal; print([signal.getsignal(n) for n in (10, 12, 15)])",
        setup="trap '' TERM USR1 USR2",
    ),
    compiled(
        "signal",
        "SIGCHLD that was ignored",
        """
        #include <signal.h>
        #include <stdio.h>
        int main(void) { struct sigaction a; sigaction(SIGCHLD, 0, &a); printf("%d\\n", a.sa_handler == SIG_IGN); }
        """,
        setup="""trap "" CHLD; exec perl -e '$SIG{CHLD} = "IGNORE"; exec @ARGV' "$@" """,
    ),
    compiled(
        "signal",
        "every disposition and the mask at a C program's start",
        """
        #include <signal.h>
        #include <stdio.h>
        int main(void) {
            sigset_t m; sigprocmask(SIG_BLOCK, 0, &m);
            for (int n = 1; n < 65; n++) { struct sigaction a = {0}; if (sigaction(n, 0, &a)) continue;
                printf("%d %d %d\\n", n, a.sa_handler == SIG_IGN, sigismember(&m, n)); } }
        """,
    ),
    _signal(
        "an alarm that was set before the start",
        "import signal, time\nprint(signal.getitimer(0)[0] > 0, flush=True); time.sleep(60); print('not stopped')",
        setup="""exec perl -e 'alarm 9; exec @ARGV' "$@" """,
    ),
    _signal(
        "signals that were blocked",
        "import signal; print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))",
        setup="""exec perl -e 'use POSIX; sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGUSR1, SIGALRM, SIGTERM, """
        """SIGCHLD)); exec @ARGV' "$@" """,
    ),
    _signal(
        "raise_signal in a thread reaches the main thread's handler",
        """
        import signal, threading
        signal.signal(signal.SIGUSR2, lambda *_: print(threading.current_thread().name))
        t = threading.Thread(target=signal.raise_signal, args=(signal.SIGUSR2,)); t.start(); t.join()
        """,
    ),
    _signal(
        "an error in a handler has the usual traceback",
        """
        import os, signal
        def handler(number, frame): raise ValueError(number)
        signal.signal(signal.SIGUSR1, handler)
        os.kill(os.getpid(), signal.SIGUSR1)
        """,
    ),
    _signal(
        "faulthandler.register writes the stack",
        """
        import faulthandler, os, signal
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        def step(): os.kill(os.getpid(), signal.SIGUSR1)
        step()
        """,
        masked=lambda out: b"\n".join(line for line in out.splitlines() if b"hread 0x" not in line),
    ),
    bash(
        "signal",
        "a shell's traps for EXIT, ERR, DEBUG and CHLD",
        """
        set -m; trap 'echo exit' EXIT; trap 'echo err' ERR; trap 'echo child' CHLD
        false; sleep 0.1 & wait
        """,
    ),
    *(
        caller(
            "signal",
            f"a caller's SIG{name} reaches the program",
            f"""
            "$@" & pid=$!
            while [ ! -e ready ]; do sleep 0.05; done
            kill -{name} $pid; wait $pid; echo code $?
            """,
            f"""
            import signal, sys, time
            def handler(number, frame): print('handled', number); sys.exit(9)
            signal.signal(signal.SIG{name}, handler)
            open('ready', 'w').close()
            time.sleep(2.5); print('never')
            """,
        )
        for name in ("ALRM", "ABRT", "XCPU", "VTALRM", "PWR", "RTMIN", "IO")
    ),
    caller(
        "signal",
        "a caller's SIGHUP ends a program without a handler",
        """
        "$@" & pid=$!
        while [ ! -e ready ]; do sleep 0.05; done
        kill -HUP $pid; wait $pid 2>/dev/null; echo code $?
        """,
        "import time; open('ready', 'w').close(); time.sleep(2.5); print('never')",
    ),
    caller(
        "signal",
        "a caller's three signals in a row",
        """
        "$@" & pid=$!
        while [ ! -e ready ]; do sleep 0.05; done
        kill -USR1 $pid; sleep 0.6; kill -USR2 $pid; sleep 0.6; kill -TERM $pid; wait $pid; echo code $?
        """,
        """
        import signal, sys, time
        for number in (signal.SIGUSR1, signal.SIGUSR2): signal.signal(number, lambda n, _: print(n, flush=True))
        signal.signal(signal.SIGTERM, lambda *_: sys.exit('saved'))
        open('ready', 'w').close()
        while True: time.sleep(0.05)
        """,
    ),
    caller(
        "signal",
        "timeout -s USR1 -k around it",
        'timeout -s USR1 -k 2 1 "$@"; echo code $?',
        """
        import signal, sys, time
        signal.signal(signal.SIGUSR1, lambda *_: sys.exit(33))
        time.sleep(2.5); print('never')
        """,
    ),
)
