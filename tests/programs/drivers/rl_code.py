"""Reinforcement learning on code: write programs, run them for their rewards, then several optimizer steps.

`rl_code.py 6` does six such rounds with transformers' `generate`. The programs run in processes of their own.
"""

import subprocess
import sys
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

LETTERS = "0123456789+-*() \n"
ROUNDS, STEPS, BATCH, LENGTH = int(sys.argv[1]), 4, 16, 12

torch.manual_seed(0)
torch.set_num_threads(1)
shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
tokens = {"bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0}
model = LlamaForCausalLM(LlamaConfig(vocab_size=len(LETTERS) + 1, **shape, **tokens))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def reward(written):
    """How much of the program Python takes: 1 if it runs, else by its number of digits."""
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", written], capture_output=True, timeout=10)
    return 1.0 if ran.returncode == 0 else sum(map(str.isdigit, written)) / (2 * LENGTH)


def log_likelihood(rows):
    logits = model(rows).logits[:, :-1]
    return torch.log_softmax(logits, -1).gather(-1, rows[:, 1:, None]).squeeze(-1)


for number in range(ROUNDS):
    began = time.perf_counter()
    prompt = torch.zeros(BATCH, 1, dtype=torch.long)
    rows = model.generate(prompt, do_sample=True, max_new_tokens=LENGTH, min_new_tokens=LENGTH)
    generated = time.perf_counter()
    written = ["".join(LETTERS[token - 1] if token else "" for token in row) for row in rows[:, 1:].tolist()]
    rewards = torch.tensor([reward(each) for each in written])
    scored = time.perf_counter()
    advantages = ((rewards - rewards.mean()) / (rewards.std() + 1e-4))[:, None]
    with torch.no_grad():
        before = log_likelihood(rows)
    for _ in range(STEPS):
        ratio = (log_likelihood(rows) - before).exp()
        loss = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(
        f"round {number}: loss {loss.item():.4f}, reward {rewards.mean():.4f}, "
        f"generation took {generated - began:.4f} s, rewards took {scored - generated:.4f} s",
        flush=True,
    )
