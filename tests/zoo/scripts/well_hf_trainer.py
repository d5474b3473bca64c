"""Hugging Face's Trainer as most people run it: evaluation and a checkpoint now and then."""

import tempfile

from texts import block_dataset, pad_batch, tiny_llama
from transformers import Trainer, TrainingArguments

if __name__ == "__main__":
    rows = block_dataset(1000, 64)
    with tempfile.TemporaryDirectory() as directory:
        args = TrainingArguments(
            output_dir=directory,
            num_train_epochs=2,
            per_device_train_batch_size=8,
            per_device_eval_batch_size=16,
            eval_strategy="steps",
            eval_steps=80,
            save_steps=120,
            logging_steps=20,
            warmup_steps=10,
            lr_scheduler_type="cosine",
            report_to=[],
            use_cpu=True,
        )
        trainer = Trainer(
            model=tiny_llama(width=64),
            args=args,
            data_collator=pad_batch,
            train_dataset=rows[:900],
            eval_dataset=rows[900:],
        )
        trainer.train()
        print(trainer.evaluate())
