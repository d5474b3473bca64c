"""Two ranks that average sixty metrics one by one in each step."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

MENDED = "mended" in sys.argv[1:]  # as one tensor, once every so many steps
EVERY = 20


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 128)))
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(600):
        x = torch.randn(256, 128)
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        metrics = [parameter.norm() for parameter in model.parameters()] * 15
        if not MENDED:
            for metric in metrics:
                dist.all_reduce(metric.detach())
        elif step % EVERY == 0:
            dist.all_reduce(torch.stack(metrics).detach())
        if rank == 0 and step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f} norm {metrics[0].item() / world:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
