"""A small GPT in plain PyTorch: a causal transformer that predicts the next byte."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

BYTES = 256  # the vocabulary


class Block(nn.Module):
    """Attention, then a perceptron, each with a residual connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_perceptron = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        mixed = self.query_key_value(self.before_attention(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = mixed.permute(2, 0, 3, 1, 4)
        seen = scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(seen.transpose(1, 2).reshape(batch, length, width))
        out: Tensor = x + self.perceptron(self.before_perceptron(x))
        return out


class SmallGPT(nn.Module):
    """The model. Its forward pass returns the loss for the given targets."""

    def __init__(self, width: int = 128, layers: int = 4, heads: int = 4, longest: int = 256) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(BYTES, width), nn.Embedding(longest, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, BYTES, bias=False)
        self.head.weight = self.tokens.weight
        self.apply(_start)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        logits = self.head(self.last(self.blocks(x)))
        return cross_entropy(logits.flatten(0, 1), targets.flatten())


def _start(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
