"""RL on text: one batched generate() a step takes most of the time, which is its job. Rewards are learned from."""

import torch
from texts import encode, tiny_llama

torch.manual_seed(0)
model = tiny_llama(width=32)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
prompts = torch.tensor([encode(f"{a}+{b}=") for a in range(4) for b in range(4)])
for step in range(40):
    model.eval()
    with torch.no_grad():
        answers = model.generate(
            prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=24, do_sample=True, pad_token_id=0
        )
    model.train()
    rewards = (answers[:, prompts.shape[1] :] > 100).float().mean(1)
    logits = model(input_ids=answers[:, :-1]).logits
    chosen = torch.log_softmax(logits, -1).gather(-1, answers[:, 1:, None]).squeeze(-1)[:, prompts.shape[1] - 1 :]
    loss = -(chosen.mean(1) * (rewards - rewards.mean())).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} reward {rewards.mean().item():.4f} loss {loss.item():.4f}")
