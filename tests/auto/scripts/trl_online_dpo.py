"""TRL's online DPO: the better of two completions is preferred, by a reward that takes its time."""

import random
import tempfile
import time

import hf_tiny
from datasets import Dataset
from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer

waited = 0.0


def short(completions, **_):  # type: ignore[no-untyped-def]
    global waited
    began = time.perf_counter()
    time.sleep(0.05)
    waited += time.perf_counter() - began
    return [-len(completion) / 100 for completion in completions]


tokenizer = hf_tiny.character_tokenizer("0123456789+-=? ")
random.seed(0)
data = Dataset.from_list([{"prompt": f"{random.randrange(10)}+{random.randrange(10)}="} for _ in range(16)])
with tempfile.TemporaryDirectory() as directory:
    arguments = OnlineDPOConfig(
        directory,
        per_device_train_batch_size=4,
        max_new_tokens=5,
        max_steps=6,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
    )
    trainer = OnlineDPOTrainer(
        hf_tiny.model(vocabulary=len(tokenizer)),
        reward_funcs=short,
        args=arguments,
        train_dataset=data,
        processing_class=tokenizer,
    )
    trainer.train()
print("waited", waited)
