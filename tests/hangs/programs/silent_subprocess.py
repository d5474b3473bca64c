"""A sandbox runs a program that never ends."""

import subprocess

from training import train


def run_tests():
    subprocess.run(["sleep", "1000"], capture_output=True)  # stands


train(run_tests)
