"""Two threads take two locks in different order."""

import threading
import time

from training import train

cache, log = threading.Lock(), threading.Lock()


def flush():
    with log:
        time.sleep(0.5)
        with cache:
            pass


def lookup():
    with cache:
        threading.Thread(target=flush, daemon=True).start()
        time.sleep(1.0)
        with log:  # stands
            pass


train(lookup)
