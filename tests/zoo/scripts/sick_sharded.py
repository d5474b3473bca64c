"""Two ranks that shard a model which fits each of them, and send its weights in each small step."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

MENDED = "mended" in sys.argv[1:]  # steps that are large compared to the weights
ROWS = 2048 if MENDED else 4


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = nn.Sequential(*[nn.Sequential(nn.Linear(384, 384), nn.GELU()) for _ in range(10)])
    for block in model:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(60 if MENDED else 250):
        x = torch.randn(ROWS, 384)
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
