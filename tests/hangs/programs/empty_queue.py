"""The thread that fills the queue has ended."""

import queue
import threading

from training import train

batches = queue.Queue()
threading.Thread(target=lambda: None).start()


def next_batch():
    return batches.get()  # stands


train(next_batch)
