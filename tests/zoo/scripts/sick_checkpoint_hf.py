"""Hugging Face's Trainer with save_steps=1, "to be on the safe side"."""

import tempfile

from texts import block_dataset, pad_batch, tiny_llama
from transformers import Trainer, TrainingArguments

directory = tempfile.TemporaryDirectory()
args = TrainingArguments(
    directory.name,
    num_train_epochs=1,
    per_device_train_batch_size=2,
    save_steps=1,
    save_total_limit=2,
    logging_steps=10,
    report_to=[],
    use_cpu=True,
)
trainer = Trainer(tiny_llama(width=128), args, pad_batch, train_dataset=block_dataset(100, 48))
trainer.train()
directory.cleanup()
