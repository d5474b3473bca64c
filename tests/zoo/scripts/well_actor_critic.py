"""PPO on a small environment of its own: rollouts without gradients, then several epochs over them."""

import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)


class Walk:
    """Sixty-four walkers on a line that are to stay near the middle."""

    def reset(self):
        self.x = torch.randn(64, 2)
        return self.x

    def step(self, action):
        force = action.float()[:, None] * 2 - 1
        self.x = torch.cat([self.x[:, :1] + 0.1 * self.x[:, 1:], self.x[:, 1:] + 0.1 * force], 1)
        return self.x, 1.0 - self.x[:, 0].abs().clamp(max=2.0)


actor = nn.Sequential(nn.Linear(2, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 2))
critic = nn.Sequential(nn.Linear(2, 128), nn.Tanh(), nn.Linear(128, 1))
optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=3e-4)
environment = Walk()
for update in range(25):
    state, rows = environment.reset(), []
    for _ in range(32):
        with torch.no_grad():
            policy = Categorical(logits=actor(state))
            action = policy.sample()
        after, reward = environment.step(action)
        rows.append((state, action, policy.log_prob(action), reward))
        state = after
    states, actions, old, rewards = (torch.stack(column) for column in zip(*rows))
    returns = torch.zeros_like(rewards)
    running = torch.zeros(64)
    for t in reversed(range(32)):
        running = rewards[t] + 0.95 * running
        returns[t] = running
    flat = [t.flatten(0, 1) for t in (states, actions, old, returns)]
    for _ in range(4):
        for index in torch.randperm(2048).split(256):
            s, a, o, r = (t[index] for t in flat)
            value = critic(s).squeeze(1)
            advantage = (r - value).detach()
            ratio = (Categorical(logits=actor(s)).log_prob(a) - o).exp()
            surrogate = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
            loss = -surrogate.mean() + 0.5 * (r - value).square().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(actor.parameters(), 0.5)
            optimizer.step()
    print(f"update {update} mean_reward {rewards.mean().item():.4f} loss {loss.item():.4f}")
