"""The first things that a person does with an installed `trainmon`, each once, away from the checkout.

It needs the standard library only and is told which `trainmon` to call, so it serves any interpreter and any versions
of the dependencies.
"""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from struct import pack
from termios import TIOCSWINSZ

LIMIT = 60.0  # seconds a command, against hanging
STEPS = 20
# No framework: whether the hooks load and write does not depend on one.
LOOP = f"""
import sys, time
import trainhooks as th

th.init(total_steps={STEPS}, config={{"rate": 0.1}})
for batch in th.steps(range({STEPS})):
    with th.phase("forward"):
        time.sleep(0.005)
    th.log(loss=1 / (batch + 1))
print("done on", sys.version_info[0], sys.version_info[1])
"""
# What a caller's environment must not lend: another checkout's modules, a run around this one.
FOREIGN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "TRAINMON_RUN", "RANK", "WORLD_SIZE", "SLURM_PROCID")


class Failed(Exception):
    """What did not work, in one line."""


@dataclass(frozen=True)
class Place:
    """Where the commands run, and with what."""

    trainmon: Sequence[str]  # the command under test
    python: str  # that of the training
    path: Path  # an empty directory

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in FOREIGN}
        return {**kept, "TRAINMON_DIR": str(self.path / "state"), "TERM": "xterm-256color", "TRAINMON_DEBUG": "1"}

    def call(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Call trainmon with these words.

        Raises:
            Failed: it ended with another exit code than `code`, or with a traceback.
        """
        ended = subprocess.run(
            [*self.trainmon, *words],
            cwd=self.path,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        if ended.returncode != code or "Traceback" in ended.stderr:
            last = (ended.stderr.strip().splitlines() or ["no message"])[-1]
            raise Failed(f"trainmon {' '.join(words)}: exit code {ended.returncode}: {last}")
        return ended


def expect(condition: object, text: str) -> None:
    if not condition:
        raise Failed(text)


# The checks, in the order in which they depend on each other


def tells_its_version(place: Place) -> None:
    expect(place.call("--version").stdout.startswith("trainmon "), "--version prints something else")


def helps(place: Place) -> None:
    told = place.call("--help").stdout
    expect(
        all(f"\n  {verb} " in told for verb in ("run", "attach", "report", "replay", "doctor")), "--help lacks verbs"
    )


def refuses_in_one_line(place: Place) -> None:
    for words in (("no-such-command",), ("run", "--no-such-option"), ("run",), ("replay",)):
        told = place.call(*words, code=2).stderr
        expect(len(told.splitlines()) == 1, f"a usage error of {words} has {len(told.splitlines())} lines")


def runs_a_training(place: Place) -> None:
    (place.path / "loop.py").write_text(LOOP)
    told = place.call("run", "--no-tui", "--name", "smoke", "--", place.python, "loop.py")
    expect(told.stdout.startswith("done on "), "the program's output did not pass through")
    expect("trainmon: " in told.stderr, "no short report at the end")


def reports(place: Place) -> None:
    report = json.loads(place.call("report", "--json", "last").stdout)
    done = report["progress"]["steps_done"]
    expect(done == STEPS, f"{done} steps in the report instead of {STEPS}")
    expect({"data", "forward"} <= {row["name"] for row in report["phases"]}, "the report lacks phases")
    expect(report["outcome"]["state"] == "finished", f"the run is {report['outcome']['state']}")
    expect(report["metrics"]["loss"]["count"] == STEPS, "the report lacks metrics")


def shows_one_screen(place: Place) -> None:
    expect("smoke" in place.call("attach", "--once", "last").stdout, "attach --once does not name the run")
    expect("smoke" in place.call("ls").stdout, "ls does not name the run")


def replays_on_a_terminal(place: Place) -> None:
    place.call("export", "last", "--format", "jsonl", "-o", "run.jsonl")
    shown = on_terminal(place, ["replay", "run.jsonl", "--speed", "0"], until=b"REPLAY")
    expect(b"Traceback" not in shown, "the replay prints a traceback")


def examines_the_machine(place: Place) -> None:
    checks = json.loads(place.call("doctor", "--json", "--python", place.python).stdout)["checks"]
    expect(not [row for row in checks if row["state"] == "broken"], "the doctor finds something broken")


def completes(place: Place) -> None:
    for shell in ("bash", "zsh", "fish"):
        expect("_TRAINMON_COMPLETE" in place.call("completion", shell).stdout, f"no completion for {shell}")


CHECKS: tuple[Callable[[Place], None], ...] = (
    tells_its_version,
    helps,
    refuses_in_one_line,
    runs_a_training,
    reports,
    shows_one_screen,
    replays_on_a_terminal,
    examines_the_machine,
    completes,
)
OF_THE_HOOKS = (runs_a_training, reports)  # what there is to try on an interpreter that has no `trainmon`


def failures(place: Place, checks: Sequence[Callable[[Place], None]] = CHECKS) -> list[str]:
    """Carry out the checks. Return a line for each that failed; empty if all is well."""
    place.path.mkdir(parents=True, exist_ok=True)
    found = []
    for check in checks:
        try:
            check(place)
        except (Failed, OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
            found.append(f"{check.__name__}: {error}")
    return found


def on_terminal(place: Place, words: Sequence[str], until: bytes, then: bytes = b"q") -> bytes:
    """Call trainmon on a terminal, wait for a text, press a key, and wait for the end. Return what was written.

    Raises:
        Failed: the text did not come, or the key did not end it well.
    """
    pid, master = pty.fork()
    if pid == 0:
        try:
            os.chdir(place.path)
            os.execve(place.trainmon[0], [*place.trainmon, *words], place.environment)
        finally:
            os._exit(127)
    ioctl(master, TIOCSWINSZ, pack("HHHH", 40, 120, 0, 0))
    written, deadline, pressed = b"", time.monotonic() + LIMIT, False
    try:
        while time.monotonic() < deadline:
            if select.select([master], [], [], 0.2)[0]:
                try:
                    data = os.read(master, 1 << 16)
                except OSError:  # Linux says so at the end
                    data = b""
                if not data:
                    break
                written += data
            if until in written and not pressed:
                os.write(master, then)
                pressed = True
        code = _end_of(pid, deadline)
    finally:
        os.close(master)
    name = " ".join(words)
    if not pressed:
        raise Failed(f"trainmon {name}: {until.decode()} does not show")
    if code != 0:
        raise Failed(f"trainmon {name}: exit code {code} after the key {then.decode()}")
    return written


def _end_of(pid: int, deadline: float) -> int:
    while time.monotonic() < deadline + 1:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":  # smoke.py TRAINMON PYTHON DIRECTORY
    lines = failures(Place([sys.argv[1]], sys.argv[2], Path(sys.argv[3])))
    sys.exit("\n".join(lines) or 0)
