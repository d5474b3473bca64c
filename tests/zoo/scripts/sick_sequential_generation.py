"""A REINFORCE step that asks generate() for one answer after the other."""

import sys

import torch
from texts import encode, tiny_llama

MENDED = "mended" in sys.argv[1:]  # one call for all prompts of a step
torch.manual_seed(0)
model = tiny_llama(width=32)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
prompts = [torch.tensor([encode(f"{a}+{b}=")]) for a in range(5) for b in range(2)]
for step in range(100 if MENDED else 24):
    answers, rewards = [], []
    for prompt in [torch.cat(prompts[:8])] if MENDED else prompts[:8]:
        model.eval()
        with torch.no_grad():
            answer = model.generate(prompt, max_new_tokens=8, do_sample=True, pad_token_id=0)
        model.train()
        answers += answer
        rewards += (answer[:, prompt.shape[1] :] > 50).float().mean(1).tolist()
    batch = torch.nn.utils.rnn.pad_sequence(answers, batch_first=True)
    logits = model(input_ids=batch[:, :-1]).logits
    chosen = torch.log_softmax(logits, -1).gather(-1, batch[:, 1:, None]).squeeze(-1).mean(1)
    advantage = torch.tensor(rewards) - sum(rewards) / len(rewards)
    loss = -(chosen * advantage).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: reward {sum(rewards) / len(rewards):.3f}")
