"""What several scripts share: a small Llama with random weights, and real text as bytes. Nothing is downloaded."""

import inspect
import json
import textwrap

import torch
from transformers import LlamaConfig, LlamaForCausalLM

PAD, END, FIRST = 0, 1, 2


def tiny_llama(width=32, layers=2, length=512):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=258,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=2,
        max_position_embeddings=length,
        pad_token_id=PAD,
        bos_token_id=None,
        eos_token_id=END,
    )
    return LlamaForCausalLM(config)


def lines(count):
    source = inspect.getsource(textwrap) + inspect.getsource(json) + inspect.getsource(inspect)
    kept = [line.strip() for line in source.splitlines() if len(line.strip()) > 3]
    return (kept * (count // len(kept) + 1))[:count]


def encode(text, most=200):
    return [byte + FIRST for byte in text.encode()[:most]]


def line_dataset(count, most=200):
    return [{"input_ids": encode(line, most)} for line in lines(count)]


def block_dataset(count, length=64):
    """Text packed into blocks of one length."""
    stream = encode("\n".join(lines(4000)), 10**9)
    return [{"input_ids": stream[i * length : (i + 1) * length]} for i in range(count)]


def pad_batch(rows, to=None):
    longest = to or max(len(row["input_ids"]) for row in rows)
    ids = torch.full((len(rows), longest), PAD)
    mask = torch.zeros(len(rows), longest, dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, : len(row["input_ids"])] = torch.tensor(row["input_ids"])
        mask[i, : len(row["input_ids"])] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}
