"""Terminals that close, connections that drop, sessions that end: the training does not notice."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable

from tests.e2e.conftest import Terminal
from tests.faults.catalogue import NotHere, Result, fault
from tests.faults.place import TRAINMON, Place, Training, steps_told, wait_for
from tests.signals import send_signal
from trainhooks.protocol import rundir

COUNTS = "training"  # the phase that stands on the dashboard once it shows the training


def on_terminal(place: Place, strike: Callable[[Training, Terminal], None], times: int, *options: str) -> Result:
    """Trainings under a trainmon on a terminal of its own: struck, come back to, ended."""
    result = Result()
    for _ in range(times):
        training = Training(place)
        terminal = place.trainmon("run", *options, "--", *training.command)
        training.begun()
        if not options:
            terminal.wait_for(COUNTS)
        strike(training, terminal)
        training.goes_on()
        result.recovered = max(result.recovered, training.seen_again())
        training.finish()
        result.add(training.account())
        terminal.kill()
        terminal.close()
    return result


@fault("terminal closed under the dashboard (SSH drop)")
def closed(place: Place, short: bool) -> Result:
    return on_terminal(place, lambda _, terminal: terminal.close(), 1 if short else 5)


@fault("terminal closed, output passed through")
def closed_passing(place: Place, short: bool) -> Result:
    return on_terminal(place, lambda _, terminal: terminal.close(), 1 if short else 5, "--no-tui")


@fault("dashboard killed (kill -9)")
def dashboard_killed(place: Place, short: bool) -> Result:
    return on_terminal(place, lambda _, terminal: send_signal(terminal.pid, signal.SIGKILL), 1 if short else 5)


@fault("dashboard stopped (SIGSTOP)")
def dashboard_stopped(place: Place, short: bool) -> Result:
    def strike(training: Training, terminal: Terminal) -> None:
        send_signal(terminal.pid, signal.SIGSTOP)
        training.goes_on(50)
        send_signal(terminal.pid, signal.SIGCONT)
        terminal.wait_for(lambda _: True)

    return on_terminal(place, strike, 1 if short else 3)


@fault("hangup (SIGHUP) of the front")
def hangup(place: Place, short: bool) -> Result:
    return on_terminal(
        place, lambda _, terminal: send_signal(terminal.pid, signal.SIGHUP), 1 if short else 5, "--no-tui"
    )


@fault("Ctrl-C at the dashboard, then cancel; q")
def asked(place: Place, short: bool) -> Result:
    def strike(training: Training, terminal: Terminal) -> None:
        terminal.press("\x03")
        terminal.wait_for(lambda screen: "detach" in screen.lower() and "cancel" in screen.lower())
        terminal.press("c")
        terminal.wait_for(lambda screen: "cancel" not in screen.lower())
        training.goes_on()
        terminal.press("q")
        assert terminal.exit_code() == 0, "leaving is no failure"

    return on_terminal(place, strike, 1 if short else 3)


@fault("nohup and setsid, then their terminal closed")
def nohup(place: Place, short: bool) -> Result:
    result = Result()
    for before in (["nohup"], ["setsid", "--wait"]):
        training = Training(place)
        out = training.at / "out"
        words = [*before, *TRAINMON, "run", "--no-tui", "--", *training.command]
        script = f'"$@" > {out} 2> {training.at}/err < /dev/null & wait'
        shell = Terminal(["/bin/sh", "-c", script, "sh", *words], place.environment, 80, 24)
        training.begun()
        shell.close()
        os.waitpid(shell.pid, 0)  # the shell dies of the hangup
        training.goes_on()
        result.recovered = max(result.recovered, training.seen_again())
        training.finish()
        expected = "".join(f"step {n + 1}\n" for n in range(training.count))
        wait_for(lambda o=out, e=expected: o.read_text() == e, "its output")
        result.add(training.account())
    return result


@fault("tmux: session killed")
def tmux(place: Place, short: bool) -> Result:
    if shutil.which("tmux") is None:
        raise NotHere("there is no tmux")
    socket = ["tmux", "-S", str(place.root / "tmux"), "-f", "/dev/null"]
    result = Result()
    for _ in range(1 if short else 3):
        training = Training(place)
        words = [*socket, "new-session", "-d", "-x", "120", "-y", "40", *TRAINMON, "run", "--", *training.command]
        subprocess.run(words, env=place.environment, cwd=training.at.parents[1], check=True)
        training.begun()
        subprocess.run([*socket, "kill-server"], check=True)
        training.goes_on()
        result.recovered = max(result.recovered, training.seen_again())
        training.finish()
        result.add(training.account())
    return result


@fault("Slurm's environment: one run, its job's name and rank")
def slurm(place: Place, short: bool) -> Result:
    """There is no Slurm here: its variables are what trainmon goes by."""
    job = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "1"}
    place.environment.update(job)
    training = Training(place).launch()
    training.goes_on()
    result = Result(recovered=training.seen_again(), say="by its environment only")
    training.finish()
    result.add(training.account())
    return result


@fault("process 1 of a container: hangup, close, q, TERM, orphans")
def first_process(place: Place, short: bool) -> Result:
    """Where trainmon is process 1, all ends with it: so it stays, and passes on what ends the training."""
    inside = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode:
        raise NotHere("no PID namespace can be made here (unshare)")
    result = Result()
    outside = ["/bin/sh", "-c", 'trap : HUP; "$@"; exit', "sh"]  # a container outlives the terminal that shows it
    for strike in (_hung_up, _closed, _left, _ended):
        training = Training(place)
        terminal = Terminal(
            [
                *(outside if strike is _closed else ()),
                shutil.which("unshare") or "",
                *inside[1:],
                *TRAINMON,
                "run",
                *(() if strike in (_closed, _left) else ("--no-tui",)),
                "--",
                *training.command,
            ],
            place.environment,
            120,
            40,
        )
        place.terminals.append(terminal)
        training.begun()
        strike(training, terminal, result)
        result.injected += 1
    return result


def _hung_up(training: Training, terminal: Terminal, result: Result) -> None:
    send_signal(_first(terminal), signal.SIGHUP)
    training.goes_on(50)
    _finished(training, result, terminal)


def _closed(training: Training, terminal: Terminal, result: Result) -> None:
    terminal.wait_for(COUNTS)
    terminal.close()
    training.goes_on(50)
    _finished(training, result, terminal)


def _left(training: Training, terminal: Terminal, result: Result) -> None:
    terminal.wait_for(COUNTS)
    terminal.press("q")
    terminal.wait_for("waiting here")
    training.goes_on(50)
    _finished(training, result, terminal)


def _finished(training: Training, result: Result, terminal: Terminal) -> None:
    (training.at / "done").touch()
    wait_for(lambda: rundir.read_json(training.run / rundir.EXIT) is not None, "the exit's file")
    if (ended := rundir.read_json(training.run / rundir.EXIT) or {}).get("exit_code") != training.code:
        result.harmed.append(f"ended as {ended}")
    if (code := terminal.exit_code()) != training.code:
        result.harmed.append(f"exit code {code}")
    result.lost += training.count - steps_told(training.run)


def _ended(training: Training, terminal: Terminal, result: Result) -> None:
    """`docker stop`: SIGTERM to process 1."""
    send_signal(_first(terminal), signal.SIGTERM)
    if (code := terminal.exit_code()) != 128 + signal.SIGTERM:
        result.harmed.append(f"exit code {code}")
    ended = rundir.read_json(training.run / rundir.EXIT) or {}
    if ended.get("signal") != signal.SIGTERM:
        result.harmed.append(f"ended as {ended}")


def _first(terminal: Terminal) -> int:
    """The first process of the container, as seen from outside."""
    with open(f"/proc/{terminal.pid}/task/{terminal.pid}/children") as source:
        (pid,) = source.read().split()
    return int(pid)
