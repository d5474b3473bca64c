"""transformers' `Trainer` on a tiny model, as its guide shows."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

set_seed(0)
shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
model = LlamaForCausalLM(LlamaConfig(vocab_size=256, **shape))
rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 256, (240, 32))]
arguments = TrainingArguments(
    "out", per_device_train_batch_size=4, gradient_accumulation_steps=2, num_train_epochs=2, logging_steps=1,
    save_strategy="no", report_to=[], use_cpu=True, dataloader_pin_memory=False, disable_tqdm=True,
)  # fmt: skip
Trainer(model, arguments, train_dataset=rows).train()
