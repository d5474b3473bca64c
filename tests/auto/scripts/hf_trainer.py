"""Hugging Face's Trainer, with 0 and with 2 workers: accumulation, evaluations, checkpoints, an end within an epoch."""

import tempfile

import hf_tiny
from transformers import Trainer, TrainingArguments

STEPS = 7


class Watched(Trainer):
    """A user's own subclass, which here notes what it is given."""

    def compute_loss(self, model, inputs, *args, **kwargs):  # type: ignore[no-untyped-def]
        if model.training:
            truth.batch(inputs)
        return super().compute_loss(model, inputs, *args, **kwargs)


def train(workers: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        arguments = TrainingArguments(
            directory,
            per_device_train_batch_size=3,
            per_device_eval_batch_size=4,
            gradient_accumulation_steps=2,
            max_steps=STEPS,
            eval_strategy="steps",
            eval_steps=3,
            save_steps=5,
            logging_steps=1,
            learning_rate=1e-3,
            dataloader_num_workers=workers,
            report_to=[],
            use_cpu=True,
        )
        # 25 rows make 9 batches, 5 steps an epoch: the first epoch's last step has one batch, the last is mid-epoch.
        rows = hf_tiny.encoded(33)
        model = hf_tiny.model()
        trainer = Watched(model, arguments, hf_tiny.padded, train_dataset=rows[:25], eval_dataset=rows[25:])
        trainer.train()
    for entry in trainer.state.log_history:
        for name in ("loss", "eval_loss"):
            if name in entry:
                truth.loss(entry[name])
    truth.steps += trainer.state.global_step


truth = hf_tiny.Truth()
for workers in (0, 2):
    train(workers)
truth.tell()
