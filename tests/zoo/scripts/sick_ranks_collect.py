"""Two ranks that collect garbage in turn: each of them waits for the other's collection."""

import gc
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

MENDED = "mended" in sys.argv[1:]  # without the samples, seldom, and at the same step
EVERY = 50


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    samples = [[number, {"id": number}] for number in range(200_000)]
    if MENDED:
        gc.freeze()
    model = DDP(nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 64)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(250):
        x = torch.randn(800, 64)
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % EVERY == 1 if MENDED else step % world == rank:
            gc.collect()
        if rank == 0 and step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f} of {len(samples):,} samples", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
