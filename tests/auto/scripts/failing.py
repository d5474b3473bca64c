"""Ends by an exception: in the program's own code, in the backward pass, or in the loading of data."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

where = sys.argv[1]


class Data(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, i):
        if where == "data" and i == 22:
            raise OSError("row 22 cannot be read")
        return torch.full((4,), float(i))


torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for i, x in enumerate(DataLoader(Data(), batch_size=4)):
    loss = model(x).square().mean()
    if where == "backward" and i == 5:
        loss = loss.detach()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item().hex(), flush=True)
    if where == "program" and i == 4:
        raise ValueError("no more")
