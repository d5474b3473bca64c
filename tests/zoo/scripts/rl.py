"""Reinforcement learning on an environment of the program: ways that are right, and some that are not.

python rl.py KIND [mended]
"""

import argparse
import time

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical, Normal

parser = argparse.ArgumentParser()
parser.add_argument("kind")
parser.add_argument("mended", nargs="?")
parser.add_argument("--update-epochs", type=int, default=4)
arguments = parser.parse_args()
KIND, MENDED = arguments.kind, arguments.mended == "mended"
torch.manual_seed(0)
np.random.seed(0)


class Track(gym.Env):
    """A cart that is to stay near the middle of a track; an episode ends where it leaves it."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (4,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, seconds=0.0, limit=60):
        self.seconds, self.limit = seconds, limit

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.count = self.np_random.uniform(-0.1, 0.1, 4).astype(np.float32), 0
        return self.state.copy(), {}

    def step(self, action):
        if self.seconds:
            time.sleep(self.seconds)  # a simulator in a process of its own
        force = 2.0 * float(action) - 1.0 if np.ndim(action) == 0 else float(np.clip(action[0], -1, 1))
        x, v, noise, _ = self.state
        v += 0.05 * force + 0.02 * noise
        self.state = np.array([x + 0.1 * v, v, self.np_random.normal(), force], np.float32)
        self.count += 1
        out = abs(float(self.state[0])) > 1.0
        return self.state.copy(), 1.0 - abs(float(self.state[0])), out, self.count >= self.limit, {}


class Agent(nn.Module):
    """Policy and value, which are called by methods of its own."""

    def __init__(self, width=64):
        super().__init__()
        self.actor = nn.Sequential(
            nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2)
        )
        self.critic = nn.Sequential(
            nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )

    def act(self, x, action=None):
        choice = Categorical(logits=self.actor(x))
        action = choice.sample() if action is None else action
        return action, choice.log_prob(action), choice.entropy(), self.critic(x).squeeze(-1)


def ppo(envs, count, iterations, length, epochs=arguments.update_epochs, in_eval_mode=False, bonus=0.01, part=None):
    agent = Agent()
    trained = agent if part is None else getattr(agent, part)
    optimizer = torch.optim.Adam(trained.parameters(), lr=1e-3)
    state, _ = envs.reset(seed=0)
    for iteration in range(iterations):
        rows = []
        if in_eval_mode:
            agent.eval()
        for _ in range(length):
            x = torch.as_tensor(np.asarray(state), dtype=torch.float32).reshape(count, 4)
            with torch.no_grad():
                action, score, _, value = agent.act(x)
            state, reward, ended, cut, _ = envs.step(action.numpy() if count > 1 else int(action[0]))
            done = np.logical_or(ended, cut)
            if count == 1 and done:
                state, _ = envs.reset()
            rows.append(
                (
                    x,
                    action,
                    score,
                    value,
                    torch.as_tensor(np.reshape(reward, count), dtype=torch.float32),
                    torch.as_tensor(np.reshape(done, count), dtype=torch.float32),
                )
            )
        agent.train()
        xs, actions, scores, values, rewards, dones = (torch.stack(column) for column in zip(*rows))
        returns, running = torch.zeros_like(rewards), values[-1]
        for t in reversed(range(length)):
            running = returns[t] = rewards[t] + 0.97 * running * (1 - dones[t])
        flat = [tensor.flatten(0, 1) for tensor in (xs, actions, scores, returns, returns - values)]
        moved, clipped, entropies = [], [], []
        for _ in range(epochs):
            for index in torch.randperm(length * count).split(length * count // 4):
                x, a, old, target, advantage = (tensor[index] for tensor in flat)
                _, score, entropy, value = agent.act(x, a)
                ratio = (score - old).exp()
                surrogate = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
                loss = -surrogate.mean() + 0.5 * (value - target).square().mean() - bonus * entropy.mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
                with torch.no_grad():
                    moved.append(((ratio - 1) - (score - old)).mean().item())
                    clipped.append(((ratio - 1).abs() > 0.2).float().mean().item())
                    entropies.append(entropy.mean().item())
        print(
            f"iteration {iteration} mean_reward {rewards.mean().item():.4f} approx_kl {np.mean(moved):.7f}"
            f" clipfrac {np.mean(clipped):.4f} entropy {np.mean(entropies):.4f}"
        )


def dqn(double):
    online, target = (nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 2)) for _ in range(2))
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
    env = gym.wrappers.RecordEpisodeStatistics(Track())
    memory = []
    state, _ = env.reset(seed=0)
    for t in range(3000):
        with torch.no_grad():
            action = env.action_space.sample() if t < 400 else int(online(torch.as_tensor(state)).argmax())
        after, reward, ended, cut, info = env.step(action)
        memory.append((state, action, reward, after, ended))
        state = after
        if ended or cut:
            if t % 10 == 0:
                print(f"t={t} episodic_return={float(info['episode']['r']):.2f}")
            state, _ = env.reset()
        if t >= 400 and t % 2 == 0:
            batch = [memory[i] for i in np.random.randint(len(memory), size=64)]
            s, a, r, n, d = (torch.as_tensor(np.array(column)) for column in zip(*batch))
            with torch.no_grad():
                best = online(n).argmax(1, keepdim=True) if double else target(n).argmax(1, keepdim=True)
                wanted = r.float() + 0.97 * target(n).gather(1, best).squeeze(1) * (~d)
            loss = nn.functional.smooth_l1_loss(online(s).gather(1, a.long()[:, None]).squeeze(1), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if t % 200 == 0:
            target.load_state_dict(online.state_dict())


def episodes(baseline):
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3)
    env = Track(limit=120)
    for episode in range(150):
        state, _ = env.reset(seed=episode)
        scores, values, rewards, done = [], [], [], False
        while not done:
            action, score, _, value = agent.act(torch.as_tensor(state))
            state, reward, ended, cut, _ = env.step(int(action))
            done = ended or cut
            scores.append(score)
            values.append(value)
            rewards.append(reward)
        returns, running = [], 0.0
        for reward in reversed(rewards):
            running = reward + 0.97 * running
            returns.insert(0, running)
        returns = torch.tensor(returns)
        advantage = returns - torch.stack(values) if baseline else (returns - returns.mean()) / (returns.std() + 1e-6)
        loss = -(torch.stack(scores) * advantage.detach()).sum()
        loss = loss + advantage.square().sum() if baseline else loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if episode % 10 == 0:
            print(f"Episode {episode}\tLast reward: {sum(rewards):.2f}")


def continuous():
    """Soft updates of two critics and a policy, each with an optimizer, one environment step for each update."""
    policy = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 2))
    critics = [nn.Sequential(nn.Linear(5, 128), nn.ReLU(), nn.Linear(128, 1)) for _ in range(2)]
    targets = [nn.Sequential(nn.Linear(5, 128), nn.ReLU(), nn.Linear(128, 1)) for _ in range(2)]
    for critic, target in zip(critics, targets):
        target.load_state_dict(critic.state_dict())
    of_policy = torch.optim.Adam(policy.parameters(), lr=3e-4)
    of_critics = torch.optim.Adam([p for critic in critics for p in critic.parameters()], lr=1e-3)
    env = Track()
    env.action_space = gym.spaces.Box(-1.0, 1.0, (1,))
    memory, total = [], 0.0
    state, _ = env.reset(seed=0)

    def act(x):
        mean, spread = policy(x).chunk(2, -1)
        return torch.tanh(Normal(mean, spread.clamp(-3, 1).exp()).rsample())

    for t in range(1500):
        with torch.no_grad():
            action = act(torch.as_tensor(state)).numpy()
        after, reward, ended, cut, _ = env.step(action)
        memory.append((state, action, reward, after, ended))
        state, total = after, total + reward
        if ended or cut:
            state, _ = env.reset()
        if t < 128:
            continue
        batch = [memory[i] for i in np.random.randint(len(memory), size=128)]
        s, a, r, n, d = (torch.as_tensor(np.array(column)) for column in zip(*batch))
        with torch.no_grad():
            following = torch.cat([n, act(n)], 1)
            wanted = r.float() + 0.97 * torch.min(*(target(following) for target in targets)).squeeze(1) * (~d)
        loss = sum((critic(torch.cat([s, a], 1)).squeeze(1) - wanted).square().mean() for critic in critics)
        of_critics.zero_grad()
        loss.backward()
        of_critics.step()
        chosen = torch.cat([s, act(s)], 1)
        loss = -torch.min(*(critic(chosen) for critic in critics)).mean()
        of_policy.zero_grad()
        loss.backward()
        of_policy.step()
        with torch.no_grad():
            for critic, target in zip(critics, targets):
                for p, q in zip(critic.parameters(), target.parameters()):
                    q.lerp_(p, 0.005)
        if t % 100 == 0:
            print(f"t={t} reward={total / (t + 1):.3f}")


def imitation():
    """Learns from recorded pairs, and drives the environment now and then to see how well."""
    data = torch.randn(16384, 4)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(data, (data[:, 0] + data[:, 1] < 0).long()), batch_size=64, shuffle=True
    )
    policy = nn.Sequential(nn.Linear(4, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    env = Track()
    for epoch in range(8):
        policy.train()
        for x, y in loader:
            loss = nn.functional.cross_entropy(policy(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        policy.eval()
        state, _ = env.reset(seed=epoch)
        total, done = 0.0, False
        while not done:
            with torch.no_grad():
                action = int(policy(torch.as_tensor(state)).argmax())
            state, reward, ended, cut, _ = env.step(action)
            total, done = total + reward, ended or cut
        print(f"epoch {epoch} loss {loss.item():.4f} return {total:.2f}")


if KIND == "waits_for_environment":
    if MENDED:  # two at once, each in a process
        ppo(gym.vector.AsyncVectorEnv([lambda: Track(0.006)] * 2), 2, 12, 32)
    else:
        ppo(Track(0.006), 1, 12, 64)
elif KIND == "frozen":  # the optimizer holds the critic alone
    ppo(gym.vector.SyncVectorEnv([Track] * 8), 8, 45, 32, part=None if MENDED else "critic")
elif KIND == "collapsed":  # the sign of the entropy bonus is wrong
    ppo(gym.vector.SyncVectorEnv([Track] * 8), 8, 45, 32, bonus=0.01 if MENDED else -10.0)
elif KIND == "plain":
    ppo(Track(), 1, 25, 256)
elif KIND == "vectorized":
    ppo(gym.vector.SyncVectorEnv([Track] * 16), 16, 25, 64)
elif KIND == "in_eval_mode":
    ppo(gym.vector.SyncVectorEnv([Track] * 8), 8, 25, 64, in_eval_mode=True)
elif KIND == "one_epoch":
    ppo(gym.vector.SyncVectorEnv([Track] * 8), 8, 60, 32, epochs=1)
elif KIND == "dqn":
    dqn(double=False)
elif KIND == "double_dqn":
    dqn(double=True)
elif KIND == "reinforce":
    episodes(baseline=False)
elif KIND == "actor_critic":
    episodes(baseline=True)
elif KIND == "continuous":
    continuous()
elif KIND == "imitation":
    imitation()
else:
    raise SystemExit(f"unknown kind {KIND}")
