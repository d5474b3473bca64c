"""Three threads meet at a barrier for four."""

import threading

from training import train

meeting = threading.Barrier(4)


def gather():
    for _ in range(2):
        threading.Thread(target=meeting.wait, daemon=True).start()
    meeting.wait()  # stands


train(gather)
