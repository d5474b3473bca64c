"""A worker of a pool is killed while it works: its task is never done, and nobody says so."""

import multiprocessing
import os
import signal

from training import train


def score(sample):
    if sample == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return sample


def evaluate():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(score, range(4), chunksize=1)  # stands


train(evaluate)
