"""Reinforcement learning on text, in groups: what makes its iterations slow, and what makes them teach nothing.

python rl_text.py KIND [mended]
"""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import torch
from texts import END, PAD, encode, tiny_llama

KIND = sys.argv[1]
MENDED = "mended" in sys.argv[2:]
SICK = KIND if not MENDED else ""
PROMPTS, GROUP, LENGTH = 4, 8, 48 if KIND in ("no_cache", "long_tail") else 12
STEPS = 30

torch.manual_seed(0)
model = tiny_llama(width=64 if KIND == "no_cache" else 32)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
prompts = torch.tensor([encode(f"{a}+{b}=") for a in range(PROMPTS) for b in range(1) for _ in range(GROUP)])


def endings(step):
    """Return a processor of logits that ends each answer at a length of its own, as a trained model's do."""
    lengths = torch.full((len(prompts),), LENGTH - 1)
    if KIND == "long_tail":
        lengths = torch.randint(3, 8, (len(prompts),))
    if SICK == "long_tail":
        lengths[step % len(prompts)] = LENGTH - 1

    def process(ids, scores):
        scores[:, PAD] = -torch.inf
        over = ids.shape[1] - prompts.shape[1] >= lengths
        scores[:, END] = torch.where(over, 1e4, -torch.inf)
        return scores

    return process


def judge(answer):
    """A sandbox that takes a moment, as a compiler and its tests do."""
    subprocess.run(["sleep", "0.02"], check=True)
    return (answer > 100).float().mean().item()


def rewards_of(answers):
    if KIND == "judge_in_turn":
        if MENDED:
            with ThreadPoolExecutor(PROMPTS * GROUP) as pool:
                return torch.tensor(list(pool.map(judge, answers)))
        return torch.tensor([judge(answer) for answer in answers])
    score = (answers > 100).float().mean(1)
    if SICK == "equal_rewards":
        return (score > 2).float() + (torch.rand(PROMPTS) < 0.1).float().repeat_interleave(GROUP)  # too hard
    return score


for step in range(STEPS):
    model.eval()
    with torch.no_grad():
        answers = model.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            max_new_tokens=LENGTH,
            do_sample=True,
            use_cache=SICK != "no_cache",
            logits_processor=[endings(step)],
        )
    model.train()
    new = answers[:, prompts.shape[1] :]
    rewards = rewards_of(new)
    groups = rewards.view(PROMPTS, GROUP)
    advantage = ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)).flatten()
    mask = (new != PAD).float()
    logits = model(input_ids=answers[:, :-1]).logits[:, prompts.shape[1] - 1 :]
    logp = torch.log_softmax(logits, -1)
    chosen = logp.gather(-1, new[..., None]).squeeze(-1)
    loss = -(chosen * mask * advantage[:, None]).sum() / mask.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    alike = (groups.std(1) == 0).float().mean()
    print(f"step {step} reward {rewards.mean():.4f} loss {loss.item():.4f} frac_reward_zero_std {alike:.3f}")
