"""Short lines, each padded to the model's full length."""

import functools
import sys
import tempfile

from texts import line_dataset, pad_batch, tiny_llama
from transformers import Trainer, TrainingArguments

MENDED = "mended" in sys.argv[1:]  # groups lines of similar length, and pads to the longest of a batch
with tempfile.TemporaryDirectory() as directory:
    args = TrainingArguments(
        output_dir=directory,
        per_device_train_batch_size=8,
        max_steps=100,
        save_strategy="no",
        logging_steps=20,
        report_to=[],
        train_sampling_strategy="group_by_length" if MENDED else "random",
        use_cpu=True,
    )
    collate = functools.partial(pad_batch, to=None if MENDED else 256)  # padding="max_length"
    Trainer(tiny_llama(width=96), args, collate, train_dataset=line_dataset(400)).train()
