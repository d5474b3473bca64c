"""A loop of 200 steps; its time lies in steps, between them and in an evaluation, and one of these may take longer.

Usage: paired.py WHERE FACTOR [busy] [printed]: WHERE (steps, between, evaluation) makes the whole loop FACTOR times as
long, `once` its first step. `busy` computes where others sleep; `printed` tells its steps on stdout alone.
"""

import sys
import time
from contextlib import nullcontext

import trainhooks as th

STEPS, EVERY = 200, 10
SECONDS = {"steps": 0.03, "between": 0.01, "evaluation": 0.1}  # an evaluation lies after every tenth step
LOOP = SECONDS["steps"] + SECONDS["between"] + SECONDS["evaluation"] / EVERY

where, factor, *more = sys.argv[1:]
longer = (float(factor) - 1.0) * LOOP * (EVERY if where == "evaluation" else 1)
seconds = {name: took + (longer if name == where else 0.0) for name, took in SECONDS.items()}


def compute(budget: float) -> None:
    """Compute for so many seconds of CPU time: beside a neighbor it takes longer."""
    until = time.thread_time() + budget
    while time.thread_time() < until:
        sum(range(200))


spend = compute if "busy" in more else time.sleep
is_printed = "printed" in more
for number in range(1, STEPS + 1):
    with nullcontext() if is_printed else th.step():
        spend(seconds["steps"])
        if number == 1:
            time.sleep(0.5 + (2.0 if where == "once" else 0.0))
    if not is_printed:
        th.count(samples=4)
    spend(seconds["between"])
    if number % EVERY == 0:
        spend(seconds["evaluation"])
    if is_printed:
        print(f"step {number}/{STEPS} loss {1 / number:.4f}", flush=True)
