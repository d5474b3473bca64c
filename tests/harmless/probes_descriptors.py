"""Descriptors: what is inherited and how, standard streams that are closed, doubled or opened by a path."""

from __future__ import annotations

from functools import partial

from tests.harmless.probe import bash, caller, python

_descriptor = partial(python, "descriptor")
_bash = partial(bash, "descriptor")

LISTED = """
import os, stat
for n in range(12):
    try: s = os.fstat(n)
    except OSError: print(n, 'closed'); continue
    print(n, 'open' if n in (1, 2) else stat.filemode(s.st_mode), os.get_inheritable(n))
"""

PROBES = (
    _descriptor("nine descriptors of several kinds", LISTED, setup="exec 3</dev/null 5>five 7<>seven 9<."),
    _descriptor(
        "stdin is a file that was read in part",
        "print(input())",
        setup="exec <numbers; read first",
        files={"numbers": "1\n2\n3\n"},
    ),
    _descriptor(
        "stdin is /dev/null",
        "import os, sys; print(sys.stdin.read(), os.readlink('/proc/self/fd/0'))",
        setup="exec </dev/null",
    ),
    _descriptor(
        "stdin and descriptor 3 share an offset",
        "import os; os.lseek(3, 4, 0); print(os.read(0, 3))",
        setup="exec <numbers 3<&0",
        files={"numbers": "012345678"},
    ),
    _descriptor(
        "stdin that does not block",
        """
        import fcntl, os
        print(os.get_blocking(0)); os.set_blocking(0, False)
        try: print(os.read(0, 9), os.read(0, 9))
        except BlockingIOError as e: print(e)
        """,
        stdin=b"abc",
    ),
    _descriptor(
        "flags of descriptors",
        """
        import fcntl, os
        print([fcntl.fcntl(n, fcntl.F_GETFD) for n in range(3)], fcntl.fcntl(0, fcntl.F_GETFL) & 3)
        print([fcntl.fcntl(n, fcntl.F_GETFL) & (os.O_NONBLOCK | os.O_ASYNC | os.O_SYNC) for n in range(3)])
        """,
    ),
    _descriptor(
        "the lowest free descriptor",
        "import os; print(os.dup(0), os.open('.', 0), os.pipe(), open('x', 'w').fileno())",
    ),
    _descriptor(
        "a pipe handed over ends with the program's close",
        """
        import os, time
        os.close(7); time.sleep(0.3)
        print(os.read(6, 9))
        """,
        setup="mkfifo f; exec 6<>f; exec 7>f; exec 6<&-; exec 6<f",
    ),
    _descriptor(
        "a lock by flock is free once its descriptor is closed",
        """
        import fcntl, os, time
        os.close(9)
        for _ in range(50):  # trainmon's copies are closed some milliseconds after the start
            with open('lock') as f:
                try: fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB); print('free'); break
                except BlockingIOError: time.sleep(0.02)
        """,
        setup="exec 9>lock; flock 9",
        needs=("flock",),
    ),
    _descriptor(
        "a lock by flock is held while the program runs",
        "import subprocess; print(subprocess.run(['flock', '-n', 'lock', 'true']).returncode)",
        setup="exec 9>lock; flock 9",
        needs=("flock",),
    ),
    _descriptor(
        "stdout closed before the start",
        "import sys; print(sys.stdout); open('seen', 'w').write(str(sys.stdout))",
        setup="exec >&-",
    ),
    _descriptor(
        "stderr closed before the start",
        "import sys; print(sys.stderr); print('x', file=sys.stderr)",
        setup="exec 2>&-",
    ),
    _descriptor(
        "all three closed before the start",
        "import os, sys; open('seen', 'w').write(str((sys.stdin, sys.stdout, sys.stderr)))",
        setup="exec <&- >&- 2>&-",
    ),
    _descriptor(
        "a socket opens as the first where all three are closed",
        "import os; n = os.open('first', os.O_WRONLY | os.O_CREAT); os.write(n, b'%d' % n)",
        setup="exec <&- >&- 2>&-",
    ),
    _bash(
        "bash sees which of its streams are closed",
        "for n in 0 1 2; do [ -e /proc/$$/fd/$n ] && echo $n; done >seen",
        setup="exec <&- 2>&-",
    ),
    _descriptor(
        "dup2 swaps the streams",
        """
        import os
        kept = os.dup(1); os.dup2(2, 1); os.dup2(kept, 2)
        os.write(1, b'to stderr\\n'); os.write(2, b'to stdout\\n')
        """,
    ),
    _bash("exec swaps the streams back and forth", "exec 3>&1 1>&2 2>&3; echo err; echo out >&2; exec 3>&-"),
    _descriptor(
        "stdout goes to a file for a while",
        """
        import os
        print('one', flush=True)
        kept = os.dup(1)
        with open('part', 'w') as f: os.dup2(f.fileno(), 1); print('two', flush=True)
        os.dup2(kept, 1); print('three')
        """,
    ),
    _bash(
        "/dev/stdout opened for appending", "echo one; echo two >>/dev/stdout; echo three >>/proc/self/fd/1; echo four"
    ),
    _bash("tee -a to /dev/stderr", "echo loss | tee -a /dev/stderr; echo end >&2"),
    _bash(
        "stdin through /dev/stdin and /proc/self/fd/0",
        "cat /dev/stdin; echo -; wc -c </proc/self/fd/0",
        stdin=b"a\nb\n",
    ),
    _descriptor(
        "poll and select say that stdout can be written",
        """
        import select
        p = select.poll(); p.register(1, select.POLLOUT); p.register(2, select.POLLOUT)
        print(p.poll(500), select.select([], [1, 2], [], 0.5))
        """,
    ),
    _descriptor(
        "poll of stdin at its end",
        """
        import os, select
        print(select.select([0], [], [], 1)[0], os.read(0, 99), select.select([0], [], [], 1)[0], os.read(0, 99))
        """,
        stdin=b"line\n",
    ),
    _descriptor(
        "no stream is a terminal",
        """
        import os, sys
        print([os.isatty(n) for n in range(3)], sys.stdout.isatty(), sys.stderr.isatty())
        for n in range(3):
            try: print(os.ttyname(n))
            except OSError as e: print(e.errno)
            try: print(os.get_terminal_size(n))
            except OSError as e: print(e.errno)
        """,
    ),
    _descriptor(
        "there is no controlling terminal",
        """
        import os, termios
        try: os.open('/dev/tty', os.O_RDWR)
        except OSError as e: print(e.errno)
        try: termios.tcgetattr(0)
        except termios.error as e: print(e)
        """,
        setup='exec setsid "$@"',
        needs=("setsid",),
    ),
    _descriptor(
        "shutil's and os's idea of the terminal's size",
        "import os, shutil; print(shutil.get_terminal_size(), os.environ.get('COLUMNS'))",
        env={"COLUMNS": "93", "LINES": "17"},
    ),
    _descriptor(
        "writev and pwritev to stdout's copy", "import os; print(os.writev(1, [b'a', b'bc', b'\\n']), flush=True)"
    ),
    _bash(
        "cat, dd and head write their files",
        "cat data data; dd if=data bs=7 count=2 2>/dev/null; head -c 5 data; tac data",
        files={"data": "0123456789\n" * 9},
    ),
    _bash(
        "cat of a file that is larger than any pipe",
        "cat data - <data | md5sum; cat data",
        files={"data": "0123456789\n" * 90000},
    ),
    _descriptor(
        "epoll on stdin, which is a pipe",
        "import select; e = select.epoll(); e.register(0, select.EPOLLIN); print(e.poll(1))",
        stdin=b"x",
    ),
    _descriptor(
        "asyncio reads stdin as a pipe",
        """
        import asyncio, sys
        async def main():
            reader = asyncio.StreamReader()
            await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
            print(await reader.read())
        asyncio.run(main())
        """,
        stdin=b"one\ntwo\n",
    ),
    _descriptor(
        "a write after the close of stdout",
        """
        import os, sys
        os.close(1)
        try: os.write(1, b'x')
        except OSError as e: print(e, file=sys.stderr)
        open('taken', 'w').write('x'); os._exit(3)
        """,
    ),
    _descriptor("sys.stdout is closed, exit reports nothing", "import sys; print('kept'); sys.stdout.close()"),
    _descriptor(
        "stdin is a socket for both ways",
        "import socket; s = socket.socket(fileno=0); print(s.family.name, s.recv(9)); s.send(b'back')",
        setup="""exec python3 -c 'import os, socket, sys; a, b = socket.socketpair(); b.send(b"hi"); """
        """os.dup2(a.fileno(), 0); os.set_inheritable(b.fileno(), True); os.execvp(sys.argv[1], sys.argv[1:])' "$@" """,
    ),
    caller(
        "descriptor",
        "both streams into one file",
        """"$@" >log 2>&1; sed '/^trainmon: /,$d' log; rm log""",
        "import os\nfor n in range(50): os.write(1 + n % 2, b'%d\\n' % n)",
    ),
    caller(
        "descriptor",
        "stdout appended to a file",
        'echo before >log; "$@" >>log; echo after >>log; cat log',
        "print('within')",
    ),
    caller(
        "descriptor", "stderr thrown away", '"$@" 2>/dev/null; echo $?', "import os; os.write(2, b'x'); print('out')"
    ),
    caller(
        "descriptor", "stdout thrown away", '"$@" >/dev/null; echo $?', "import sys; print('lost'); sys.exit('kept')"
    ),
    caller(
        "descriptor",
        "what is left of stdin goes to the next program",
        '"$@"; cat',
        "import os; print(os.read(0, 4))",
        stdin=b"one\ntwo\nthree\n",
    ),
    caller(
        "descriptor",
        "a file as stdin is left where the program stopped",
        'exec <data; "$@"; cat',
        "import os; os.write(1, os.read(0, 4))",
        files={"data": "one\ntwo\n"},
    ),
)
