"""An evaluation in a process of its own prints, and ends no more, for nobody reads its queue."""

import multiprocessing

from training import train

context = multiprocessing.get_context("fork")
results = context.Queue()


def evaluate():
    results.put(b"x" * 10_000_000)  # more than a pipe holds


def run_evaluation():
    child = context.Process(target=evaluate)
    child.start()
    child.join()  # stands


train(run_evaluation)
