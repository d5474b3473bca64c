"""TRL's RLOO or GRPO on a tiny Llama with random weights: `trl_rl.py RLOO 20`."""

import os
import sys
import tempfile
import time

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import trl
from datasets import Dataset
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

ALGORITHM, STEPS = sys.argv[1], int(sys.argv[2])
spent = 0.0


class Timed(LlamaForCausalLM):
    def generate(self, *args, **kwargs):
        global spent
        began = time.perf_counter()
        output = super().generate(*args, **kwargs)
        spent += time.perf_counter() - began
        return output


def digits(completions, **_):
    return [sum(letter.isdigit() for letter in text) / 16 for text in completions]


torch.manual_seed(0)
torch.set_num_threads(1)
words = Tokenizer(
    models.WordLevel({"<pad>": 0, "<end>": 1, **{c: i for i, c in enumerate("0123456789+=", 2)}}, "<pad>")
)
words.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
words.decoder = decoders.Fuse()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<end>", padding_side="left")
config = LlamaConfig(
    vocab_size=14, hidden_size=64, intermediate_size=192, num_hidden_layers=2, num_attention_heads=2, pad_token_id=0,
    bos_token_id=None, eos_token_id=1,
)  # fmt: skip
with tempfile.TemporaryDirectory() as directory:
    settings = getattr(trl, f"{ALGORITHM}Config")(
        output_dir=directory, max_steps=STEPS, per_device_train_batch_size=32, num_generations=8,
        max_completion_length=16, learning_rate=1e-3, beta=0.0, bf16=False, gradient_checkpointing=False,
        dataloader_pin_memory=False, logging_steps=1, save_strategy="no", report_to="none", seed=0,
    )  # fmt: skip
    trainer = getattr(trl, f"{ALGORITHM}Trainer")(
        model=Timed(config),
        reward_funcs=[digits],
        args=settings,
        train_dataset=Dataset.from_list([{"prompt": f"{a}+{b}="} for a in range(10) for b in range(10)]),
        processing_class=tokenizer,
    )
    trainer.train()
print(f"generation took {spent:.4f} s")
