"""A fine-tune with a learning rate of 1e4; gradients are not clipped."""

import tempfile

from texts import block_dataset, pad_batch, tiny_llama
from transformers import Trainer, TrainingArguments

with tempfile.TemporaryDirectory() as directory:
    args = TrainingArguments(
        directory,
        per_device_train_batch_size=4,
        max_steps=60,
        learning_rate=1e30,
        optim="sgd",
        max_grad_norm=0.0,
        lr_scheduler_type="constant",
        logging_steps=5,
        logging_nan_inf_filter=False,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
    )
    Trainer(tiny_llama(), args, pad_batch, train_dataset=block_dataset(200, 32)).train()
