"""A loop that runs its model once a step, or twice: --twice."""

import sys
import time

import torch


class Slow(torch.nn.Module):
    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        time.sleep(0.01)  # beside which a busy machine's hiccups are small
        return batch


if __name__ == "__main__":
    torch.set_num_threads(1)
    model = torch.nn.Sequential(Slow(), *[torch.nn.Linear(384, 384) for _ in range(6)])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for batch in torch.utils.data.DataLoader(torch.randn(8_000, 384), batch_size=64):
        if "--twice" in sys.argv:
            print(f"loss {model(batch).square().mean().item():.4f}")
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
