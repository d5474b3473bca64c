"""Two ranks; in each step one has long texts and the other short ones."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

MENDED = "mended" in sys.argv[1:]  # at the same time


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 64)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(240):
        is_long = step % 2 == (0 if MENDED else rank)
        x = torch.randn(4000 if is_long else 400, 64)
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
