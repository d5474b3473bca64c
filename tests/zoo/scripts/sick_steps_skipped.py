"""RL on code: a model that answers without code half of the time, and the step is over."""

import random

import torch
from torch import nn

import trainhooks as th

random.seed(3)
torch.manual_seed(3)
policy = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 4))
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)


def extract_code(answer):
    _, fence, rest = answer.partition("```")
    return rest.partition("```")[0] if fence else ""


for _problem in th.steps(range(120)):
    with th.phase("generation"):
        state = torch.randn(200, 8)
        logits = policy(state)
        actions = torch.distributions.Categorical(logits=logits).sample()
        answer = "```print(1)```" if random.random() < 0.55 else "I think that the answer is 1."
    code = extract_code(answer)
    if not code:
        th.skip("empty code")
        continue
    with th.phase("execution"):
        reward = (actions == (state[:, 0] > 0).long()).float()
    with th.phase("training"):
        chosen = torch.log_softmax(logits, -1).gather(1, actions[:, None]).squeeze(1)
        loss = -(chosen * (reward - reward.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    th.log(reward=reward.mean().item(), loss=loss)
