"""What the scripts share: their options, and their own measure of the samples a second."""

import argparse
import json
import os
import time

import torch


def options(**more):
    """--device, --seconds, --mended, and a script's own: name=default."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--seconds", type=float, default=8.0, help="of training, after the warm-up")
    parser.add_argument("--mended", action="store_true", help="the same training without what is wrong with it")
    for name, default in more.items():
        if isinstance(default, bool):
            parser.add_argument(f"--{name}", action="store_true")
        else:
            parser.add_argument(f"--{name}", type=type(default), default=default)
    given = parser.parse_args()
    wait_for_turn()
    given.cpu = given.device == "cpu"
    if given.cpu:
        torch.set_num_threads(1)
    torch.manual_seed(0)
    return given


def wait_for_turn():
    """Imports may go on while another program trains; what uses the device waits until that one has ended."""
    turn = os.environ.get("GPU_CHECK_TURN")
    while turn and not os.path.exists(turn):
        time.sleep(0.02)


def learn(optimizer, loss, step=None, every=1):
    """One update by a loss, which is printed at each `every`-th step."""
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if step is not None and step % every == 0:
        print(f"step {step}: loss {loss.item():.4f}")


class Meter:
    """Samples a second between two moments at which the device had nothing left to do: after the warm-up, at the end.

    The warm-up ends with step `warm`, or sooner where steps are long: after a quarter of the time, the first step,
    in which libraries are loaded and compilers work, apart.
    """

    def __init__(self, given, warm=5):
        self.seconds = given.seconds
        self.cuda = given.device == "cuda"
        self.warm = 1 if given.cpu else warm
        self.count = self.samples = 0
        self.first = self.since = self.rate = None

    def _now(self):
        if self.cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    def over(self, samples):
        """To be called at the end of each step with the samples it has used. Returns whether it was the last one."""
        self.count += 1
        now = time.perf_counter()
        if self.since is None:
            self.first = self.first or now
            if self.count >= self.warm or (self.count > 1 and now - self.first > self.seconds / 4):
                self.since = self._now()
            return False
        self.samples += samples
        return now - self.since >= self.seconds

    def steps(self, samples):
        """Yield the numbers of steps that use so many samples each, until the time is over; tell then."""
        step = 0
        while step == 0 or not self.over(samples):
            yield step
            step += 1
        self.tell()

    def tell(self, **more):
        """The line for whoever has started the script."""
        if self.since is not None and self.samples:
            self.rate = self.samples / (self._now() - self.since)
        peak = torch.cuda.max_memory_allocated() / 2**30 if self.cuda else None
        told = {"samples_per_second": self.rate, "steps": self.count, "peak_gib": peak, **more}
        print(json.dumps(told), flush=True)
