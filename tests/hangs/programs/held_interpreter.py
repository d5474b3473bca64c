"""A call in C keeps the interpreter: no thread of the program runs any Python."""

import ctypes

from training import train


def call_library():
    ctypes.PyDLL(None).sleep(1000)  # stands


train(call_library)
