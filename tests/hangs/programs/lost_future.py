"""One of six judges never returns."""

import threading
from concurrent.futures import ThreadPoolExecutor

from training import train


def judge(sample):
    if sample == 3:
        threading.Event().wait()
    return sample


def rewards():
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(judge, sample) for sample in range(6)]
        return [future.result() for future in futures]  # stands


train(rewards)
