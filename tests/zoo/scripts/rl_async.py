"""RL on text whose generator works in a thread beside the learner. `bounded`: samples wait for one update at most.
`unbounded`: the generator is faster than the learner and its queue grows, so that samples get older and older.
"""

import queue
import sys
import threading

import torch
from texts import encode, tiny_llama

UPDATES = 40
PASSES = 8 if "unbounded" in sys.argv else 4  # over each sample: the more, the slower is the learner

torch.manual_seed(0)
learner, sampler = tiny_llama(width=48), tiny_llama(width=48).eval()
optimizer = torch.optim.AdamW(learner.parameters(), lr=1e-3)
prompts = torch.tensor([encode(f"{a}+{b}=") for a in range(4) for b in range(4)])
samples = queue.Queue(maxsize=0 if "unbounded" in sys.argv else 1)
updates = 0


def generate():
    while updates < UPDATES:
        made_at = updates
        with torch.no_grad():
            for ours, theirs in zip(sampler.parameters(), learner.parameters()):
                ours.copy_(theirs)
        answers = sampler.generate(
            prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=12, do_sample=True, pad_token_id=0
        )
        while updates < UPDATES:
            try:
                samples.put((made_at, answers), timeout=0.2)
                break
            except queue.Full:
                pass


thread = threading.Thread(target=generate, daemon=True)
thread.start()
while updates < UPDATES:
    made_at, answers = samples.get()
    rewards = (answers[:, prompts.shape[1] :] > 100).float().mean(1)
    advantages = rewards - rewards.mean()
    for _ in range(PASSES):
        logits = learner(input_ids=answers[:, :-1]).logits
        chosen = torch.log_softmax(logits, -1).gather(-1, answers[:, 1:, None]).squeeze(-1)[:, prompts.shape[1] - 1 :]
        loss = -(chosen.mean(1) * advantages).mean() / PASSES
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    updates += 1
    print(f"update {updates} reward {rewards.mean().item():.4f} staleness {updates - 1 - made_at}")
thread.join()
