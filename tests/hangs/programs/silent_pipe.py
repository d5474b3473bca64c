"""An environment in a process of its own does not answer through its pipe."""

import multiprocessing
import time

from training import train

here, there = multiprocessing.Pipe()


def environment():
    time.sleep(1000)


def reset():
    multiprocessing.get_context("fork").Process(target=environment, daemon=True).start()
    here.send("reset")
    return here.recv()  # stands


train(reset)
