"""Raise at each place in the hooks at which Python lets signal handlers and other threads raise, and count the catches.

Arguments: `steady` (steps of one training) or `anew` (each time another model), each how manieth place, the exception
(`ours`: as a mistake of the hooks raises it). Prints how often it raised, was caught, and how many steps were whole.
"""

import opcode
import sys

import torch
from torch import nn

if sys.argv[3] == "ours":
    from trainhooks.auto.instrumentation import framework


class TimeIsUp(Exception):
    pass


what, stride, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
KIND = {"own": TimeIsUp, "builtin": TimeoutError, "base": KeyboardInterrupt, "ours": TypeError}[name]
# Python looks for signals and for exceptions of other threads at the begin of functions, after calls, and in loops.
LOOKS = {number for number, text in enumerate(opcode.opname) if text.startswith(("CALL", "RESUME", "JUMP_BACK"))}
LOOKS |= {opcode.opmap[text] for text in ("JUMP_ABSOLUTE",) if text in opcode.opmap}
BEGIN = -1
# Where the program comes in, and where plain values are compared, no mistake is made.
PLAIN = ("slow_next", "is_ours", "in_fetch", "__enter__", "__exit__")

before: dict[int, int] = {}  # by frame: its last instruction
passed = 0  # places
wanted = 0  # the place that raises; 0: none


def trace(frame, event, argument):
    if "/trainhooks/" not in frame.f_code.co_filename:
        return None
    if name == "ours" and (frame.f_code.co_name in PLAIN or "/trainhooks/" not in frame.f_back.f_code.co_filename):
        return None
    frame.f_trace_opcodes, frame.f_trace_lines = True, False
    before[id(frame)] = BEGIN
    return look


def look(frame, event, argument):
    global passed
    if event == "opcode":
        last, before[id(frame)] = before[id(frame)], frame.f_code.co_code[frame.f_lasti]
        if last in LOOKS or (last == BEGIN and name != "ours"):
            passed += 1
            if passed == wanted:
                if name == "ours":
                    del frame  # which a signal handler would have
                    raise KIND("a text")
                raise KIND
    return look


torch.manual_seed(0)
torch.set_num_threads(1)
data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = torch.utils.data.DataLoader(data, batch_size=4)
batches = iter(loader)
whole = 0


def make():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def train(steps):
    global batches, whole
    for _ in range(steps):
        batch = next(batches, None)
        if batch is None:
            batches = iter(loader)
            batch = next(batches)
        loss = nn.functional.mse_loss(model(batch[0]), batch[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        whole += 1


model, optimizer = make()
train(20)
raised = caught = 0
while True:
    wanted, passed = raised * stride + 1, 0
    before.clear()
    sys.settrace(trace)
    try:
        if what == "anew":
            model, optimizer = make()
        train(2)
    except KIND:
        caught += 1
    finally:
        sys.settrace(None)
    if passed < wanted:
        break
    raised, wanted = raised + 1, 0
    if name == "ours":
        framework.tracker.silent = False
    batches = iter(loader)
    train(5)
train(20)
print(raised, caught, whole)
