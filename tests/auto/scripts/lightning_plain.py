"""Lightning as its own introduction has it: the step calls the module itself, once."""

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset


class Net(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(16, 4)

    def forward(self, x):  # type: ignore[no-untyped-def]
        return self.net(x)

    def training_step(self, batch, batch_idx):  # type: ignore[no-untyped-def]
        x, y = batch
        return torch.nn.functional.cross_entropy(self(x), y)

    def configure_optimizers(self):  # type: ignore[no-untyped-def]
        return torch.optim.Adam(self.parameters())


pl.seed_everything(0)
data = DataLoader(TensorDataset(torch.randn(640, 16), torch.randint(0, 4, (640,))), batch_size=16)
pl.Trainer(max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu").fit(
    Net(), data
)
