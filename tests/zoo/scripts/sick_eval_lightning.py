"""Lightning with val_check_interval=2, on a validation set larger than the training set."""

import tempfile
import warnings

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")


class Regressor(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 256), nn.SiLU(), nn.Linear(256, 1))

    def training_step(self, batch, _):
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        self.log("val_loss", nn.functional.mse_loss(self.net(x), y))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def data(count, batch):
    x = torch.randn(count, 16)
    return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=batch)


pl.seed_everything(7, verbose=False)
with tempfile.TemporaryDirectory() as root:
    trainer = pl.Trainer(
        default_root_dir=root,
        max_steps=60,
        val_check_interval=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Regressor(), data(1920, 32), data(3000, 30))
