"""Two ranks that average each parameter by a call of its own."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

MENDED = "mended" in sys.argv[1:]  # in DDP's default buckets


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    layers = [layer for _ in range(40) for layer in (nn.Linear(96, 96), nn.GELU())]
    model = DDP(nn.Sequential(*layers), **({} if MENDED else {"bucket_cap_mb": 0.001}))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(200):
        x = torch.randn(400, 96)
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
