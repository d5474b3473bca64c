"""All steps are done, and a thread that is no daemon keeps the program alive."""

import threading

from training import mark, train


def upload():
    threading.Event().wait()  # stands


train(lambda: None)
threading.Thread(target=upload, name="uploader").start()
mark()
