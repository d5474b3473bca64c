"""Healthy: GPT-2 with Hugging Face's Trainer, texts packed to 1,024 tokens, bf16."""

import tempfile

from common import options
from hf import Clock, Packed
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

given = options()
length, rows = (8, 2) if given.cpu else (1024, 24)
size = dict(n_embd=32, n_layer=1, n_head=2, vocab_size=64) if given.cpu else dict(n_layer=12, vocab_size=50304)
model = GPT2LMHeadModel(GPT2Config(n_positions=length, **size))
texts = Packed(model.config.vocab_size, length)

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        arguments = TrainingArguments(
            directory, max_steps=10**5, per_device_train_batch_size=rows, bf16=not given.cpu, use_cpu=given.cpu,
            save_strategy="no", logging_steps=10, report_to="none", disable_tqdm=True, optim="adamw_torch_fused",
            dataloader_num_workers=0 if given.cpu else 2,
        )  # fmt: skip
        Trainer(model, arguments, train_dataset=texts, callbacks=[Clock(given, rows)]).train()
