"""Limits, variables, locales, directories and files: what a program starts with and leaves."""

from __future__ import annotations

from functools import partial

from tests.harmless.compare import PYTHON, Program
from tests.harmless.probe import bash, caller, compiled, python

_limit = partial(python, "limits")
_variable = partial(python, "environment")
_file = partial(python, "files")

OURS = "{'KINETO_LOG_LEVEL', 'PYTHONPATH', 'TEARDOWN_CUPTI', 'TRAINMON_RUN', '_'}"
VARIABLES = f"import os; print(sorted((k, v) for k, v in os.environb.items() if os.fsdecode(k) not in {OURS}))"

PROBES = (
    _limit(
        "memory that RLIMIT_AS does not give",
        """
        try: bytearray(4 << 30)
        except MemoryError: print('no memory')
        import resource; print(resource.getrlimit(resource.RLIMIT_AS))
        """,
        setup="ulimit -v 2000000",
    ),
    _limit("an address space of 60 MB", "print(1)", setup="ulimit -v 60000"),
    _limit(
        "stdout grows beyond RLIMIT_FSIZE",
        "import os\nfor n in range(40): os.write(1, b'x' * 999 + b'\\n')",
        setup="ulimit -f 8",
    ),
    compiled(
        "limits",
        "a C program prints beyond RLIMIT_FSIZE",
        """
        #include <stdio.h>
        int main(void) { for (int n = 0; n < 9000; n++) printf("step %d\\n", n); fflush(stdout);
        return ferror(stdout); }
        """,
        setup="ulimit -f 8",
    ),
    _limit(
        "a file of its own beyond RLIMIT_FSIZE",
        """
        try: open('big', 'wb', 0).write(bytes(100000)); print('written in part')
        except OSError as e: print(e)
        """,
        setup="ulimit -f 64",
    ),
    _limit(
        "core dumps, locked memory, queues: soft and hard",
        """
        import resource
        print([resource.getrlimit(n) for n in range(16)])
        """,
        setup="ulimit -S -c 100; ulimit -H -c 200; ulimit -l 32; ulimit -S -n 100",
    ),
    _limit(
        "the program raises its soft limit to the hard one",
        """
        import resource as r
        soft, hard = r.getrlimit(r.RLIMIT_NOFILE); r.setrlimit(r.RLIMIT_NOFILE, (hard, hard)); print(soft, hard)
        print(len([open('/dev/null') for _ in range(300)].__repr__()) > 0)
        """,
        setup="ulimit -S -n 64",
    ),
    _limit(
        "a soft limit of twelve descriptors",
        """
        import os
        n = 0
        try:
            while True: os.dup(0); n += 1
        except OSError as e: print(n, e.errno)
        """,
        setup="ulimit -S -n 12",
    ),
    _limit(
        "one processor",
        "import os; print(os.sched_getaffinity(0), os.cpu_count())",
        setup='exec taskset -c 0 "$@"',
        needs=("taskset",),
    ),
    _limit(
        "class and level of I/O",
        "import os; os.system('ionice -p %d' % os.getpid())",
        setup='exec ionice -c 3 "$@"',
        needs=("ionice",),
    ),
    _limit(
        "the batch scheduler",
        "import os; print(os.sched_getscheduler(0), os.sched_getparam(0))",
        setup='exec chrt -b 0 "$@"',
        needs=("chrt",),
    ),
    _limit(
        "a score for the killer of processes",
        "print(open('/proc/self/oom_score_adj').read())",
        setup="echo 500 >/proc/self/oom_score_adj",
    ),
    _limit(
        "no_new_privs and dropped capabilities",
        """
        print([l for l in open('/proc/self/status') if l.startswith(('CapBnd', 'NoNew'))])
        """,
        setup='exec setpriv --no-new-privs --bounding-set -net_raw "$@"',
        needs=("setpriv",),
    ),
    _limit(
        "addresses that are not random",
        "print(open('/proc/self/personality').read())",
        setup='exec setarch -R "$@"',
        needs=("setarch",),
    ),
    _limit(
        "a namespace of its own for processes",
        "import os; print(os.getpid() < 20)",
        setup='exec unshare --fork --pid --mount-proc "$@"',
        needs=("unshare",),
    ),
    _limit(
        "a network namespace without interfaces",
        "import socket; print(socket.if_nameindex())",
        setup='exec unshare -n "$@"',
        needs=("unshare",),
    ),
    _limit(
        "a small stack for threads",
        """
        import threading
        print(threading.stack_size()); threading.stack_size(65536 * 4)
        t = threading.Thread(target=print, args=('in a thread',)); t.start(); t.join()
        """,
        setup="ulimit -s 1024",
    ),
    _variable("every variable but ours", VARIABLES, env={"A": "1", "EMPTY": "", "SIGNS": "x=y=$z"}),
    _variable(
        "names and values that are no UTF-8", VARIABLES, env={"caf\udce9": "\udcff\udcfe", "LINES_OF": "a\nb\tc"}
    ),
    _variable(
        "10,000 variables",
        "import os; print(len([k for k in os.environ if k.startswith('MANY')]))",
        env={f"MANY{n}": str(n) for n in range(10000)},
    ),
    _variable(
        "a value of 130,000 bytes",
        "import os, hashlib; print(hashlib.md5(os.environb[b'LONG']).hexdigest())",
        env={"LONG": "x" * 130000},
    ),
    _variable(
        "PYTHONPATH with empty and relative entries",
        "import sys, near; print(near.x)",
        env={"PYTHONPATH": ":lib:"},
        files={"lib/near.py": "x = 5"},
    ),
    _variable(
        "an empty PYTHONPATH", "import sys; print('' in sys.path, sys.path[0] == sys.path[1])", env={"PYTHONPATH": ""}
    ),
    _variable(
        "our own variable names, set by the user",
        "import os; print(os.environ['TRAINMON_FRAMES'])",
        env={"TRAINMON_FRAMES": "0"},
    ),
    Program(
        "a shell exports functions",
        "environment",
        ("/bin/bash", "-c", "greet; declare -F greet"),
        setup="""exec bash -c 'greet() { echo hi; }; export -f greet; exec "$@"' bash "$@" """,
    ),
    _variable(
        "no LANG and no LC_ALL in Python",
        """
        import locale, os, sys
        print(sys.flags.utf8_mode, sys.stdout.encoding, sys.stdout.errors, sys.stdin.errors,
            locale.setlocale(locale.LC_ALL))
        print(os.environ.get('LC_CTYPE'), locale.setlocale(locale.LC_ALL, ''), '\\u00e9')
        """,
        setup="unset LANG LC_ALL LC_CTYPE",
    ),
    bash(
        "environment",
        "no LANG and no LC_ALL in other programs",
        "env | grep ^LC_; locale; printf '\\303\\251' | wc -m",
        setup="unset LANG LC_ALL LC_CTYPE",
    ),
    _variable(
        "LANG=C and PYTHONUTF8=1",
        "import sys; print(sys.flags.utf8_mode, sys.stdout.errors, '\\u00e9')",
        setup="unset LC_ALL LC_CTYPE; export LANG=C PYTHONUTF8=1",
    ),
    _variable(
        "LC_ALL=POSIX",
        "import locale, sys; print(locale.setlocale(0, ''), sys.stdout.errors, ascii(sys.argv))",
        env={"LC_ALL": "POSIX"},
    ),
    _variable("a locale that does not exist", "import sys; print(sys.stdout.encoding)", env={"LC_ALL": "xx_YY.UTF-8"}),
    Program(
        "Perl warns of a locale that does not exist",
        "environment",
        ("perl", "-e", "print 5"),
        env={"LC_ALL": "xx_YY.UTF-8"},
        needs=("perl",),
    ),
    _variable(
        "time zone by TZ",
        "import time; print(time.tzname, time.strftime('%H %Z', time.localtime(0)))",
        env={"TZ": "Asia/Kathmandu"},
    ),
    *(
        _variable(
            f"{name}={value}",
            "import sys, gc, logging; print('on', sys.flags, len(gc.callbacks)); logging.warning('w')",
            env={name: value},
        )
        for name, value in (
            ("PYTHONDEVMODE", "1"),
            ("PYTHONMALLOC", "debug"),
            ("PYTHONFAULTHANDLER", "1"),
            ("PYTHONNOUSERSITE", "1"),
            ("PYTHONSAFEPATH", "1"),
            ("PYTHONOPTIMIZE", "2"),
            ("PYTHONINTMAXSTRDIGITS", "700"),
            ("PYTHONNODEBUGRANGES", "1"),
            ("PYTHONASYNCIODEBUG", "1"),
            ("PYTHONPLATLIBDIR", "lib"),
        )
    ),
    _variable(
        "PYTHONINSPECT after an error",
        "x = 7\n1 / 0",
        env={"PYTHONINSPECT": "1"},
        stdin=b"x\nimport sys; sys.last_value\n",
    ),
    _variable(
        "PYTHONSTARTUP before the interpreter's prompt",
        "print('script')",
        "-i",
        env={"PYTHONSTARTUP": "begin.py"},
        files={"begin.py": "print('startup'); y = 2"},
        stdin=b"print('y' in dir())\n",
    ),
    _variable(
        "PYTHONBREAKPOINT",
        "breakpoint(); print('after')",
        env={"PYTHONBREAKPOINT": "near.stop"},
        files={"near.py": "def stop(): print('stop')"},
    ),
    _variable("PYTHONHOME is wrong", "print(1)", env={"PYTHONHOME": "/nowhere"}, setup="exec 2>/dev/null", files={}),
    _variable(
        "PYTHONUNBUFFERED",
        "import os; print('first'); os.write(1, b'second\\n'); print('third')",
        env={"PYTHONUNBUFFERED": "1"},
    ),
    _variable(
        "the program changes its environment for its child",
        """
        import os, subprocess, sys
        os.environ.clear(); os.environ['ONLY'] = 'this'
        print(subprocess.run(['/usr/bin/env'], capture_output=True).stdout)
        print(subprocess.run([sys.executable, '-c', 'print(1)'], capture_output=True))
        """,
    ),
    compiled(
        "environment",
        "LD_PRELOAD of a library",
        """
        #include <stdio.h>
        #include <unistd.h>
        int main(void) { printf("%d\\n", getuid()); }
        """,
        files={"own.c": "int getuid(void) { return 4711; }"},
        setup='gcc -w -shared -fPIC -o own.so own.c; exec env LD_PRELOAD=$PWD/own.so "$@"',
    ),
    _variable(
        "LD_LIBRARY_PATH",
        "import os; print(os.environ['LD_LIBRARY_PATH'])",
        env={"LD_LIBRARY_PATH": "/nowhere:/opt/lib"},
    ),
    _file(
        "a symbolic link as the working directory",
        "import os; print(os.path.basename(os.getcwd()), os.environ['PWD'][-5:], os.listdir())",
        setup="mkdir real; mv train.py real; ln -s real other; cd other",
    ),
    _file(
        "the working directory is removed in the run",
        """
        import os
        os.mkdir('d'); os.chdir('d'); os.rmdir('../d')
        try: print(os.getcwd())
        except OSError as e: print(e.errno)
        open('/dev/null').close(); import json; print(json.dumps(1))
        """,
    ),
    _file(
        "a working directory with an odd name",
        "import os, sys; print(ascii(os.path.basename(os.getcwd())))",
        setup="mkdir \"$(printf 'a b\\n\\351')\"; mv train.py a*; cd a*",
    ),
    _file(
        "inotify sees the program's own files only",
        """
        import ctypes, os
        libc = ctypes.CDLL(None); n = libc.inotify_init1(os.O_NONBLOCK); libc.inotify_add_watch(n, b'.', 0x3c2)
        import time; time.sleep(0.4)
        open('own', 'w').close(); os.remove('own')
        data = os.read(n, 9999); print(len(data), [part for part in data.split(b'\\0') if part.isalpha()])
        """,
    ),
    _file(
        "HOME, TMPDIR and /dev/shm get nothing",
        """
        import os, time
        time.sleep(0.4); print(os.listdir(os.environ['HOME']), os.listdir(os.environ['TMPDIR']))
        """,
        setup="mkdir t; export TMPDIR=$PWD/t",
    ),
    caller(
        "files",
        "nothing is left in TMPDIR and /dev/shm afterwards",
        """
        mkdir t; before=$(ls -A /dev/shm | grep -v torch); TMPDIR=$PWD/t "$@"; ls -A t;
        [ "$before" = "$(ls -A /dev/shm | grep -v torch)" ] && echo same
        """,
        "import tempfile\nwith tempfile.NamedTemporaryFile() as f: print(f.name[-9] != 0)",
    ),
    _file(
        "bytecode goes where it goes",
        "import os, near; print(sorted(os.listdir('.')), os.path.exists(near.__cached__))",
        files={"near.py": ""},
        setup="unset PYTHONDONTWRITEBYTECODE",
    ),
    _file(
        "umask 0 and a file with all rights",
        "import os; os.close(os.open('all', os.O_CREAT, 0o777)); os.mkdir('d'); print(oct(os.umask(0)))",
        setup="umask 0",
    ),
    _file(
        "umask 0777",
        "import os; os.close(os.open('none', os.O_CREAT, 0o777)); print(oct(os.umask(0)))",
        setup="umask 0777",
    ),
    _file(
        "access times, sparse files and hard links",
        """
        import os
        with open('sparse', 'wb') as f: f.truncate(1 << 20); f.seek(1 << 19); f.write(b'x')
        os.link('sparse', 'hard'); os.utime('hard', (1, 2)); s = os.stat('sparse')
        print(s.st_nlink, s.st_mtime, s.st_blocks < 100)
        """,
    ),
    _file(
        "memory that is shared by a file and a fork",
        """
        import mmap, os
        with open('shared', 'wb+') as f:
            f.truncate(4096); m = mmap.mmap(f.fileno(), 4096)
            if not os.fork(): m[:5] = b'child'; os._exit(0)
            os.wait(); print(m[:5])
        """,
    ),
    _file(
        "a Unix socket and a FIFO in the working directory",
        """
        import os, socket, threading
        s = socket.socket(socket.AF_UNIX); s.bind('sock'); os.mkfifo('fifo')
        t = threading.Thread(target=lambda: open('fifo', 'w').write('through')); t.start()
        print(open('fifo').read()); t.join()
        """,
    ),
    Program("a script without #!", "files", ("./plain",), files={"plain": "echo plain $0\n"}, setup="chmod +x plain"),
    Program(
        "a script whose interpreter does not exist",
        "files",
        ("/bin/sh", "-c", "./bad 2>/dev/null; echo $?"),
        files={"bad": "#!/no/such\n"},
    ),
    Program("a directory as the program", "files", ("/bin/sh", "-c", "/tmp 2>/dev/null; echo $?")),
    Program(
        "a script that has a carriage return after #!",
        "files",
        ("/bin/sh", "-c", "./bad 2>/dev/null; echo $?"),
        files={"bad": f"#!{PYTHON}\r\n"},
    ),
)
