"""Processes: children, groups, sessions, orphans, and what a process can read of itself."""

from __future__ import annotations

from functools import partial

from tests.harmless.probe import bash, compiled, python, without

_process = partial(python, "process")
_bash = partial(bash, "process")

PROBES = (
    _process(
        "wait4 and wait3 of children, with their usage",
        """
        import os
        if not os.fork(): os._exit(5)
        pid, status, usage = os.wait3(0)
        print(status >> 8, usage.ru_maxrss > 0)
        pid = os.fork()
        if not pid: os._exit(6)
        print(os.wait4(pid, 0)[1] >> 8)
        """,
    ),
    _process(
        "waitid tells a stop, a continuation and an end",
        """
        import os, signal
        pid = os.fork()
        if not pid:
            os.kill(os.getpid(), signal.SIGSTOP); os._exit(7)
        print(os.waitid(os.P_PID, pid, os.WSTOPPED).si_status)
        os.kill(pid, signal.SIGCONT)
        print(os.waitid(os.P_PID, pid, os.WEXITED).si_status)
        """,
    ),
    _process(
        "setsid and setpgid from the program itself",
        """
        import os
        leads = os.getpgrp() == os.getpid()
        print(leads, os.getsid(0) == os.getpid())
        os.setpgid(0, 0); print(os.getpgrp() == os.getpid())
        try: os.setsid()
        except PermissionError as e: print(e.errno)
        """,
    ),
    _process(
        "a daemon by two forks and setsid leaves its file",
        """
        import os, time
        if os.fork():
            os.wait()
            while not os.path.exists('done'): time.sleep(0.02)
            print('parent', open('done').read())
        else:
            os.setsid()
            if os.fork(): os._exit(0)
            null = os.open('/dev/null', os.O_RDWR)
            for n in range(3): os.dup2(null, n)
            open('part', 'w').write('daemon'); os.rename('part', 'done'); os._exit(0)
        """,
    ),
    _process(
        "kill(0) reaches the program's own group only",
        """
        import os, signal, time
        os.setpgid(0, 0)
        signal.signal(signal.SIGUSR1, lambda *_: print('mine', os.getpid() == me, flush=True))
        me = os.getpid()
        child = os.fork()
        if not child:
            signal.pause(); os._exit(0)
        time.sleep(0.2); os.kill(0, signal.SIGUSR1); os.waitpid(child, 0)
        """,
    ),
    _process(
        "killpg of workers in a group of their own",
        """
        import os, signal, subprocess, sys
        p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(9)'], start_new_session=True)
        os.killpg(p.pid, signal.SIGTERM); print(p.wait())
        """,
    ),
    _process(
        "PR_SET_PDEATHSIG ends a worker with its parent",
        """
        import ctypes, os, signal, time
        r, w = os.pipe()
        middle = os.fork()
        if not middle:
            if not os.fork():
                ctypes.CDLL(None).prctl(1, signal.SIGKILL); os.write(w, b'r'); time.sleep(9); os._exit(1)
            os.read(r, 1); os._exit(0)
        os.waitpid(middle, 0); os.close(w)
        print(os.read(r, 9))
        """,
    ),
    _process(
        "the program's own PR_GET_PDEATHSIG, dumpable, name and no_new_privs",
        """
        import ctypes
        libc = ctypes.CDLL(None); n = ctypes.c_int(-1); libc.prctl(2, ctypes.byref(n))
        name = ctypes.create_string_buffer(16); libc.prctl(16, name)
        print(n.value, libc.prctl(3), name.value, libc.prctl(39), libc.prctl(30), libc.prctl(42))
        """,
    ),
    _process(
        "PR_SET_CHILD_SUBREAPER gives the program its orphans",
        """
        import ctypes, os
        ctypes.CDLL(None).prctl(36, 1)
        r, w = os.pipe()
        if not os.fork():
            if not os.fork(): os.close(w); os.read(r, 1); os._exit(11)
            os._exit(12)
        print(os.wait()[1] >> 8); os.close(w); print(os.wait()[1] >> 8)
        """,
    ),
    _process(
        "the program is no subreaper at its start",
        """
        import ctypes
        n = ctypes.c_int(-1); ctypes.CDLL(None).prctl(37, ctypes.byref(n)); print(n.value)
        """,
    ),
    _process(
        "its parent stays the same and lives",
        """
        import os, time
        first = os.getppid(); time.sleep(0.6); print(os.getppid() == first, os.kill(first, 0))
        """,
    ),
    _process(
        "zombies are counted",
        """
        import os, time
        for _ in range(3):
            if not os.fork(): os._exit(0)
        time.sleep(0.3)
        pids = [p for p in os.listdir('/proc') if p.isdigit()]
        mine = [open(f'/proc/{p}/stat').read().rpartition(')')[2].split()[:2] for p in pids]
        print(sum(s == ['Z', str(os.getpid())] for s in mine))
        """,
    ),
    _process(
        "its children as /proc lists them",
        """
        import os
        path = f'/proc/{os.getpid()}/task/{os.getpid()}/children'
        print(open(path).read(), os.listdir('/proc/self/task') == [str(os.getpid())])
        """,
    ),
    _process(
        "times and usage of children are nothing at the start",
        """
        import os, resource
        t = os.times(); u = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(t.children_user, t.children_system, u.ru_maxrss, u.ru_minflt)
        """,
    ),
    _process(
        "/proc/self/status: signals, capabilities, groups, seccomp",
        """
        keep = 'Umask Uid Gid Groups SigP SigB SigI SigC Shd Cap NoNew Seccomp Cpus_a Mems_a Threads Spec THP Tracer'
        for line in open('/proc/self/status'):
            if line.startswith(tuple(keep.split())): print(line, end='')
        """,
    ),
    _process(
        "/proc/self/stat: terminal, nice value, policy, exit signal",
        """
        f = open('/proc/self/stat').read().rpartition(')')[2].split()
        print(f[4], f[5], f[15:18], f[35], f[37:39])
        """,
    ),
    _process(
        "/proc/self: limits, oom score, slack, filter of core dumps, personality",
        """
        for n in 'limits oom_score_adj timerslack_ns coredump_filter personality cgroup loginuid'.split():
            try: print(n, open('/proc/self/' + n).read())
            except OSError as e: print(n, e.errno)
        """,
    ),
    _process(
        "/proc/self: exe, cwd, root and namespaces",
        """
        import os
        print([os.readlink('/proc/self/' + n) for n in ('exe', 'cwd', 'root')])
        print([os.readlink('/proc/self/ns/' + n) for n in sorted(os.listdir('/proc/self/ns'))])
        """,
    ),
    _process(
        "/proc/self/cmdline and comm",
        """
        print(open('/proc/self/cmdline', 'rb').read().split(b'\\0')[1:], open('/proc/self/comm').read())
        """,
    ),
    _process(
        "libraries that are mapped",
        """
        print(sorted({line.split()[-1] for line in open('/proc/self/maps') if '.so' in line}))
        """,
    ),
    compiled(
        "process",
        "argv, the file's name and AT_SECURE in a C program",
        """
        #include <stdio.h>
        #include <sys/auxv.h>
        int main(int n, char **v) { printf("%d %s %s %ld\\n", n, v[0], (char *)getauxval(AT_EXECFN),
            getauxval(AT_SECURE)); }
        """,
    ),
    compiled(
        "process",
        "a C program's own ptrace of a child",
        """
        #include <stdio.h>
        #include <sys/ptrace.h>
        #include <sys/wait.h>
        #include <unistd.h>
        int main(void) { int s; pid_t p = fork(); if (!p) { ptrace(PTRACE_TRACEME);
        execl("/bin/true", "true", (char *)0); }
            wait(&s); printf("%d\\n", WSTOPSIG(s)); ptrace(PTRACE_CONT, p, 0, 0); wait(&s);
            printf("%d\\n", WEXITSTATUS(s)); }
        """,
    ),
    _process(
        "posix_spawn and vfork by subprocess",
        """
        import os, subprocess
        pid = os.posix_spawn('/bin/sh', ['sh', '-c', 'exit 8'], os.environ)
        print(os.waitpid(pid, 0)[1] >> 8, subprocess.run(['false']).returncode)
        """,
    ),
    _process(
        "a child outlives a parent that is killed",
        """
        import os, signal, time
        if os.fork(): os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.2); open('child', 'w').write('survived')
        """,
        setup='"$@" 2>/dev/null; echo $?; sleep 0.6; cat child; exit',
    ),
    _process(
        "os.register_at_fork calls in order",
        """
        import os
        for n in (1, 2):
            os.register_at_fork(before=lambda n=n: print('before', n, flush=True),
                after_in_parent=lambda n=n: print('parent', n, flush=True))
        if not os.fork(): os._exit(0)
        os.wait()
        """,
    ),
    _process(
        "multiprocessing: queue, manager, shared memory, pool with an initializer",
        """
        import multiprocessing as mp
        from multiprocessing import shared_memory
        def begin(n): global base; base = n
        def add(n): return base + n
        if __name__ == '__main__':
            with mp.Pool(2, begin, (10,)) as pool: print(pool.map(add, range(3)))
            with mp.Manager() as m: d = m.dict(a=1); print(dict(d))
            block = shared_memory.SharedMemory(create=True, size=8); block.buf[0] = 7
            other = shared_memory.SharedMemory(block.name); print(other.buf[0])
            other.close(); block.close(); block.unlink()
            q = mp.SimpleQueue(); p = mp.Process(target=q.put, args=('x',)); p.start(); print(q.get()); p.join()
            print(p.exitcode, mp.active_children(), mp.current_process().name, mp.parent_process())
        """,
    ),
    _process(
        "shared memory that leaks is told by the resource tracker",
        """
        from multiprocessing import shared_memory
        block = shared_memory.SharedMemory(create=True, size=8, name='trainmon_probe'); print(block.name)
        """,
        masked=without(r"\S+resource_tracker.py:\d+"),
    ),
    _process(
        "a process pool of concurrent.futures and one that breaks",
        """
        import os
        from concurrent.futures import ProcessPoolExecutor
        from concurrent.futures.process import BrokenProcessPool
        if __name__ == '__main__':
            with ProcessPoolExecutor(2) as pool: print(list(pool.map(abs, (-1, 2))))
            try:
                with ProcessPoolExecutor(1) as pool: pool.submit(os._exit, 3).result()
            except BrokenProcessPool as e: print(type(e).__name__)
        """,
    ),
    _process(
        "a spawned child sees __main__ as its parent does",
        """
        import multiprocessing as mp, sys
        def show(): print(__name__, sys.argv, sys.modules['__main__'].__file__ == __file__, flush=True)
        if __name__ == '__main__':
            p = mp.get_context('spawn').Process(target=show); p.start(); p.join()
        """,
    ),
    _process(
        "asyncio's subprocesses and child watcher",
        """
        import asyncio
        async def main():
            p = await asyncio.create_subprocess_shell('echo out; exit 3', stdout=asyncio.subprocess.PIPE)
            print(await p.communicate(), p.returncode)
        asyncio.run(main())
        """,
    ),
    _process(
        "a pty of its own with a child in it",
        """
        import os, pty
        pid, master = pty.fork()
        if not pid: os.execvp('sh', ['sh', '-c', 'test -t 1 && echo terminal; exit 4'])
        print(os.read(master, 99)); print(os.waitpid(pid, 0)[1] >> 8)
        """,
    ),
    _bash(
        "jobs, wait -n and process substitution",
        """
        (exit 3) & wait -n; echo $?; cat <(echo one) <(echo two); coproc cat; echo x >&${COPROC[1]};
        read -u ${COPROC[0]} y; echo $y
        """,
    ),
    _bash(
        "pipefail and PIPESTATUS",
        "set -o pipefail; true | false | true; echo $? ${PIPESTATUS[@]}; yes | head -1; echo ${PIPESTATUS[@]}",
    ),
    _bash(
        "job control in a script: bg, fg, suspended jobs",
        """
        set -m; sleep 5 & kill -STOP %1; sleep 0.2; jobs | sed 's/  */ /g'; kill -KILL %1; wait 2>/dev/null; echo done
        """,
    ),
    _bash("SHLVL, $-, $0 and the options of a shell", 'echo $SHLVL "$-" $0 $# $BASHOPTS $POSIXLY_CORRECT'),
)
