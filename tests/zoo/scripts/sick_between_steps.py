"""A curve redrawn as text after each step, from all values so far, while the model waits."""

import math
import sys
import time

import torch

MENDED = "mended" in sys.argv[1:]  # draws no curve
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(32, 128), torch.nn.Tanh(), torch.nn.Linear(128, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
curve = []


def smooth(values, width=400):
    weights = [math.exp(-((i - width / 2) ** 2) / width) for i in range(width)]
    padded = [values[0]] * width + values
    out = []
    for i in range(len(padded) - width, len(padded) - width + 200):
        window = padded[max(0, i - width) : i]
        out.append(sum(w * v for w, v in zip(weights, window)))
    return out


began = time.perf_counter()
step = 0
while time.perf_counter() - began < 8:
    x = torch.randn(256, 32)
    y = x.norm(dim=1, keepdim=True)
    opt.zero_grad()
    loss = torch.nn.functional.mse_loss(net(x), y)
    loss.backward()
    opt.step()
    curve.append(loss.item())
    smoothed = curve[-1:] if MENDED else smooth(curve)
    step += 1
    if step % 50 == 0:
        print("step", step, "loss", round(curve[-1], 5), "smoothed", round(smoothed[-1], 5))
