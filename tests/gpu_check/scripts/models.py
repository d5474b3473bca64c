"""Models that several scripts train: a GPT, a residual network, and made-up batches for them."""

import torch
from torch import nn
from torch.nn import functional as F


def fused_attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Block(nn.Module):
    def __init__(self, width, heads, attention):
        super().__init__()
        self.heads, self.attention = heads, attention
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (
            t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in self.qkv(self.ln_1(x)).split(C, 2)
        )
        x = x + self.proj(self.attention(q, k, v).transpose(1, 2).reshape(B, T, C))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, width=768, layers=12, heads=12, vocab=50304, context=1024, attention=fused_attention):
        super().__init__()
        self.vocab = vocab
        self.tokens, self.places = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads, attention) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, ids, targets=None):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        if targets is None:
            return logits
        return F.cross_entropy(logits.view(-1, self.vocab), targets.reshape(-1))


def gpt(given, context=1024, attention=fused_attention, **size):
    """A GPT on the device; on the CPU the smallest."""
    size = dict(width=32, layers=1, heads=2, vocab=64) if given.cpu else size
    return GPT(**size, context=context, attention=attention).to(given.device)


class Residual(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.a = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.b = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm_a, self.norm_b = nn.BatchNorm2d(out), nn.BatchNorm2d(out)
        self.short = nn.Conv2d(channels, out, 1, stride, bias=False) if channels != out or stride > 1 else nn.Identity()

    def forward(self, x):
        y = F.relu(self.norm_a(self.a(x)))
        return F.relu(self.norm_b(self.b(y)) + self.short(x))


class ResNet(nn.Module):
    """In the manner of ResNet-18 and -34: two convolutions a block, so many blocks a stage."""

    def __init__(self, channels=64, blocks=(2, 2, 2, 2), classes=1000):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, channels, 7, 2, 3, bias=False), nn.BatchNorm2d(channels), nn.ReLU())
        stages, width = [], channels
        for stage, count in enumerate(blocks):
            out = channels * 2**stage
            for place in range(count):
                stages.append(Residual(width, out, 2 if place == 0 and stage else 1))
                width = out
        self.stages, self.head = nn.Sequential(*stages), nn.Linear(width, classes)

    def forward(self, x):
        x = F.max_pool2d(self.stem(x), 3, 2, 1)
        return self.head(self.stages(x).mean((2, 3)))


def tokens(rows, length, vocab, device="cpu"):
    """Inputs and targets: each token's successor is known from it, so that there is something to learn."""
    ids = torch.randint(vocab, (rows, 1), device=device) + 7 * torch.arange(length + 1, device=device)
    ids = ids % vocab
    return ids[:, :-1], ids[:, 1:]


def predict(model, texts, batch):
    """The loss in bf16 of so many texts, drawn at random."""
    ids, targets = texts
    rows = torch.randint(len(ids), (batch,), device=ids.device)
    with torch.autocast(ids.device.type, torch.bfloat16):
        return model(ids[rows], targets[rows])
