"""GRPO with Hugging Face's TRL: a small Llama learns to add digits from its rewards alone.

    trainmon run -- python demo/grpo_arithmetic.py                # some two minutes on two CPU cores
    trainmon run -- python demo/grpo_arithmetic.py --steps 40     # some seconds
    trainmon run -- python demo/grpo_arithmetic.py --long-tail    # all wait for a few long completions

A prompt is a sum such as "3+4=", and its completion is right if it is "7" and then ends. One reward is for the form (a
digit and the end), one for the right digit. The model starts from random weights and the tokenizer is made here, so
nothing is downloaded. This script does not import trainmon: it shows how an unmodified program is observed.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # TRL would report its use

import torch
from datasets import Dataset
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, LogitsProcessor, LogitsProcessorList, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

CHARACTERS = "0123456789+="
PROMPTS, COMPLETIONS = 8, 16  # of a batch, and of each prompt
LONGEST = 64  # tokens of a completion
FORM, SUM = 0.2, 0.8  # what is earned by a digit and the end, and in addition by the right digit


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Make a tokenizer whose tokens are characters."""
    vocabulary = {"<pad>": 0, "<end>": 1, **{character: number for number, character in enumerate(CHARACTERS, 2)}}
    characters = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    characters.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    characters.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=characters, pad_token="<pad>", eos_token="<end>", padding_side="left"
    )


class Endless(LogitsProcessor):
    """Keeps the completions of a batch's first prompt from ending."""

    def __init__(self, end: int) -> None:
        self.end = end

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        if len(scores) > COMPLETIONS:  # a batch of the training
            scores[:COMPLETIONS, self.end] = -torch.inf
        return scores


class LongTailed(LlamaForCausalLM):
    """A model whose completions of one prompt in each batch are as long as they may be."""

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        endless = LogitsProcessorList([Endless(self.config.eos_token_id)])
        return super().generate(*args, logits_processor=endless, **kwargs)  # type: ignore[misc]


def make_model(tokenizer: PreTrainedTokenizerFast, has_long_tail: bool) -> Any:
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=1,
        num_attention_heads=4,
        max_position_embeddings=256,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    return LongTailed(config) if has_long_tail else LlamaForCausalLM(config)


def well_formed(completions: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
    """Reward a digit and the end."""
    return [FORM * is_a_digit(text, ids) for text, ids in zip(completions, completion_ids, strict=True)]


def correct(completions: list[str], completion_ids: list[list[int]], answer: list[str], **_: Any) -> list[float]:
    """Reward the right digit and the end."""
    written = zip(completions, completion_ids, answer, strict=True)
    return [SUM * (is_a_digit(text, ids) and text == right) for text, ids, right in written]


def is_a_digit(text: str, ids: list[int]) -> bool:
    """Return whether a completion is a digit and the end token, which the text does not hold."""
    return len(ids) == 2 and len(text) == 1 and text.isdigit()


def training_arguments(args: argparse.Namespace, directory: str) -> GRPOConfig:
    return GRPOConfig(
        output_dir=directory,
        max_steps=args.steps,
        per_device_train_batch_size=PROMPTS * COMPLETIONS,
        num_generations=COMPLETIONS,
        max_completion_length=LONGEST,
        mask_truncated_completions=True,
        learning_rate=1e-3,
        entropy_coef=0.02,  # otherwise the policy collapses to the first answer rewarded
        bf16=False,
        gradient_checkpointing=False,
        dataloader_pin_memory=torch.cuda.is_available(),
        logging_steps=10,
        save_strategy="no",
        report_to="none",
        seed=args.seed,
    )


@torch.no_grad()
def show(model: Any, tokenizer: PreTrainedTokenizerFast, problems: list[dict[str, str]]) -> None:
    """Print the likeliest answer to some sums."""
    for problem in problems:
        prompt = tokenizer(problem["prompt"], return_tensors="pt", return_token_type_ids=False)
        done = model.generate(**prompt, max_new_tokens=4, do_sample=False)
        print(tokenizer.decode(done[0], skip_special_tokens=True), f"(right: {problem['answer']})")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    add = parser.add_argument
    add("--steps", type=int, default=400, help="optimizer steps (default: %(default)s)")
    add("--long-tail", action="store_true", help="the completions of one prompt in each batch go on to the limit")
    add("--seed", type=int, default=0, help="same seed, same run (default: %(default)s)")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    torch.manual_seed(args.seed)
    # A second thread does not speed up matrices this small, and slows them down if another program needs the core.
    torch.set_num_threads(1)
    tokenizer = make_tokenizer()
    problems = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(10) for b in range(10 - a)]
    with tempfile.TemporaryDirectory(prefix="grpo-arithmetic-") as directory:
        trainer = GRPOTrainer(
            model=make_model(tokenizer, args.long_tail),
            reward_funcs=[well_formed, correct],
            args=training_arguments(args, directory),
            train_dataset=Dataset.from_list(problems),
            processing_class=tokenizer,
        )
        trainer.train()
    show(trainer.model, tokenizer, random.Random(args.seed).sample(problems, 5))


if __name__ == "__main__":
    main()
