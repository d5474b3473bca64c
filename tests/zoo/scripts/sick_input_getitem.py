"""Images that are decoded and augmented in __getitem__, by the training's own process."""

import random
import sys
import zlib

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MENDED = "mended" in sys.argv[1:]  # decodes each image once, before the training


class Images(Dataset):
    def __init__(self, count=4000 if MENDED else 1600, side=48):
        pixels = random.Random(0)
        self.side = side
        self.files = [zlib.compress(pixels.randbytes(3 * side * side), 1) for _ in range(64)]
        self.count = count
        self.ready = [self.decoded(index) for index in range(64)] if MENDED else []

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return (self.ready[index % 64] if MENDED else self.decoded(index)), index % 10

    def decoded(self, index):
        raw = zlib.decompress(self.files[index % 64])
        image = [byte / 255 for byte in raw]
        if random.random() < 0.5:
            image.reverse()
        mean = sum(image) / len(image)
        image = [value - mean for value in image]
        return torch.tensor(image).view(3, self.side, self.side)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3)
        self.conv2 = nn.Conv2d(32, 32, 3, stride=2)
        self.fc = nn.Linear(32, 10)

    def forward(self, x):
        x = torch.relu(self.conv2(torch.relu(self.conv1(x))))
        return self.fc(x.mean((2, 3)))


def main():
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(Images(), batch_size=16, shuffle=True, num_workers=0)
    net = Net().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    for i, (images, labels) in enumerate(loader):
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        if i % 20 == 0:
            print(f"[{i:4d}] loss: {loss.item():.3f}")


if __name__ == "__main__":
    main()
