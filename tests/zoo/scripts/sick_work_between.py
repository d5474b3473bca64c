"""Pictures that an averaged copy of a diffusion model makes after every tenth step."""

import copy
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

MENDED = "mended" in sys.argv[1:]  # makes them once, at the end
torch.manual_seed(0)
NOISES = torch.linspace(0.02, 1.0, 60)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(65, 300), nn.SiLU(), nn.Linear(300, 300), nn.SiLU(), nn.Linear(300, 64))

    def forward(self, x, noise):
        return self.inner(torch.cat([x, noise.expand(len(x), 1)], 1))


net = Denoiser()
average = copy.deepcopy(net)
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)


@torch.inference_mode()
def draw(model, count=128):
    x = torch.randn(count, 64)
    for noise in NOISES.flip(0):
        x = x - 0.02 * model(x, noise) + 0.01 * torch.randn_like(x)
    return x


batches = DataLoader(TensorDataset(torch.rand(6400, 64)), batch_size=64, shuffle=True)
step = 0
for epoch in range(12 if MENDED else 6):
    for (x,) in batches:
        noise = NOISES[torch.randint(len(NOISES), (1,))]
        opt.zero_grad()
        loss = (net(x + noise * torch.randn_like(x), noise) - x).square().mean()
        loss.backward()
        opt.step()
        for kept, new in zip(average.parameters(), net.parameters()):
            kept.data.lerp_(new.data, 0.01)
        step += 1
        if step % 10 == 0 and not MENDED:
            print("step", step, "loss", round(loss.item(), 4), "drawn", round(draw(average).std().item(), 3))
print("drawn", round(draw(average).std().item(), 3))
