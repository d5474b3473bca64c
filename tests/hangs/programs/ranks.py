"""Ranks that lose each other; the first argument after the step says how."""

import os
import sys
import threading
import time

import torch
import torch.distributed as dist
from training import AT, SECONDS, mark, model, optimizer

HOW = sys.argv[2]
rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
net = torch.nn.parallel.DistributedDataParallel(model)


def validate():
    threading.Event().wait()  # skip


def long_evaluation():
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        torch.randn(64, 64) @ torch.randn(64, 64)


def call(collective, *args):
    collective(*args)  # called


def batches():
    for number in range(max(AT + 10, 60)):
        if number == AT and rank == 1:
            mark()
            if HOW == "skip":
                validate()
            if HOW == "early":
                return
            if HOW == "alone":
                long_evaluation()
            if HOW == "raise":
                threading.Thread(target=threading.Event().wait).start()  # keeps the process alive
                raise ValueError("a sample without a label")  # raised
            if HOW == "line":
                call(dist.barrier)
            if HOW == "save":
                dist.barrier()  # reordered
        yield torch.randn(4, 8)


for batch in batches():
    optimizer.zero_grad()
    net(batch).sum().backward()
    optimizer.step()
    total = torch.zeros(1)
    call(dist.all_reduce, total)
dist.barrier()  # early
