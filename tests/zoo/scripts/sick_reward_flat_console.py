"""No torch, no hooks: a program that prints a reward that never changes."""

import random
import time

random.seed(0)
weights = [0.0] * 2000
for step in range(1, 151):
    noise = [random.gauss(0, 1) for _ in weights]
    reward = 0.0  # the parser never finds the answer's end
    weights = [w + 0.01 * reward * n for w, n in zip(weights, noise)]
    time.sleep(0.03)
    print(f"step {step}/150 reward {reward:.3f} policy_loss {random.gauss(0, 0.1):.4f}", flush=True)
