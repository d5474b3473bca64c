"""Models of the programs, as anybody would write them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    """Causal, of many heads; fused, or written out."""

    def __init__(self, width: int, heads: int, written_out: bool) -> None:
        super().__init__()
        self.heads, self.written_out = heads, written_out
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        parts = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        if self.written_out:
            scores = q @ k.transpose(-2, -1) * (width // self.heads) ** -0.5
            mask = torch.ones(length, length, device=x.device, dtype=torch.bool).tril()
            y = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        else:
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """A transformer's layer."""

    def __init__(self, width: int, heads: int, inner: int, written_out: bool, reads: bool) -> None:
        super().__init__()
        self.attention = Attention(width, heads, written_out)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.reads = reads

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.first(x))
        if self.reads and x.abs().max().item() > 1e4:
            raise OverflowError("activations explode")
        return x + self.down(functional.gelu(self.up(self.second(x))))


class Transformer(nn.Module):
    """Of tokens."""

    def __init__(
        self,
        width: int = 1024,
        layers: int = 4,
        heads: int = 16,
        inner: int = 4096,
        vocabulary: int = 8192,
        written_out: bool = False,
        reads: bool = False,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, inner, written_out, reads) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids: Any) -> Any:
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x).float().pow(2).mean()


class Images(nn.Module):
    """Convolutions over images."""

    def __init__(self, channels: int = 128, layers: int = 6) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.layers = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(layers))

    def forward(self, x: Any) -> Any:
        x = functional.relu(self.stem(x.to(self.stem.weight.dtype)))
        for layer in self.layers:
            x = functional.relu(layer(x))
        return x.float().mean()
