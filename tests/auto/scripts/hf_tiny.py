"""A very small Llama with random weights, and the standard library's own source as text: nothing is downloaded."""

import inspect
import json
import textwrap

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

PAD, END = 0, 1


def model(vocabulary: int = 258, width: int = 16) -> LlamaForCausalLM:
    set_seed(0)
    torch.set_num_threads(1)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=128,
        pad_token_id=PAD,
        bos_token_id=None,
        eos_token_id=END,
    )
    return LlamaForCausalLM(config)


def lines(count: int) -> list[str]:
    """Lines of real text, of quite different lengths."""
    kept = [line.strip() for line in inspect.getsource(textwrap).splitlines() if len(line.strip()) > 3]
    return kept[:count]


def encoded(count: int) -> list[dict[str, list[int]]]:
    return [{"input_ids": [byte + 2 for byte in line.encode()[:100]]} for line in lines(count)]


def padded(rows: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    """A batch as long as its longest row."""
    longest = max(len(row["input_ids"]) for row in rows)
    ids = [row["input_ids"] + [PAD] * (longest - len(row["input_ids"])) for row in rows]
    mask = [[1] * len(row["input_ids"]) + [0] * (longest - len(row["input_ids"])) for row in rows]
    labels = [row["input_ids"] + [-100] * (longest - len(row["input_ids"])) for row in rows]
    return {
        "input_ids": torch.tensor(ids),
        "attention_mask": torch.tensor(mask),
        "labels": torch.tensor(labels),
    }


def character_tokenizer(characters: str) -> PreTrainedTokenizerFast:
    """One token a character."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {"<pad>": PAD, "<end>": END, **{character: i for i, character in enumerate(characters, start=2)}}
    plain = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    plain.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    plain.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", eos_token="<end>", padding_side="left")


class Truth:
    """What a script knows of its own work, printed as its last line for the test to compare."""

    def __init__(self) -> None:
        self.steps = self.tokens = self.padded_tokens = self.samples = 0
        self.losses: list[str] = []

    def batch(self, batch: dict[str, torch.Tensor]) -> None:
        self.tokens += int(batch["attention_mask"].sum())
        self.padded_tokens += batch["input_ids"].numel()
        self.samples += len(batch["input_ids"])

    def loss(self, value: float) -> None:
        self.losses.append(float(value).hex())

    def tell(self, **more: object) -> None:
        print("TRUTH", json.dumps({**vars(self), **more}))
