"""A GAN: two models, two optimizers, and more forwards than backwards by design."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
netG = nn.Sequential(nn.Linear(16, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 64), nn.Tanh())
netD = nn.Sequential(nn.Linear(64, 256), nn.LeakyReLU(0.2), nn.Linear(256, 1))
optG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
optD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()
reals = torch.tanh(torch.randn(12000, 4) @ torch.randn(4, 64))
for epoch in range(3):
    for i, (real,) in enumerate(DataLoader(TensorDataset(reals), batch_size=128, shuffle=True, drop_last=True)):
        ones, zeros = torch.ones(128, 1), torch.zeros(128, 1)
        fake = netG(torch.randn(128, 16))
        optD.zero_grad()
        d_loss = bce(netD(real), ones) + bce(netD(fake.detach()), zeros)
        d_loss.backward()
        optD.step()
        optG.zero_grad()
        g_loss = bce(netD(fake), ones)
        g_loss.backward()
        optG.step()
    print(f"[{epoch}] Loss_D: {d_loss.item():.4f} Loss_G: {g_loss.item():.4f}")
