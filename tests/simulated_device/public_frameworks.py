"""Small trainings by frameworks' own trainers, which know nothing of trainmon; `program` is told what is true."""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from torch.nn import functional
from torch.utils.data import DataLoader

from tests.simulated_device.public_loops import LOOPS, network, rows, validate
from tests.simulated_device.public_program import Program


def accelerated(program: Program) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    model, optimizer, training, held_out, scheduler = accelerator.prepare(
        model, optimizer, DataLoader(rows(800), batch_size=8), DataLoader(rows(80), batch_size=8), scheduler
    )
    for _ in range(4):
        model.train()
        for x, y in training:
            with accelerator.accumulate(model):
                loss = functional.mse_loss(model(x), y)
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                if accelerator.sync_gradients:
                    program.stepped()
        program.loss(loss.item())
        with program.apart("eval"):
            validate(program, model, held_out)
        with program.apart("checkpoint"), tempfile.TemporaryDirectory() as directory:
            accelerator.save_state(directory)
            program.host(0.4)


def lightning(program: Program) -> None:
    import lightning.pytorch as pl

    class Small(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.body = network()

        def training_step(self, batch: Any, number: int) -> Any:
            loss = functional.mse_loss(self.body(batch[0]), batch[1])
            self.log("train_loss", loss)
            return loss

        def validation_step(self, batch: Any, number: int) -> None:
            loss = functional.mse_loss(self.body(batch[0]), batch[1])
            self.log("val_loss", loss)
            program.loss(loss.item())

        def on_train_batch_end(self, *_: Any) -> None:
            if self.trainer.global_step > len(program.steps):
                program.stepped()

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    with tempfile.TemporaryDirectory() as directory:
        trainer = pl.Trainer(
            default_root_dir=directory, max_epochs=2, accumulate_grad_batches=2, accelerator="cpu", logger=False,
            enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=10, val_check_interval=0.5,
        )  # fmt: skip
        trainer.fit(Small(), DataLoader(rows(800), batch_size=8), DataLoader(rows(80), batch_size=8))


def trainer(program: Program) -> None:
    """Hugging Face's."""
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

    shape = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=32, max_position_embeddings=32, **shape))
    texts = [{"input_ids": (ids := [(row + each) % 30 for each in range(8)]), "labels": ids} for row in range(600)]

    class Truth(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            program.stepped()

    class Watched(Trainer):
        def evaluate(self, *args: Any, **kwargs: Any) -> Any:
            with program.apart("eval"):
                return super().evaluate(*args, **kwargs)

        def _save_rng_state(self, *_: Any) -> None:
            pass  # asks a device that is none

        def _save(self, *args: Any, **kwargs: Any) -> None:
            with program.apart("checkpoint"):
                program.host(0.4)
                super()._save(*args, **kwargs)

    with tempfile.TemporaryDirectory() as directory:
        arguments = TrainingArguments(
            directory, per_device_train_batch_size=4, gradient_accumulation_steps=4, max_steps=60,
            eval_strategy="steps", eval_steps=20, save_steps=30, logging_steps=5, report_to=[],
            use_cpu=True, disable_tqdm=True,
        )  # fmt: skip
        made = Watched(
            model, arguments, train_dataset=texts, eval_dataset=texts[:64], callbacks=[Truth()],
            data_collator=lambda some: {key: torch.tensor([row[key] for row in some]) for key in some[0]},
        )  # fmt: skip
        made.train()
    for entry in made.state.log_history:
        for name in ("loss", "eval_loss"):
            if name in entry:
                program.loss(entry[name])


LOOPS.update({each.__name__: each for each in (accelerated, lightning, trainer)})
