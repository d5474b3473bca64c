"""A fine-tune with Hugging Face's Trainer on the GPU: a Llama of some 300 million random weights, tokens made up.

It knows nothing of trainmon. The last line it prints is its own measure of the tokens a second.
"""

from __future__ import annotations

import sys
import tempfile
import time
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

LENGTH, BATCH = 1024, 8
VOCABULARY = 32_000


class Pairs(torch.utils.data.Dataset[dict[str, Any]]):
    def __init__(self, count: int) -> None:
        self._rows = torch.randint(VOCABULARY, (count, LENGTH), generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: int) -> dict[str, Any]:
        return {"input_ids": self._rows[place], "labels": self._rows[place]}


class Watch(TrainerCallback):
    """Its own clock: from before the first batch is fetched to the end of the last step, the GPU's work waited for."""

    began = 0.0
    rate = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.began = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == state.max_steps:
            torch.cuda.synchronize()
            self.rate = state.global_step * BATCH * LENGTH / (time.perf_counter() - self.began)


def main(steps: int) -> None:
    shape: dict[str, Any] = {
        "hidden_size": 1024,
        "intermediate_size": 2816,
        "num_hidden_layers": 20,
        "num_attention_heads": 16,
    }
    model = LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, max_position_embeddings=LENGTH, **shape))
    watch = Watch()
    with tempfile.TemporaryDirectory() as directory:
        arguments = TrainingArguments(
            directory, max_steps=steps, per_device_train_batch_size=BATCH, bf16=True, save_strategy="no",
            logging_steps=10, report_to="none", dataloader_num_workers=2, disable_tqdm=True,
        )  # fmt: skip
        Trainer(model, arguments, train_dataset=Pairs(BATCH * 64), callbacks=[watch]).train()
    print(f"tokens/s by its own clock: {watch.rate:.1f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
