"""Two ranks; backward takes one of them longer, where the other waits for it."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Delayed(torch.autograd.Function):
    """The identity; its gradient comes late on one rank, as from a kernel that has no fast form there."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        if dist.get_rank() == 1:
            time.sleep(0.03)
        return grad


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x):
        return self.last(Delayed.apply(torch.relu(self.first(x))))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(150):
        x = torch.randn(512, 64)
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
