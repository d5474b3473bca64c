"""Sick: convolutions in bf16 over images channels first, which are turned round for each. Mended: channels last."""

import torch
from common import Meter, learn, options
from models import ResNet
from torch import nn

given = options()
rows, side = (2, 32) if given.cpu else (256, 128)
model = ResNet(**(dict(channels=4, blocks=(1, 1)) if given.cpu else dict(blocks=(2, 2, 2, 2)))).to(given.device)
images = torch.rand(4, rows, 3, side, side, device=given.device)
layout = torch.channels_last if given.mended else torch.contiguous_format
model = model.to(memory_format=layout)
batches = [each.contiguous(memory_format=layout) for each in images]
labels = torch.randint(1000, (4, rows), device=given.device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for step in Meter(given).steps(rows):
    with torch.autocast(given.device, torch.bfloat16):
        loss = nn.functional.cross_entropy(model(batches[step % 4]), labels[step % 4])
    learn(optimizer, loss, step, every=50)
