"""A GAN in the manner of the DCGAN tutorial. `loader`: over a DataLoader; `memory`: without one; `critics`: WGAN, the
generator trained at each fifth batch.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

kind = sys.argv[1]
torch.manual_seed(0)
real_data = torch.randn(80, 8)
loader = DataLoader(TensorDataset(real_data), batch_size=8)
G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
D = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(), nn.Linear(16, 1))
optimizerD = torch.optim.Adam(D.parameters(), lr=1e-3)
optimizerG = torch.optim.Adam(G.parameters(), lr=1e-3)
criterion = nn.BCEWithLogitsLoss()


def batches():
    for _ in range(2):
        if kind == "memory":
            for i in range(10):
                yield real_data[8 * i : 8 * i + 8]
        else:
            for (x,) in loader:
                yield x


for i, real in enumerate(batches()):
    D.zero_grad()
    errD_real = criterion(D(real), torch.ones(8, 1))
    errD_real.backward()
    fake = G(torch.randn(8, 4))
    errD_fake = criterion(D(fake.detach()), torch.zeros(8, 1))
    errD_fake.backward()
    optimizerD.step()
    if kind != "critics" or i % 5 == 4:
        G.zero_grad()
        errG = criterion(D(G(torch.randn(8, 4))), torch.ones(8, 1))
        errG.backward()
        optimizerG.step()
        print(errG.item().hex())
    print((errD_real + errD_fake).item().hex())
