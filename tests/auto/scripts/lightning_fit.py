"""Lightning: a small module, accumulation, validation each epoch, its own progress bar and model summary."""

import sys
import tempfile
import time

import hf_tiny
import torch
from torch.utils.data import DataLoader

if sys.argv[1] == "lightning":
    import lightning.pytorch as pl
else:
    import pytorch_lightning as pl


FORWARD_SECONDS = 0.02


class Small(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = hf_tiny.model()
        # So long at least does a forward take, on a machine however quick or busy.
        self.model.model.register_forward_pre_hook(lambda *_: time.sleep(FORWARD_SECONDS))

    def training_step(self, batch, batch_idx):  # type: ignore[no-untyped-def]
        truth.batch(batch)
        loss = self.model(**batch).loss
        self.log("train_loss", loss, prog_bar=True)
        truth.loss(loss.item())
        return loss

    def validation_step(self, batch, batch_idx):  # type: ignore[no-untyped-def]
        self.log("val_loss", self.model(**batch).loss)

    def configure_optimizers(self):  # type: ignore[no-untyped-def]
        return torch.optim.AdamW(self.model.parameters(), lr=1e-3)


truth = hf_tiny.Truth()
rows = hf_tiny.encoded(33)
training = DataLoader(rows[:25], batch_size=3, collate_fn=hf_tiny.padded)
validation = DataLoader(rows[25:], batch_size=4, collate_fn=hf_tiny.padded)
with tempfile.TemporaryDirectory() as directory:
    trainer = pl.Trainer(
        default_root_dir=directory,
        max_epochs=2,
        accumulate_grad_batches=2,
        accelerator="cpu",
        logger=False,
        log_every_n_steps=1,
        enable_checkpointing=True,
    )
    pl.seed_everything(0)
    trainer.fit(Small(), training, validation)
    truth.steps = trainer.global_step
    truth.tell(forward_seconds=FORWARD_SECONDS, callbacks=[type(callback).__name__ for callback in trainer.callbacks])
