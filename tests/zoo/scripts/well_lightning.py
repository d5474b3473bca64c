"""Lightning with its own logger, checkpoints and progress bar, validated each epoch."""

import tempfile

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class AutoEncoder(pl.LightningModule):
    def __init__(self, hidden=512):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = nn.Sequential(nn.Linear(128, hidden), nn.ReLU(), nn.Linear(hidden, 12))
        self.decoder = nn.Sequential(nn.Linear(12, hidden), nn.ReLU(), nn.Linear(hidden, 128))

    def forward(self, x):
        return self.decoder(self.encoder(x))

    def training_step(self, batch, batch_idx):
        loss = nn.functional.mse_loss(self(batch[0]), batch[0])
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", nn.functional.mse_loss(self(batch[0]), batch[0]), prog_bar=True)

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-3)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)]


if __name__ == "__main__":
    pl.seed_everything(1)
    data = torch.randn(8000, 12) @ torch.randn(12, 128)
    with tempfile.TemporaryDirectory() as root:
        trainer = pl.Trainer(max_epochs=4, accelerator="cpu", default_root_dir=root, logger=CSVLogger(root))
        trainer.fit(
            AutoEncoder(),
            DataLoader(TensorDataset(data[:7000]), batch_size=64, shuffle=True),
            DataLoader(TensorDataset(data[7000:]), batch_size=64),
        )
