"""The process that starts one run of `trainmon try`, and that stops it where whoever asked for it is gone."""

from __future__ import annotations

import os
import signal
import sys
import time

from monitor.running import command, launch
from monitor.running.stopping import stop_training

LOOK_SECONDS = 0.2
WAITS = (10.0, 5.0, 5.0)  # seconds after SIGINT, SIGTERM and SIGKILL: what is saved at the end is thrown away


def main(*words: str) -> None:
    """Start the program, print the run's directory, and wait for its end."""
    parent = os.getppid()
    # A shell's background job ignores it, and its programs with it: each run would then wait for the next signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        command.check_executable(words)
        # Traced steps are slower than others, and nobody asks such a run for a trace.
        training = launch.start(list(words), launch.Options(name="try", trace=False, control=False))
    except (command.CannotRun, command.CannotRecord) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
    sys.stdout.write(f"{training.run}\n")
    sys.stdout.flush()
    while training.poll() is None:
        if os.getppid() != parent:
            stop_training(training.run, lambda line: None, WAITS)
        time.sleep(LOOK_SECONDS)
