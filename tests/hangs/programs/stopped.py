"""Somebody pressed Ctrl-Z, or a scheduler suspended the job."""

import os
import signal

from training import train

train(lambda: os.kill(os.getpid(), signal.SIGSTOP))  # stands
