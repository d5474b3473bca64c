"""A terminal for a program's stdin that has its caller's size and nothing to read.

What is typed does not reach the program, but it may ask its terminal how large it is. A read finds the end of input at
once: the terminal is in a mode in which a read waits for nothing. A program that changes the mode, as readline does, is
sent the character by which a terminal ends input.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import termios
import threading

END = b"\x04"
LOOK_SECONDS = 0.1  # between two looks at the mode
_LOCAL, _CHARACTERS = 3, 6  # in what tcgetattr returns


def open_terminal(columns: int, rows: int) -> tuple[int, int]:
    """Return the master and the slave of a new pseudo-terminal of this size, without echo."""
    master, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    modes = termios.tcgetattr(terminal)
    modes[1] &= ~termios.ONLCR  # lines end as the program ends them; the reader's terminal adds the return
    modes[_LOCAL] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, modes)
    return master, terminal


def open_input(columns: int, rows: int) -> tuple[int, int]:
    """Return the same for a stdin, in the mode in which a read finds the end."""
    master, terminal = open_terminal(columns, rows)
    modes = termios.tcgetattr(terminal)
    modes[_LOCAL] &= ~termios.ICANON
    modes[_CHARACTERS][termios.VMIN] = modes[_CHARACTERS][termios.VTIME] = 0
    termios.tcsetattr(terminal, termios.TCSANOW, modes)
    os.set_blocking(master, False)
    return master, terminal


def end_reads(master: int, over: threading.Event) -> None:
    """End reads in another mode, until `over`. What the program writes to its stdin goes nowhere."""
    while not over.wait(LOOK_SECONDS):
        with contextlib.suppress(OSError, termios.error):  # all that has it open has closed it; the queue is full
            modes = termios.tcgetattr(master)
            if modes[_LOCAL] & termios.ICANON or modes[_CHARACTERS][termios.VMIN]:
                os.write(master, END)
            os.read(master, 1 << 16)
