"""An evaluation, announced as such, waits for a process that waits itself."""

import subprocess

from training import train

import trainhooks as th


def evaluate():
    with th.span("evaluation"):
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        child.stdout.read()  # stands


train(evaluate)
