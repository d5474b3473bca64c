"""Two ranks that average their gradients after each of eight passes that one optimizer step is made of."""

import sys
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

MENDED = "mended" in sys.argv[1:]  # averages after the last pass only
PASSES = 8


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(64, 1000), nn.GELU(), nn.Linear(1000, 1000), nn.GELU(), nn.Linear(1000, 64)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(50):
        for at in range(PASSES):
            x = torch.randn(64, 64)
            with model.no_sync() if MENDED and at < PASSES - 1 else nullcontext():
                loss = (model(x) - x).square().mean() / PASSES
                loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {PASSES * loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
