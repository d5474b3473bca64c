"""Who asks a training: floods of requests, askers killed, broken or silent, and an end in the middle of them."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.faults.catalogue import Result, fault
from tests.faults.place import Place, Training, wait_for
from trainhooks.protocol import control

SILENT = 60  # connections that say nothing, or not all
# Each asks as fast as it is answered, in turn; it dies with the training, or is killed.
ASKER = """
import socket, sys
from pathlib import Path
from trainhooks.protocol import control
path, asked = Path(sys.argv[1]), 0
requests = [control.StackRequest(), control.MemoryRequest(), control.MemoryRequest(growth=True), control.TraceRequest()]
broken = [b'{"kind":"memory","growth":"yes"}\\n', b'{"kind":' + b'[' * 9000, b'\\xff\\n']
lines = [*(each.line() for each in requests), *broken]
while path.exists():
    try:
        with socket.socket(socket.AF_UNIX) as caller, control.address(path) as address:
            caller.settimeout(10)
            caller.connect(str(address))
            caller.sendall(lines[asked % len(lines)])
            caller.recv(1 << 16)
    except OSError:
        continue
    asked += 1
    Path(sys.argv[2]).write_text(str(asked))
"""


def control_socket(training: Training) -> Path:
    wait_for(lambda: list(training.run.glob("control-*.sock")), "the control socket")
    (path,) = training.run.glob("control-*.sock")
    return path


def askers(place: Place, training: Training, number: int) -> list[tuple[subprocess.Popen[bytes], Path]]:
    """Start processes that ask, and wait until each has been answered."""
    path, started = control_socket(training), []
    for each in range(number):
        told = training.at / f"asked{each}"
        started.append((place.start(sys.executable, "-c", ASKER, str(path), str(told)), told))
    for _, told in started:
        wait_for(lambda told=told: told.exists() and told.read_text() not in ("", "0"), "an answer")
    return started


def whole(training: Training) -> Result:
    training.finish()
    return training.account()


@fault("control socket flooded with requests, good and broken")
def flooded(place: Place, short: bool) -> Result:
    training = Training(place).launch()
    number = 2 if short else 8
    asking = askers(place, training, number)
    wait_for(lambda: all(int(told.read_text() or 0) >= 30 for _, told in asking), "an asker's 30th answer")
    training.goes_on()
    result = whole(training)
    result.injected = sum(int(told.read_text()) for _, told in asking)
    return result


@fault("askers of the control socket killed, and some that never speak")
def killed(place: Place, short: bool) -> Result:
    training = Training(place).launch()
    path = control_socket(training)
    with ExitStack() as held, control.address(path) as address:
        for number in range(SILENT):
            caller = held.enter_context(socket.socket(socket.AF_UNIX))
            caller.settimeout(0.1)
            with suppress(OSError):  # more than wait for it are refused
                caller.connect(str(address))
                caller.sendall(control.StackRequest().line()[: number % 8])
        training.goes_on()
    for _ in range(2 if short else 6):
        for process, _ in askers(place, training, 2):
            process.kill()
    training.goes_on()
    result = whole(training)
    result.injected = SILENT + 2 * (2 if short else 6)
    return result


@fault("the training ends while it is asked")
def ended(place: Place, short: bool) -> Result:
    result = Result()
    for _ in range(1 if short else 4):
        training = Training(place).launch()
        askers(place, training, 3)
        result.add(whole(training))
    return result
