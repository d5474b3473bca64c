"""Healthy: PPO in the manner of CleanRL; thousands of environments and the policy on the GPU, rollouts of 16 steps."""

import torch
from common import Meter, options
from torch import nn
from torch.distributions import Categorical

given = options()
envs, steps, epochs, width, seen, actions = (8, 16, 2, 16, 4, 3) if given.cpu else (8192, 16, 2, 2048, 64, 8)
device, minibatches = given.device, 4
autocast = torch.autocast(device, torch.bfloat16)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        hidden = (nn.Linear(seen, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        self.trunk = nn.Sequential(*hidden, nn.ReLU())
        self.actor, self.critic = nn.Linear(width, actions), nn.Linear(width, 1)

    def forward(self, x):
        with autocast:
            hidden = self.trunk(x)
            logits, value = self.actor(hidden), self.critic(hidden)
        return Categorical(logits=logits.float(), validate_args=False), value.float().squeeze(-1)


agent = Agent().to(device)
optimizer = torch.optim.AdamW(agent.parameters(), lr=3e-4, fused=True)
push = torch.randn(actions, seen, device=device) * 0.1
state = torch.randn(envs, seen, device=device)


def play(state, action):
    """A made-up world: who stays near zero is rewarded."""
    state = 0.99 * state + push[action] + 0.02 * torch.randn_like(state)
    return state, -state.square().mean(-1)


meter = Meter(given, warm=3)
for update in range(10**9):
    rows = []
    with torch.no_grad():
        for _ in range(steps):
            policy, value = agent(state)
            action = policy.sample()
            after, reward = play(state, action)
            rows.append((state, action, policy.log_prob(action), value, reward))
            state = after
        _, following = agent(state)
        returns = []
        for *_, reward in reversed(rows):
            following = reward + 0.95 * following
            returns.append(following)
    states, played, before, values, rewards = (torch.cat(each) for each in zip(*rows))
    wanted = torch.cat(returns[::-1])
    advantage = wanted - values
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    for _ in range(epochs):
        for part in torch.randperm(len(states), device=device).chunk(minibatches):
            policy, value = agent(states[part])
            ratio = (policy.log_prob(played[part]) - before[part]).exp()
            clipped = ratio.clamp(0.8, 1.2) * advantage[part]
            loss = -torch.min(ratio * advantage[part], clipped).mean() + 0.5 * (value - wanted[part]).square().mean()
            loss = loss - 0.01 * policy.entropy().mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    if update % 10 == 0:
        print(f"update {update}: reward {rewards.mean().item():.4f}, loss {loss.item():.4f}")
    if meter.over(envs * steps):
        break
meter.tell()
