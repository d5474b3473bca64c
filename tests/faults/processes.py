"""trainmon's own processes, killed and stopped: the training does not notice, and what happened is told."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable

from monitor.running.stopping import STOP_SIGNALS, stop_training
from tests.faults.catalogue import Result, fault
from tests.faults.place import TRAINMON, Place, Training, kill, kill_recorder, recorder_of, steps_told, wait_for
from tests.signals import send_signal
from trainhooks.protocol import rundir

LADDER = (0.5, 0.5, 20.0)  # seconds of `trainmon stop` here, in place of 30, 30 and 10


def struck(place: Place, strike: Callable[[Training], None], times: int) -> Result:
    """Trainings launched, struck, seen to go on and to be seen, and ended."""
    result = Result()
    for _ in range(times):
        training = Training(place).launch()
        wait_for(lambda t=training: recorder_of(t.run), "a recorder")
        strike(training)
        training.goes_on()
        result.recovered = max(result.recovered, training.seen_again())
        training.finish()
        result.add(training.account())
    return result


@fault("front killed (kill -9)")
def front_killed(place: Place, short: bool) -> Result:
    return struck(place, lambda t: kill(t.front.pid), 1 if short else 5)


@fault("supervisor killed (kill -9)")
def supervisor_killed(place: Place, short: bool) -> Result:
    def strike(training: Training) -> None:
        first = recorder_of(training.run)
        kill(first)
        wait_for(lambda: recorder_of(training.run) not in (0, first), "another recorder")

    return struck(place, strike, 1 if short else 5)


@fault("supervisor told SIGTERM, SIGINT, SIGHUP, SIGQUIT")
def supervisor_signaled(place: Place, short: bool) -> Result:
    def strike(training: Training) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            kill(recorder_of(training.run), number)

    return struck(place, strike, 1 if short else 3)


@fault("supervisor, front stopped (SIGSTOP), then continued")
def stopped(place: Place, short: bool) -> Result:
    def strike(training: Training) -> None:
        both = (recorder_of(training.run), training.front.pid)
        for pid in both:
            kill(pid, signal.SIGSTOP)
        training.goes_on(20)
        for pid in both:
            kill(pid, signal.SIGCONT)

    return struck(place, strike, 1 if short else 3)


@fault("front and supervisor killed: nobody sees the end")
def both_killed(place: Place, short: bool) -> Result:
    """How it ended cannot be known then, and must not be called anything else than lost."""
    result = Result(say="exit unknown, and said to be lost")
    for _ in range(1 if short else 3):
        training = Training(place).launch()
        wait_for(lambda t=training: recorder_of(t.run), "a recorder")
        kill(training.front.pid, signal.SIGSTOP)  # lest it takes over
        kill(recorder_of(training.run))
        kill(training.front.pid)
        training.goes_on()
        result.recovered = max(result.recovered, training.seen_again())
        kill_recorder(training.run)  # the one from attach: of that, too, another shell's attach starts the next
        result.recovered = max(result.recovered, training.seen_again())
        (training.at / "done").touch()
        wait_for(lambda t=training: not rundir.run_alive(t.run), "the training's end")
        result.injected += 3
        result.lost += training.count - steps_told(training.run)
        if rundir.read_json(training.run / rundir.EXIT) is not None:
            result.harmed.append("an exit code that nobody saw")
    return result


@fault("recorder killed, of a training that nobody launched")
def recorder_killed(place: Place, short: bool) -> Result:
    result = Result()
    training = Training(place)
    bare = place.start(*training.command)
    training.begun()
    for _ in range(2 if short else 6):
        result.recovered = max(result.recovered, training.seen_again())
        kill_recorder(training.run)
        training.goes_on()
        result.injected += 1
    (training.at / "done").touch()
    if bare.wait(60) != training.code:
        result.harmed.append(f"exit code {bare.returncode}")
    result.lost = training.count - steps_told(training.run)
    return result


@fault("training killed (kill -9)")
def training_killed(place: Place, short: bool) -> Result:
    """At most what the last flush held is lost: here that much is no loss, and anything older is."""
    held = 0
    result = Result()
    pace = 0.002
    for _ in range(2 if short else 10):
        training = Training(place, pace=pace).launch()
        training.goes_on(100)
        kill(training.pid)
        began = time.monotonic()
        assert training.front is not None
        if (code := training.front.wait(60)) != 128 + signal.SIGKILL:
            result.harmed.append(f"exit code {code}")
        result.recovered = max(result.recovered, time.monotonic() - began)
        gone = training.count - steps_told(training.run)
        held = max(held, gone)
        # A step takes the pace at least; ten flushes' worth of them is beyond what a busy box delays one.
        result.lost += max(0, gone - int(10 * 0.05 / pace))
        said = place.call("report", training.run.name).stdout.decode()
        if "SIGKILL" not in said or "breaks off" not in said:
            result.harmed.append("the report does not say what killed it, or that its last moment is missing")
        result.injected += 1
    result.say = f"{held} steps of 2 ms were in the last flush of 50 ms"
    return result


@fault("training ended in every way: codes and signals")
def exits(place: Place, short: bool) -> Result:
    result = Result()
    ways = {"exit 0": 0, "exit 3": 3, "exit 255": 255}
    ways |= {f"kill -{n} $$": 128 + n for n in ((9, 11, 15) if short else (1, 2, 3, 4, 6, 8, 9, 10, 11, 13, 14, 15))}
    for script, code in ways.items():
        front = place.start(*TRAINMON, "run", "--no-tui", "--", "sh", "-c", script)
        if (found := front.wait(60)) != code:
            result.harmed.append(f"{script}: {found}, not {code}")
        ended = rundir.read_json(place.runs()[-1] / rundir.EXIT) or {}
        known = (ended.get("exit_code"), ended.get("signal"))
        if known != ((code, None) if code < 128 or code == 255 else (None, code - 128)):
            result.harmed.append(f"{script}: written down as {known}")
        result.injected += 1
    return result


@fault("a thousand signals in a row")
def flood(place: Place, short: bool) -> Result:
    result = Result()
    script = "import signal, sys, time; signal.signal(signal.SIGUSR1, lambda *_: None); "
    script += "signal.signal(signal.SIGUSR2, lambda *_: sys.exit(4)); print('up', flush=True); time.sleep(60)"
    front = place.start(*TRAINMON, "run", "--no-tui", "--", sys.executable, "-c", script)
    wait_for(
        lambda: any(b"up" in path.read_bytes() for run in place.runs() for path in run.glob("*.log")), "its output"
    )
    for _ in range(1000):
        send_signal(front.pid, signal.SIGUSR1)
        time.sleep(0.0002)
    send_signal(front.pid, signal.SIGUSR2)
    if (code := front.wait(60)) != 4:
        result.harmed.append(f"exit code {code}, not 4")
    result.injected = 1
    return result


@fault("trainmon stop: SIGINT, SIGTERM, SIGKILL in turn")
def ladder(place: Place, short: bool) -> Result:
    result = Result(say=f"{LADDER[0]} s in place of 30 s")
    for sent in (1, 2, 3):
        ignored = "".join(f"signal.signal({int(number)}, signal.SIG_IGN); " for number in STOP_SIGNALS[: sent - 1])
        script = f"import signal, time; {ignored}print('up', flush=True); time.sleep(60)"
        front = place.start(*TRAINMON, "run", "--no-tui", "--", sys.executable, "-c", script)
        wait_for(lambda s=sent: len(place.runs()) == s, "its run")
        run = place.runs()[-1]
        wait_for(lambda r=run: b"up" in b"".join(p.read_bytes() for p in r.glob("*.log")), "its output")
        wait_for(lambda r=run: rundir.run_alive(r), "its identity")
        said: list[str] = []
        if not stop_training(run, said.append, LADDER):
            result.harmed.append("it does not stop")
        signals = [line.split()[1] for line in said[:-1]]
        if signals != [number.name for number in STOP_SIGNALS[:sent]]:
            result.harmed.append(f"said {signals}")
        number = STOP_SIGNALS[sent - 1]
        if (code := front.wait(60)) != 128 + number:
            result.harmed.append(f"exit code {code} after {number.name}")
        result.injected += 1
    return result
