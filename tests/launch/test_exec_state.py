"""What a caller leaves to a program by an exec is there under trainmon, too: beside a bare run of the program."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from .conftest import ROOT, TRAINMON, State, python

IGNORED = "import os, signal; print(signal.getsignal(signal.SIGCHLD))"
ALARM = "import signal, time; print(signal.getitimer(0)[0] > 0, flush=True); time.sleep(30)"
STREAMS = "import os, sys; open(sys.argv[1], 'w').write(repr((sys.stdin, sys.stdout, sys.stderr)))"
LOCALE = "import os, sys; print(os.environ.get('LC_CTYPE'), sys.flags.utf8_mode)"
LONG = "import sys\nfor n in range(200): print('x' * 99, flush=True)"
TWELVE = "import os, sys; print(len(os.listdir('/proc/self/fd')), flush=True); sys.exit(3)"

# A shell's or Perl's words before the program, and the program.
CASES = {
    "ignored children": ("""exec perl -e '$SIG{CHLD} = "IGNORE"; exec @ARGV' "$@" """, python(IGNORED)),
    "alarm": ("""exec perl -e 'alarm 6; exec @ARGV' "$@" """, python(ALARM)),
    "no locale": ('unset LANG LC_ALL LC_CTYPE; exec "$@"', python(LOCALE)),
    "no locale in a shell": ('unset LANG LC_ALL LC_CTYPE; exec "$@"', ["/bin/sh", "-c", "env | grep ^LC_"]),
    "small files": ('ulimit -f 8; exec "$@"', python(LONG)),
    "few descriptors": ('ulimit -S -n 12; exec "$@"', python(TWELVE)),
    "no interpreter named": ('exec "$@"', ["./plain", "a b"]),
}


def both(state: State, place: Path, around: str, command: list[str]) -> list[tuple[int, bytes]]:
    found = []
    for words in (command, [*TRAINMON, "run", "--no-tui", "--", *command]):
        done = subprocess.run(
            ["/bin/sh", "-c", around, "sh", *words],
            cwd=place,
            env={**state.environment, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
        )
        code = done.returncode
        found.append((code if code >= 0 else 128 - code, done.stdout))
    return found


@pytest.mark.parametrize("case", [pytest.param("alarm", marks=pytest.mark.long), *sorted(CASES.keys() - {"alarm"})])
def test_the_program_starts_as_it_would_alone(state: State, tmp_path: Path, case: str) -> None:
    around, command = CASES[case]
    if "perl" in around and shutil.which("perl") is None:
        pytest.skip("no perl here")
    (tmp_path / "plain").write_text('echo plain "$@"\n')
    (tmp_path / "plain").chmod(0o755)
    bare, watched = both(state, tmp_path, around, command)
    assert bare == watched


RUN_OUT = """
import os, signal, time
from monitor.running.exec_state import ExecState
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.01)
state = ExecState.capture()
time.sleep(0.05)
state.restore()
os.execvp("sleep", ["sleep", "5"])
"""


def test_an_alarm_that_has_run_out_meanwhile_ends_the_program() -> None:
    assert subprocess.run(python(RUN_OUT), cwd=ROOT).returncode == -signal.SIGALRM


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_closed_for_the_program(state: State, tmp_path: Path, closed: str) -> None:
    seen = []
    for number in (0, 1):
        words = [*python(STREAMS), str(tmp_path / str(number))]
        before = [*TRAINMON, "run", "--no-tui", "--"] if number else []
        subprocess.run(["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *before, *words], env=state.environment, cwd=ROOT)
        seen.append((tmp_path / str(number)).read_text())
    assert seen[0] == seen[1] and "None" in seen[0]


NUMBERS = [signal.SIGABRT, signal.SIGALRM, signal.SIGXCPU, signal.SIGIO, signal.SIGRTMIN + 3]
HANDLER = """
import signal, sys, time
number = int(sys.argv[1])
signal.signal(number, lambda *_: sys.exit(9))
print('ready', flush=True)
time.sleep(30)
"""


@pytest.mark.parametrize("number", NUMBERS)
def test_every_signal_of_a_scheduler_reaches_the_program(state: State, number: int) -> None:
    front = state.start(*python(HANDLER), str(int(number)))
    assert front.stdout is not None and front.stdout.readline() == b"ready\n"
    os.kill(front.pid, number)
    assert front.wait(30) == 9


def test_processor_time_that_trainmon_has_used_itself_ends_no_training(state: State, tmp_path: Path) -> None:
    """The kernel sends SIGXCPU to the process that is over its limit. That is not passed on."""
    import resource

    from monitor.running import forwarding

    before = resource.getrlimit(resource.RLIMIT_CPU)
    assert not forwarding._is_over_time()
    try:
        signal.signal(signal.SIGXCPU, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_CPU, (0, before[1]))
        assert forwarding._is_over_time()
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, before)
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
