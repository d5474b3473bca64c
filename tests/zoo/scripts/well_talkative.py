"""A bar redrawn in each step, a line of JSON a step, accumulation by hand: much is said, and little time taken."""

import json
import tempfile

import torch
from torch import nn
from tqdm import tqdm

torch.manual_seed(0)
torch.set_num_threads(1)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.head = nn.GRU(16, 96, batch_first=True), nn.Linear(96, 1)

    def forward(self, x):
        return self.head(self.gru(x)[0][:, -1])


net = Reader()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(opt)
bar = tqdm(range(250))
with tempfile.NamedTemporaryFile("w") as log:
    for step in bar:
        total = 0.0
        for _ in range(4):
            x = torch.randn(32, 20, 16)
            loss = (net(x) - x.mean((1, 2))[:, None]).pow(2).mean() / 4
            loss.backward()
            total += loss.item()
        opt.step()
        opt.zero_grad()
        schedule.step(total)
        bar.set_postfix(loss=f"{total:.3f}", lr=opt.param_groups[0]["lr"])
        log.write(json.dumps({"step": step, "loss": total}) + "\n")
        log.flush()
