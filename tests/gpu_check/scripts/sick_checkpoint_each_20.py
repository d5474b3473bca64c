"""Sick: Hugging Face's Trainer saves each twentieth step, model and optimizer. Mended: it does not."""

import tempfile

from common import options
from hf import Clock, Packed
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

given = options()
length, rows = (8, 2) if given.cpu else (512, 16)
size = dict(n_embd=32, n_layer=1, n_head=2, vocab_size=64) if given.cpu else dict(n_layer=12)
model = GPT2LMHeadModel(GPT2Config(n_positions=length, **size))
texts = Packed(model.config.vocab_size, length)

with tempfile.TemporaryDirectory() as directory:
    arguments = TrainingArguments(
        directory, max_steps=10**5, per_device_train_batch_size=rows, bf16=not given.cpu, use_cpu=given.cpu,
        save_strategy="no" if given.mended else "steps", save_steps=20, save_total_limit=1, logging_steps=20,
        report_to="none", disable_tqdm=True, optim="adamw_torch_fused",
    )  # fmt: skip
    Trainer(model, arguments, train_dataset=texts, callbacks=[Clock(given, rows, warm=3)]).train()
