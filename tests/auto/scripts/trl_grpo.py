"""TRL's GRPO: prompts are completed by generate(), and each completion is run by a program of its own."""

import random
import subprocess
import sys
import tempfile

import hf_tiny
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 3


def runs(prompts, completions, **_):  # type: ignore[no-untyped-def]
    """1 for a completion that is an expression, tried in a child process."""
    done = []
    for completion in completions:
        child = subprocess.run(
            [sys.executable, "-I", "-S", "-c", "import ast, sys; ast.parse(sys.argv[1], mode='eval')", completion],
            capture_output=True,
        )
        done.append(float(child.returncode == 0))
    return done


def short(completions, **_):  # type: ignore[no-untyped-def]
    return [-len(completion) / 100 for completion in completions]


tokenizer = hf_tiny.character_tokenizer("0123456789+-=? ")
random.seed(0)
data = Dataset.from_list([{"prompt": f"{random.randrange(10)}+{random.randrange(10)}="} for _ in range(16)])
with tempfile.TemporaryDirectory() as directory:
    hf_tiny.model(vocabulary=len(tokenizer)).save_pretrained(f"{directory}/model")
    arguments = GRPOConfig(
        directory,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        num_generations=4,
        max_completion_length=5,
        max_steps=STEPS,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        beta=0.04,
    )
    trainer = GRPOTrainer(
        f"{directory}/model", [runs, short], args=arguments, train_dataset=data, processing_class=tokenizer
    )
    trainer.train()
truth = hf_tiny.Truth()
for entry in trainer.state.log_history:
    if "loss" in entry:
        truth.loss(entry["loss"])
        truth.loss(entry["reward"])
truth.steps = trainer.state.global_step
truth.tell()
