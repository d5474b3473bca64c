"""Slow but healthy: the first argument after the step says how."""

import math
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zlib

import torch
from training import SECONDS, train

import trainhooks as th

HOW = sys.argv[2]
UNTIL = time.monotonic() + 3600.0


def until():
    return time.monotonic() + SECONDS


def compile():
    """A compiler in a process of its own."""
    code = f"import time\nend = time.monotonic() + {SECONDS}\nwhile time.monotonic() < end: sum(range(10000))"
    subprocess.run([sys.executable, "-c", code])


def tokenize():
    """One call in Python that computes."""
    end = until()
    words = {}
    while time.monotonic() < end:
        words[hash(str(len(words) % 1000))] = math.sqrt(len(words))


def factorize():
    """One line that calls C, again and again."""
    end = until()
    data = os.urandom(1_000_000)
    while time.monotonic() < end:
        zlib.compress(data, 9)


def generate():
    end = until()
    layer = torch.nn.Linear(256, 256)
    while time.monotonic() < end:
        with torch.no_grad():
            layer(torch.randn(64, 256))


def hold():
    """A long computation in C that keeps the interpreter."""
    sum(range(20_000_000_000))


def evaluate():
    with th.span("evaluation"):
        tokenize()


def save():
    """A big checkpoint to a slow disk."""
    with th.span("checkpoint"):
        end = until()
        with tempfile.TemporaryFile() as file:
            while time.monotonic() < end:
                file.seek(0)
                file.write(os.urandom(4_000_000))
                file.flush()
                os.fsync(file.fileno())
                time.sleep(0.5)


def download():
    """A file that comes slowly."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        connection, _ = server.accept()
        end = until()
        while time.monotonic() < end:
            connection.sendall(os.urandom(1_000_000))
            time.sleep(0.3)
        connection.close()

    threading.Thread(target=serve, daemon=True).start()
    with socket.create_connection(server.getsockname()) as connection, tempfile.TemporaryFile() as file:
        while data := connection.recv(1 << 16):
            file.write(data)


def debugger():
    breakpoint()


def person():
    input("go on? ")


def retry():
    """A server that is busy: the program says so, and waits between its tries."""
    end = until()
    tries = 0
    while time.monotonic() < end:
        tries += 1
        print(f"server busy, try {tries}", flush=True)
        time.sleep(5.0)


def pool():
    """Work of other processes."""
    import multiprocessing

    with multiprocessing.get_context("fork").Pool(2) as workers:
        workers.map(burn, range(2))


def burn(_):
    end = until()
    while time.monotonic() < end:
        sum(range(10000))


train(globals()[HOW])
