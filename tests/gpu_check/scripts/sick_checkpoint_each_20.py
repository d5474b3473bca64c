"""Sick: Hugging Face's Trainer saves each twentieth step, model and optimizer. Mended: it does not."""

import tempfile

import torch
from common import Meter, options
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

given = options()
length, rows = (8, 2) if given.cpu else (512, 16)
size = dict(n_embd=32, n_layer=1, n_head=2, vocab_size=64) if given.cpu else dict(n_layer=12)
model = GPT2LMHeadModel(GPT2Config(n_positions=length, **size))


class Texts(torch.utils.data.Dataset):
    data = torch.randint(model.config.vocab_size, (512, length))

    def __len__(self):
        return 10**6

    def __getitem__(self, place):
        return {"input_ids": self.data[place % 512], "labels": self.data[place % 512]}


class Clock(TrainerCallback):
    meter = Meter(given, warm=3)

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = self.meter.over(rows)


with tempfile.TemporaryDirectory() as directory:
    arguments = TrainingArguments(
        directory, max_steps=10**5, per_device_train_batch_size=rows, bf16=not given.cpu, use_cpu=given.cpu,
        save_strategy="no" if given.mended else "steps", save_steps=20, save_total_limit=1, logging_steps=20,
        report_to="none", disable_tqdm=True, optim="adamw_torch_fused",
    )  # fmt: skip
    Trainer(model, arguments, train_dataset=Texts(), callbacks=[Clock()]).train()
Clock.meter.tell()
