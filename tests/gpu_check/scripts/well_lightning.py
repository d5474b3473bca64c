"""Healthy: Lightning in bf16 with a progress bar's metrics, validated each hundredth batch."""

import tempfile

import lightning.pytorch as pl
import torch
from common import Meter, options
from torch import nn
from torch.utils.data import DataLoader, Dataset

given = options()
rows, width, layers = (4, 16, 2) if given.cpu else (4096, 2048, 12)


class Rows(Dataset):
    kept = torch.randn(4096, 128)

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitems__(self, places):
        return self.kept[[place % 4096 for place in places]]

    def __getitem__(self, place):
        return self.kept[place % 4096]


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        parts = [layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.GELU())]
        self.net = nn.Sequential(nn.Linear(128, width), *parts, nn.Linear(width, 128))

    def training_step(self, batch, place):
        loss = nn.functional.mse_loss(self.net(batch), batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, place):
        self.log("val_loss", nn.functional.mse_loss(self.net(batch), batch))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4, fused=not given.cpu)


class Clock(pl.Callback):
    meter = Meter(given)

    def on_train_batch_end(self, trainer, module, outputs, batch, place):
        trainer.should_stop = self.meter.over(rows)


def loader(count):
    # What a batch is made of comes as a list of rows, or whole where the loader asks for many at once.
    join = lambda batch: batch if torch.is_tensor(batch) else torch.stack(batch)
    return DataLoader(Rows(count), batch_size=rows, num_workers=0 if given.cpu else 4, collate_fn=join,
                      pin_memory=not given.cpu)  # fmt: skip


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as root:
        trainer = pl.Trainer(
            accelerator="cpu" if given.cpu else "gpu", devices=1, precision="32" if given.cpu else "bf16-mixed",
            max_steps=10**6, val_check_interval=100, limit_val_batches=4, log_every_n_steps=20, default_root_dir=root,
            enable_progress_bar=False, enable_checkpointing=False, logger=False, callbacks=[Clock()],
        )  # fmt: skip
        trainer.fit(Net(), loader(rows * 10_000), loader(rows * 4))
    Clock.meter.tell()
