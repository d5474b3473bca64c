"""A pipeline of two stages, of which the second has most of the layers."""

import sys

import torch
import torch.distributed as dist
from torch import nn

MENDED = "mended" in sys.argv[1:]  # as many layers in both
LAYERS = (12, 12) if MENDED else (3, 24)
WIDTH, PARTS = 256, 4


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    stage = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS[rank])])
    optimizer = torch.optim.SGD(stage.parameters(), lr=1e-4)
    for step in range(150):
        parts = []
        if rank == 0:
            for _ in range(PARTS):
                out = stage(torch.randn(128, WIDTH))
                parts.append((out, dist.isend(out.detach(), 1)))
            for out, sent in parts:
                sent.wait()
                gradient = torch.empty_like(out)
                dist.recv(gradient, 1)
                out.backward(gradient)
        else:
            for _ in range(PARTS):
                given = torch.empty(128, WIDTH)
                dist.recv(given, 0)
                given.requires_grad_()
                parts.append((given, stage(given).square().mean()))
            for given, loss in parts:
                loss.backward()
                dist.send(given.grad, 0)
            if step % 25 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
