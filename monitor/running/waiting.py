"""The smallest process that can be a program's parent: it waits for its end, and is then replaced by what records that.

Where memory is near its limit the supervisor is replaced by this script (see `leaving`), which imports nothing of
trainmon: `python -I -S waiting.py DIRECTORY PID PIPE STDIN SIGNALS MASK COMMAND...`, the last three with commas.
"""

from __future__ import annotations

import os
import select
import signal
import struct
import sys
import termios
import time

SIGNAL_TIME = struct.Struct("<Bd")  # as in `supervise`
LOOK_SECONDS = 1.0  # between two looks at what this process does not do
MIN_FREE_BYTES = 4 << 30  # of the disk: twice what is printed in a second at most


def main(directory: str, pid: int, pipe: int, stdin: int, signals: list[int], mask: list[int]) -> None:
    """Wait until the program has ended, or more than that is to be done. Signals are blocked before and after.

    Args:
        directory: on the disk of the output. Where that is nearly full, older output is to be freed.
        pid: the program's.
        pipe: to the front, which is told of signals.
        stdin: the program's terminal for it, in which reads are to be ended where it has another mode; -1: none.
        signals: those that may end this process.
        mask: of the signals that are blocked.
    """

    def tell(number: int, _frame: object) -> None:
        try:  # `contextlib` takes memory
            os.write(pipe, SIGNAL_TIME.pack(number, time.monotonic()))
        except OSError:
            return  # the front has ended

    for number in signals:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, tell)
    end = os.pidfd_open(pid)
    mode = _mode(stdin)
    ended = select.poll()
    ended.register(end, select.POLLIN)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    while not ended.poll(1000 * LOOK_SECONDS) and is_roomy(directory) and _mode(stdin) == mode:
        pass
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    os.close(end)


def is_roomy(directory: str) -> bool:
    """Return whether all that a program prints finds room on the disk until the next look."""
    try:
        free = os.statvfs(directory)
    except OSError:
        return True
    return free.f_bavail * free.f_frsize >= MIN_FREE_BYTES


def _mode(terminal: int) -> object:
    try:
        return termios.tcgetattr(terminal) if terminal >= 0 else None
    except termios.error:  # all that has it open has closed it
        return None


def numbers(text: str) -> list[int]:
    """Return the numbers of a list with commas."""
    return [int(word) for word in text.split(",") if word]


if __name__ == "__main__":
    place, pid, pipe, stdin, allowed, blocked = sys.argv[1:7]
    main(place, int(pid), int(pipe), int(stdin), numbers(allowed), numbers(blocked))
    os.execv(sys.argv[7], sys.argv[7:])
