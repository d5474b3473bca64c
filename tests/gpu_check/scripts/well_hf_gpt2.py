"""Healthy: GPT-2 with Hugging Face's Trainer, texts packed to 1,024 tokens, bf16."""

import tempfile

import torch
from common import Meter, options
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

given = options()
length, rows = (8, 2) if given.cpu else (1024, 24)
size = dict(n_embd=32, n_layer=1, n_head=2, vocab_size=64) if given.cpu else dict(n_layer=12, vocab_size=50304)
model = GPT2LMHeadModel(GPT2Config(n_positions=length, **size))


class Packed(torch.utils.data.Dataset):
    data = torch.randint(model.config.vocab_size, (512, length))

    def __len__(self):
        return 10**6

    def __getitem__(self, place):
        return {"input_ids": self.data[place % 512], "labels": self.data[place % 512]}


class Clock(TrainerCallback):
    meter = Meter(given)

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = self.meter.over(rows)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        arguments = TrainingArguments(
            directory, max_steps=10**5, per_device_train_batch_size=rows, bf16=not given.cpu, use_cpu=given.cpu,
            save_strategy="no", logging_steps=10, report_to="none", disable_tqdm=True, optim="adamw_torch_fused",
            dataloader_num_workers=0 if given.cpu else 2,
        )  # fmt: skip
        Trainer(model, arguments, train_dataset=Packed(), callbacks=[Clock()]).train()
    Clock.meter.tell()
