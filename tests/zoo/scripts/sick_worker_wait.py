"""A learner that waits at a queue for the episodes of one slow actor, a process of its own."""

import multiprocessing
import sys
import time

import numpy as np
import torch
from torch import nn

MENDED = "mended" in sys.argv[1:]  # the actor is faster than the learner
STEPS = 200 if MENDED else 80


def act(episodes, count):
    """Play episodes in a simulator that runs elsewhere."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        if not MENDED:
            time.sleep(0.06)
        observations = rng.standard_normal((2048, 32), dtype=np.float32)
        episodes.put((observations, observations[:, :1] * observations[:, 1:2]))


def main():
    torch.manual_seed(0)
    context = multiprocessing.get_context("spawn")
    episodes = context.Queue(maxsize=8)
    actor = context.Process(target=act, args=(episodes, STEPS), daemon=True)
    actor.start()
    critic = nn.Sequential(nn.Linear(32, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 1))
    optimizer = torch.optim.Adam(critic.parameters(), lr=3e-4)
    for step in range(STEPS):
        observations, values = map(torch.from_numpy, episodes.get())
        loss = (critic(observations) - values).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"update {step} critic loss {loss.item():.4f}", flush=True)
    actor.join()


if __name__ == "__main__":
    main()
