"""Other launchers and languages around and within a run, arguments, and what is printed."""

from __future__ import annotations

from functools import partial

from tests.harmless.compare import PYTHON, Program
from tests.harmless.probe import bash, caller, compiled, python, without

_caller = partial(caller, "caller")
_bash = partial(bash, "launcher")
_output = partial(python, "output")

ARGUMENTS = "import os, sys; print([os.fsencode(a) for a in sys.argv[1:]])"
WORDS = ("", "a b", "\n", "--", "--no-tui", "--name", "-h", "*", "$HOME", "'\"\\", "caf\udce9", "=", "@file")

PROBES = (
    Program("arguments of every kind", "launcher", (PYTHON, "-c", ARGUMENTS, *WORDS)),
    Program(
        "arguments that are trainmon's options",
        "launcher",
        (PYTHON, "-c", ARGUMENTS, "run", "--pty", "--tag", "a=b", "--help", "--version"),
    ),
    Program(
        "an argument of 120,000 bytes", "launcher", (PYTHON, "-c", "import sys; print(len(sys.argv[1]))", "x" * 120000)
    ),
    Program("5,000 arguments", "launcher", (PYTHON, "-c", "import sys; print(len(sys.argv))", *map(str, range(5000)))),
    Program(
        "a program that is found through PATH",
        "launcher",
        ("own-train", "a"),
        files={"bin/own-train": "#!/bin/sh\necho own $0 $@\n"},
        setup="PATH=$PWD/bin:$PATH",
    ),
    Program(
        "python is a shim on PATH",
        "launcher",
        ("python", "train.py"),
        files={"bin/python": f'#!/bin/sh\necho shim\nexec {PYTHON} "$@"\n', "train.py": "print(1)"},
        setup="PATH=$PWD/bin:$PATH",
    ),
    Program(
        "a PATH with an empty entry and a directory of that name",
        "launcher",
        ("go",),
        files={"go": "#!/bin/sh\necho here\n", "d/go/x": ""},
        setup="PATH=$PWD/d::$PATH",
    ),
    Program(
        "/usr/bin/env with -S and a variable",
        "launcher",
        ("./s",),
        files={"s": "#!/usr/bin/env -S A=4 sh -e\necho $A; false; echo no\n"},
    ),
    Program(
        "env -u takes our variables away",
        "launcher",
        ("env", "-u", "TRAINMON_RUN", "-u", "PYTHONPATH", PYTHON, "-c", "import os; print('PYTHONPATH' in os.environ)"),
    ),
    _bash("exec -a gives another argv[0]", "exec -a odd-name $PY -c 'import sys; print(sys.orig_argv[0], sys.argv)'"),
    _bash("xargs with two processes at once", "seq 4 | xargs -P 2 -n 1 sh -c 'sleep 0.$0; echo $0'"),
    _bash("time, nice and nohup within", "nohup nice -n 3 nice 2>&1 | tail -1; TIMEFORMAT=done; time true"),
    _bash("stdbuf makes lines", "stdbuf -oL $PY -c 'print(1); print(2)'; stdbuf -o0 sh -c 'echo 3'"),
    _bash(
        "script gives a terminal",
        "script -qec 'test -t 1 && echo terminal; exit 6' /dev/null | tr -d '\\r'; echo ${PIPESTATUS[0]}",
    ),
    _bash("timeout of a group with a worker", "timeout 0.5 sh -c 'sleep 9 & wait'; echo $?"),
    _bash(
        "find -exec and tee of what is printed",
        "touch a b; find . -name '?' -exec $PY -c 'import sys; print(sys.argv[1])' {} \\; | sort | tee out; cat out",
    ),
    _bash(
        "a login shell and an interactive one",
        "bash -lc 'echo login $0' 2>/dev/null; echo 'echo from stdin $-' | bash -s x",
    ),
    _bash(
        "here documents, eval, source and subshells",
        "cat <<<one; eval 'echo two'; echo 'x=3' >s; . ./s; echo $x; (exit 4); echo $?; $PY - <<'E'\nprint(5)\nE",
    ),
    Program(
        "make runs four jobs",
        "launcher",
        ("make", "-s", "-j4", "--output-sync=none"),
        files={"Makefile": "all: a b\n\t@echo all $(MAKELEVEL)\na b:\n\t@sleep 0.2; echo made >$@\n"},
    ),
    Program("make stops at an error", "launcher", ("make",), files={"Makefile": "all:\n\t@echo begin\n\t@exit 3\n"}),
    Program(
        "Perl forks and waits",
        "launcher",
        ("perl", "-e", "$|=1; if (!fork) { exit 3 } wait; print $? >> 8, \" $0\\n\"; system('echo sub'); die 'end'"),
        needs=("perl",),
    ),
    Program(
        "awk and sed write to /dev/stderr themselves",
        "launcher",
        ("awk", 'BEGIN { print "out"; print "err" > "/dev/stderr"; exit 4 }'),
        needs=("awk",),
    ),
    Program(
        "Node's streams and exit code",
        "launcher",
        (
            "node",
            "-e",
            "console.log(process.argv.length); console.error('e'); process.on('exit', c => console.log('exit', "
            "c)); process.exitCode = 5",
        ),
        needs=("node",),
    ),
    Program(
        "Tcl",
        "launcher",
        ("tclsh", "t.tcl", "a"),
        files={"t.tcl": "puts $argv; puts stderr err; exit 7\n"},
        needs=("tclsh",),
    ),
    Program(
        "Java from a source file",
        "launcher",
        ("java", "-XX:TieredStopAtLevel=1", "Main.java"),
        needs=("java",),
        short=False,
        files={
            "Main.java": "class Main { public static void main(String[] a) { "
            "System.out.println(System.console() == null); System.exit(3); } }"
        },
    ),
    Program(
        "gdb -batch of a program",
        "launcher",
        ("gdb", "-q", "-batch", "-nx", "-ex", "run", "--args", "/bin/sh", "-c", "echo within; exit 3"),
        needs=("gdb",),
        masked=without(r"process \d+", r"Thread 0x\S+", r"warning: .*", r"\[Detaching.*"),
    ),
    Program(
        "strace sees the end",
        "launcher",
        ("strace", "-qq", "-e", "trace=exit_group", "-o", "log", "/bin/sh", "-c", "exit 3"),
        needs=("strace",),
    ),
    Program(
        "flock around a command",
        "launcher",
        ("flock", "lock", "sh", "-c", "flock -n lock true; echo $?"),
        needs=("flock",),
    ),
    Program(
        "a session that is waited for", "launcher", ("setsid", "-w", "sh", "-c", "echo s; exit 5"), needs=("setsid",)
    ),
    _caller("its output in a variable", 'x=$("$@"); echo "[$x] $?"', "import sys; print('a\\n\\n'); sys.exit(4)"),
    _caller(
        "in the midst of a pipeline",
        "printf 'b\\na\\n' | \"$@\" | sort; echo $?",
        "import sys; sys.stdout.write(sys.stdin.read().upper())",
        stdin=b"",
    ),
    _caller("in the background, waited for", '"$@" & wait $!; echo $?', "raise SystemExit(12)"),
    _caller(
        "by nohup",
        'nohup "$@" </dev/null 2>/dev/null; echo $?',
        "import signal, sys; print(signal.getsignal(1)); sys.exit(3)",
    ),
    _caller(
        "by xargs with its words",
        "printf 'x\\ny z\\n' | xargs -n 1 \"$@\" 2>/dev/null",
        "import sys; print(sys.argv[1:], sys.stdin.read())",
    ),
    _caller(
        "by env -i",
        'env -i "$@" 2>/dev/null',
        "import os; known = 'PYTHONPATH TRAINMON_RUN LC_CTYPE KINETO_LOG_LEVEL TEARDOWN_CUPTI'.split();"
        " print(sorted(set(os.environ) - set(known)))",
        stdin=b"x",
    ),
    _caller(
        "by make, whose recipe it is",
        "printf 'all:\\n\\t@$(RUN); echo $$?\\n' >Makefile; make -s RUN=\"$*\" 2>/dev/null",
        "import os; print(os.environ['MAKELEVEL']); raise SystemExit(2)",
    ),
    _caller(
        "by Perl's system",
        """perl -e 'system(@ARGV); print $? >> 8, " ", $? & 127, "\\n"' "$@" 2>/dev/null""",
        "raise SystemExit(77)",
    ),
    _caller(
        "by Python's subprocess with pipes of its own",
        """$PY -c 'import subprocess, sys; r = subprocess.run(sys.argv[1:], capture_output=True, input=b"in"); """
        """print(r.returncode, r.stdout)' "$@" """,
        "import sys; print(sys.stdin.read()); sys.exit(6)",
    ),
    _caller(
        "by Python's subprocess with close_fds and a new session",
        """$PY -c 'import subprocess, sys; print(subprocess.run(sys.argv[1:], start_new_session=True, """
        """close_fds=True, stderr=-3).returncode)' "$@" """,
        "import os; print(os.getpid() == os.getpgrp(), flush=True); raise SystemExit(6)",
    ),
    _caller(
        "by bash with exec and a trap for EXIT",
        """bash -c 'trap "echo trap" EXIT; "$@"; echo $?' bash "$@" 2>/dev/null""",
        "raise SystemExit(8)",
    ),
    _caller(
        "two at once in one directory",
        '"$@" a & "$@" b & wait; cat a b',
        "import sys; open(sys.argv[1], 'w').write(sys.argv[1] * 3)",
        masked=without(r"trainmon: .*"),
    ),
    _caller(
        "one within the other",
        '"$@" 2>/dev/null',
        f"import subprocess, sys\nprint(len(sys.argv))\nif len(sys.argv) < 2: subprocess.run([{PYTHON!r}, "
        f"'train.py', 'x'])",
    ),
    _caller(
        "a terminal's size and kind are passed on",
        'COLUMNS=77 TERM=dumb "$@" 2>/dev/null',
        "import os, shutil; print(shutil.get_terminal_size(), os.environ['TERM'])",
    ),
    _output("one byte at a time", "import os\nfor c in b'one byte at a time\\n' * 9: os.write(1, bytes([c]))"),
    _output(
        "a carriage return's bar with colors, to both streams",
        r"import sys; [print(f'\r\x1b[3{n}m{n * 10}%', end='', file=s, flush=True) for n in range(9) for s in "
        r"(sys.stdout, sys.stderr)]",
    ),
    _output("one line of 50 MB", "import os; data = b'x' * (1 << 20); [os.write(1, data) for _ in range(50)]"),
    _output(
        "UTF-8 that is cut in the midst of a character",
        r"import os, time; os.write(1, b'\xe2\x82'); time.sleep(0.2); os.write(1, b'\xac\xff\xfe\n')",
    ),
    _output(
        "JSON lines that look like our own events",
        """print('{"kind":"step","producer":"x","seq":0,"t":1.0}'); print('trainhooks: x'); import sys; """
        """print('trainmon:x', file=sys.stderr)""",
    ),
    _output(
        "a writer in a thread and one in a child, in turns",
        """
        import os, threading
        for n in range(20):
            t = threading.Thread(target=os.write, args=(1, b'thread %d\\n' % n)); t.start(); t.join()
            if not os.fork(): os.write(1, b'child %d\\n' % n); os._exit(0)
            os.wait()
        """,
    ),
    _output(
        "C's stdio and Python's in one program",
        "import ctypes; c = ctypes.CDLL(None); c.printf(b'from C\\n'); print('from Python', flush=True); "
        "c.fflush(None)",
    ),
    compiled(
        "output",
        "C buffers stdout as a whole and stderr not at all",
        """
        #include <stdio.h>
        int main(void) { printf("out"); fprintf(stderr, "err"); printf("more\\n"); fflush(stdout); printf("lost");
        _exit(0); }
        """,
    ),
)
