"""Sick: each batch of images goes to the GPU by a copy from ordinary memory. Mended: pinned, and not waited for."""

import torch
from common import Meter, learn, options
from models import ResNet
from torch import nn

given = options()
rows, side = (2, 32) if given.cpu else (256, 224)
model = ResNet(**(dict(channels=4, blocks=(1, 1)) if given.cpu else dict(blocks=(1, 1, 1, 1)))).to(given.device)
model = model.to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
batches = [torch.rand(rows, 3, side, side).to(memory_format=torch.channels_last) for _ in range(4)]
labels = [torch.randint(1000, (rows,)) for _ in range(4)]
if given.mended and not given.cpu:
    batches, labels = [each.pin_memory() for each in batches], [each.pin_memory() for each in labels]
for step in Meter(given).steps(rows):
    images = batches[step % 4].to(given.device, non_blocking=given.mended)
    wanted = labels[step % 4].to(given.device, non_blocking=given.mended)
    with torch.autocast(given.device, torch.bfloat16):
        loss = nn.functional.cross_entropy(model(images), wanted)
    learn(optimizer, loss, step, every=50)
