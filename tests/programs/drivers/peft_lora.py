"""A LoRA fine-tune by PEFT in a plain loop with accelerate, as its README and examples show."""

import torch
from accelerate import Accelerator
from peft import LoraConfig, TaskType, get_peft_model
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM, get_linear_schedule_with_warmup

torch.manual_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
model = LlamaForCausalLM(LlamaConfig(vocab_size=256, **shape))
config = LoraConfig(r=4, lora_alpha=16, task_type=TaskType.CAUSAL_LM, target_modules=["q_proj", "v_proj"])
model = get_peft_model(model, config)
loader = DataLoader(torch.randint(0, 256, (160, 32)), batch_size=4, shuffle=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = get_linear_schedule_with_warmup(optimizer, 0, 40)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
for epoch in range(2):
    for rows in loader:
        with accelerator.accumulate(model):
            loss = model(input_ids=rows, labels=rows).loss
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    print(f"epoch {epoch}: loss {loss.item():.4f}")
