"""A lock is held while a process is forked: the child waits for ever, and the parent for the child."""

import multiprocessing
import threading

from training import train

lock = threading.Lock()


def score():
    with lock:  # child
        pass


def evaluate():
    with lock:
        worker = multiprocessing.get_context("fork").Process(target=score)
        worker.start()
        worker.join()  # stands


train(evaluate)
