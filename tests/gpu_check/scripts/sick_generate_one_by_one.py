"""Sick: a REINFORCE step asks generate() for one answer after the other. Mended: for all of them at once."""

import torch
from common import Meter, learn, options
from transformers import LlamaConfig, LlamaForCausalLM

given = options()
width, layers, new, prompts = (32, 1, 4, 2) if given.cpu else (512, 8, 32, 16)
config = LlamaConfig(
    vocab_size=1024, hidden_size=width, intermediate_size=3 * width, num_hidden_layers=layers,
    num_attention_heads=4 if given.cpu else 8, max_position_embeddings=256, pad_token_id=0, eos_token_id=None,
    bos_token_id=1,
)  # fmt: skip
model = LlamaForCausalLM(config).to(given.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
for step in Meter(given, warm=2).steps(prompts):
    asked = torch.randint(2, 1024, (prompts, 8), device=given.device)
    model.eval()
    with torch.no_grad():
        groups = [asked] if given.mended else asked.split(1)
        kind = dict(max_new_tokens=new, min_new_tokens=new, do_sample=True, pad_token_id=0)
        said = torch.cat([model.generate(each, attention_mask=torch.ones_like(each), **kind) for each in groups])
    model.train()
    reward = (said[:, 8:] % 2).float().mean(1)
    with torch.autocast(given.device, torch.bfloat16):
        logits = model(input_ids=said[:, :-1]).logits.float()
    chosen = torch.log_softmax(logits, -1).gather(-1, said[:, 1:, None]).squeeze(-1).mean(1)
    loss = -(chosen * (reward - reward.mean())).mean()
    learn(optimizer, loss)
    print(f"step {step}: reward {reward.mean().item():.3f}")
