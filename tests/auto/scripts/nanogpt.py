"""In the manner of nanoGPT's train.py: a memmap, get_batch, a batch fetched ahead, estimate_loss now and then."""

import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

block_size, batch_size, max_iters, eval_interval, eval_iters, accumulation = 16, 4, 12, 5, 3, 2
torch.set_num_threads(1)  # several add up in another order on a busy machine, and numbers are compared bit by bit
torch.manual_seed(1337)
path = os.path.join(tempfile.mkdtemp(), "train.bin")
np.random.default_rng(0).integers(0, 65, 5000).astype(np.uint16).tofile(path)


def get_batch(split):
    data = np.memmap(path, dtype=np.uint16, mode="r")
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy((data[i : i + block_size]).astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy((data[i + 1 : i + 1 + block_size]).astype(np.int64)) for i in ix])
    return x, y


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(65, 32)
        self.block = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
        self.head = nn.Linear(32, 65)

    def forward(self, idx, targets=None):
        mask = nn.Transformer.generate_square_subsequent_mask(idx.shape[1])
        logits = self.head(self.block(self.wte(idx), src_mask=mask))
        loss = F.cross_entropy(logits.view(-1, 65), targets.view(-1)) if targets is not None else None
        return logits, loss

    def configure_optimizers(self, weight_decay, learning_rate):
        decay = [p for p in self.parameters() if p.dim() >= 2]
        others = [p for p in self.parameters() if p.dim() < 2]
        groups = [{"params": decay, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=learning_rate)


model = GPT()
optimizer = model.configure_optimizers(0.1, 1e-3)


@torch.no_grad()
def estimate_loss():
    out = {}
    model.eval()
    for split in ["train", "val"]:
        losses = torch.zeros(eval_iters)
        for k in range(eval_iters):
            X, Y = get_batch(split)
            _, loss = model(X, Y)
            losses[k] = loss.item()
        out[split] = losses.mean()
    model.train()
    return out


X, Y = get_batch("train")
iter_num = 0
while True:
    if iter_num % eval_interval == 0:
        losses = estimate_loss()
        print(f"step {iter_num}: train loss {losses['train'].item().hex()}, val loss {losses['val'].item().hex()}")
    if iter_num >= max_iters:
        break
    for _ in range(accumulation):
        _, loss = model(X, Y)
        loss = loss / accumulation
        X, Y = get_batch("train")
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(f"iter {iter_num}: loss {loss.item().hex()}")
    iter_num += 1
