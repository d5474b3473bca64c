"""One sample at a time through the model, sixteen times a step: accumulation where a batch was meant."""

import sys
import tempfile

from texts import block_dataset, pad_batch, tiny_llama
from transformers import Trainer, TrainingArguments

MENDED = "mended" in sys.argv[1:]  # a batch
with tempfile.TemporaryDirectory() as directory:
    args = TrainingArguments(
        output_dir=directory,
        per_device_train_batch_size=16 if MENDED else 1,
        gradient_accumulation_steps=1 if MENDED else 16,
        max_steps=200 if MENDED else 40,
        logging_steps=5,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
    )
    Trainer(tiny_llama(), args, pad_batch, train_dataset=block_dataset(300, 24)).train()
