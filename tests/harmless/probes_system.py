"""All probes of the system and the interpreter. None of them imports torch: those are in `probes_torch`."""

from __future__ import annotations

from tests.harmless import (
    probes_descriptors,
    probes_environment,
    probes_imports,
    probes_launchers,
    probes_process,
    probes_python,
    probes_signals,
)
from tests.harmless.compare import Program

PROBES: tuple[Program, ...] = (
    *probes_signals.PROBES,
    *probes_descriptors.PROBES,
    *probes_process.PROBES,
    *probes_environment.PROBES,
    *probes_imports.PROBES,
    *probes_python.PROBES,
    *probes_launchers.PROBES,
)

PAGE = """# Probes of the system

`make probes` runs small programs, each with one question, bare and under `trainmon run`, and compares exit code,
stdout and stderr byte by byte, and every file that is left. They ask about what lies around a training: signals,
descriptors, processes, limits, variables, imports, the interpreter, other launchers, and what a caller sees. The
programs of [harmless.md](harmless.md) are not among them. `make probes` writes this page.

## What a program can see

These differences are known and left out, beside those of [harmless.md](harmless.md):

- `PYTHONPATH` begins with the directory of the hooks, and `TRAINMON_RUN` is set. So `sys.path` and what lists it have
  one more entry, `sys.modules` has `sitecustomize` and `trainhooks.auto.imports`, and `sys.meta_path` two more
  finders. A tracer or profiler that is on during an import sees calls of theirs, `python -v` and `-X importtime` list
  them, and Python 2.7 says that it cannot import `sitecustomize`. bash's `_` names trainmon.
- A `sitecustomize` on the caller's `PYTHONPATH` is run by trainmon's own interpreter, too: what it prints comes
  twice. With `PYTHONPYCACHEPREFIX`, trainmon's bytecode is gathered in that directory as well.
- Its parent, its session and its process group are other ones. Orphans get trainmon as their parent, not process 1.
  Children that the caller had before its exec are not the program's. The caller's usage of children (`time`) lacks
  the program's.
- stdout is a file, opened for appending: `/dev/stdout` opened for writing empties it, what was printed and not yet
  copied is lost, and `epoll`, `splice`, `sendfile` and asyncio's `connect_write_pipe` refuse it. A full disk or a
  reader that has left behind it causes no error in the program. `--pty` gives a terminal.
- What a child prints after the program has ended does not reach the caller.
- Ignored SIGPIPE and SIGXFSZ become the default again: Python has changed them before trainmon can look.
- SIGSTOP, SIGCONT, SIGURG and SIGWINCH that are sent to trainmon do not reach the program, and SIGKILL does not end it.
- A record lock (`fcntl`) that the caller took before its exec is not the program's. A descriptor that it handed over
  has copies in trainmon for the first milliseconds, so a lock by `flock` is free only after these.
- With a limit of file sizes (`ulimit -f`) its output is not recorded. With too few descriptors it starts without
  trainmon.
- Addresses, counts of allocated blocks and the time of the first garbage collection.

## Results

"""
