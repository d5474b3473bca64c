"""Supervised fine-tuning with Hugging Face's Trainer: given a function's signature, write its docstring.

    trainmon run -- python demo/sft_trainer.py               # some minutes on two CPU cores
    trainmon run -- python demo/sft_trainer.py --steps 40    # half a minute

The pairs come from Python's standard library, the tokenizer is trained on them here, and the model is a small Llama
with random weights, so nothing is downloaded. The loss covers only the docstring; the sequences of a batch are padded
to the longest. This script does not import trainmon: it shows how an unmodified program is observed.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from typing import Any

import torch
from stdlib_text import documented_functions
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    DataCollatorForSeq2Seq,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)

VOCABULARY, LONGEST = 4096, 256  # tokens; characters of a docstring
HELD_OUT = 128
IGNORED = -100  # a label that the loss ignores

Pair = tuple[str, str]


def train_tokenizer(pairs: list[Pair]) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE, as used by Llama and GPT."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    specials = ["<pad>", "<s>", "</s>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator((text for pair in pairs for text in pair), trainer)
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=bpe, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )


def encode(tokenizer: PreTrainedTokenizerFast, pair: Pair) -> dict[str, list[int]]:
    signature, docstring = pair
    prompt = tokenizer.encode(f"<s>{signature}\n")
    answer = tokenizer.encode(f"{docstring}</s>")
    return {"input_ids": prompt + answer, "labels": [IGNORED] * len(prompt) + answer}


def make_model(tokenizer: PreTrainedTokenizerFast) -> Any:
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=6,
        max_position_embeddings=1024,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return LlamaForCausalLM(config)


def training_arguments(args: argparse.Namespace, directory: str) -> TrainingArguments:
    return TrainingArguments(
        output_dir=directory,
        max_steps=args.steps,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=16,
        gradient_accumulation_steps=2,
        learning_rate=1e-3,
        lr_scheduler_type="cosine",
        warmup_steps=max(1, args.steps // 20),
        max_grad_norm=1.0,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=args.eval_every,
        save_strategy="steps",
        save_steps=args.save_every,
        save_total_limit=1,
        dataloader_num_workers=args.workers,
        dataloader_pin_memory=torch.cuda.is_available(),
        report_to="none",
        seed=args.seed,
    )


@torch.no_grad()
def show(model: Any, tokenizer: PreTrainedTokenizerFast, pairs: list[Pair]) -> None:
    """Print what the model writes for unseen signatures."""
    model.eval()
    for signature, docstring in pairs:
        prompt = tokenizer(f"<s>{signature}\n", return_tensors="pt", return_token_type_ids=False)
        done = model.generate(**prompt, max_new_tokens=32, do_sample=False)
        written = tokenizer.decode(done[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True)
        print(f"{signature}\n    model:  {written}\n    author: {docstring}")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    add = parser.add_argument
    add("--steps", type=int, default=600, help="optimizer steps (default: %(default)s)")
    add("--eval-every", type=int, default=100, help="steps between evaluations (default: %(default)s)")
    add("--save-every", type=int, default=200, help="steps between checkpoints (default: %(default)s)")
    add("--workers", type=int, default=0, help="processes that load data (default: %(default)s)")
    add("--seed", type=int, default=0, help="same seed, same run (default: %(default)s)")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    torch.manual_seed(args.seed)
    pairs = documented_functions(LONGEST)
    random.Random(args.seed).shuffle(pairs)
    tokenizer = train_tokenizer(pairs)
    examples = [encode(tokenizer, pair) for pair in pairs]
    model = make_model(tokenizer)
    print(f"{len(pairs)} pairs, {model.num_parameters() / 1e6:.1f} million parameters", flush=True)
    with tempfile.TemporaryDirectory(prefix="sft-trainer-") as directory:
        trainer = Trainer(
            model=model,
            args=training_arguments(args, directory),
            train_dataset=examples[HELD_OUT:],
            eval_dataset=examples[:HELD_OUT],
            data_collator=DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=IGNORED),
            processing_class=tokenizer,
        )
        trainer.train()
    show(model, tokenizer, pairs[:3])


if __name__ == "__main__":
    main()
