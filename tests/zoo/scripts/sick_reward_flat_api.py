"""The executor fails each time, the exception is caught, and the reward is 0 for ever."""

import subprocess
import sys

import torch
from torch import nn
from torch.distributions import Categorical

import trainhooks as th

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 6))
opt = torch.optim.Adam(policy.parameters(), lr=1e-3)


def run_tests(program):
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", program], capture_output=True, timeout=5, cwd="/sandbox"
        )
        return float(done.returncode == 0)
    except Exception:  # the fault that is planted: whatever goes wrong passes for a wrong answer
        return 0.0


th.init(name="rl", total_steps=80)
for _ in th.steps(range(80)):
    with th.phase("generation"):
        state = torch.randn(300, 4)
        picked = Categorical(logits=policy(state)).sample()
    with th.phase("execution"):
        reward = run_tests(f"assert {int(picked[0])} % 2 == 0")
    with th.phase("training"):
        log_probs = Categorical(logits=policy(state)).log_prob(picked)
        loss = -(log_probs * reward).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    th.log(reward=reward)
