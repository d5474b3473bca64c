"""Healthy: a residual network in bf16, channels last, its images from pinned workers."""

import os

import torch
from common import Meter, learn, options
from models import ResNet
from torch import nn
from torch.utils.data import DataLoader, Dataset

given = options()
rows, side = (2, 32) if given.cpu else (256, 160)


class Images(Dataset):
    kept = torch.randint(256, (64, 3, side, side), dtype=torch.uint8)

    def __len__(self):
        return 10**7

    def __getitem__(self, place):
        return self.kept[place % 64], place % 1000


if __name__ == "__main__":
    model = ResNet(**(dict(channels=4, blocks=(1, 1)) if given.cpu else dict(blocks=(3, 4, 6, 3)))).to(given.device)
    model = model.to(memory_format=torch.channels_last)
    torch.backends.cudnn.benchmark = True
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=True)
    workers = 1 if given.cpu else min(8, len(os.sched_getaffinity(0)))
    loader = DataLoader(Images(), batch_size=rows, num_workers=workers, pin_memory=not given.cpu, prefetch_factor=4)
    meter = Meter(given, warm=10)
    for step, (images, labels) in enumerate(loader):
        images = images.to(given.device, non_blocking=True).to(memory_format=torch.channels_last).float().div_(255)
        labels = labels.to(given.device, non_blocking=True)
        with torch.autocast(given.device, torch.bfloat16):
            loss = nn.functional.cross_entropy(model(images), labels)
        learn(optimizer, loss, step, every=20)
        if meter.over(rows):
            break
    meter.tell()
