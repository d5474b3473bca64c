"""PPO on CartPole in plain PyTorch and gymnasium: keep a pole upright on a cart.

    trainmon run -- python demo/ppo_cartpole.py                    # about a minute on two CPU cores
    trainmon run -- python demo/ppo_cartpole.py --iterations 20    # some seconds
    trainmon run -- python demo/ppo_cartpole.py --slow-env 1       # an environment that takes a millisecond per step

An iteration plays 128 steps in each environment, without gradients, and learns from them in four epochs of four
minibatches. An episode's return is the number of steps that the pole stayed up, 500 at most. This script does not
import trainmon: it shows how an unmodified program is observed.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from torch import Tensor, nn
from torch.distributions import Categorical

ROLLOUT_STEPS = 128  # of each environment
EPOCHS, MINIBATCHES = 4, 4
LEARNING_RATE = 1e-3
DISCOUNT, TRACE = 0.99, 0.95
CLIP = 0.2
VALUE_WEIGHT, ENTROPY_WEIGHT = 0.5, 0.01
REWARD_SCALE = 0.02  # brings the values, up to 1 / (1 - DISCOUNT), near to one
RECENT_EPISODES = 50


class Slow(gym.Wrapper[Any, Any, Any, Any]):
    """An environment that takes some more time for each step."""

    def __init__(self, env: gym.Env[Any, Any], milliseconds: float) -> None:
        super().__init__(env)
        self.seconds = milliseconds / 1000

    def step(self, action: Any) -> Any:
        time.sleep(self.seconds)
        return self.env.step(action)


class Agent(nn.Module):
    """A policy and a value function, each a small perceptron."""

    def __init__(self, observation: int, actions: int, width: int = 64) -> None:
        super().__init__()
        self.policy, self.value = perceptron(observation, width, actions, 0.01), perceptron(observation, width, 1, 1.0)

    def forward(self, observations: Tensor) -> tuple[Categorical, Tensor]:
        return Categorical(logits=self.policy(observations)), self.value(observations).squeeze(-1)


def perceptron(inputs: int, width: int, outputs: int, gain: float) -> nn.Sequential:
    layers = [nn.Linear(inputs, width), nn.Linear(width, width), nn.Linear(width, outputs)]
    for layer, scale in zip(layers, (2**0.5, 2**0.5, gain), strict=True):
        nn.init.orthogonal_(layer.weight, scale)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])


class Rollout:
    """What was seen, done and earned: one row for each step, one column for each environment."""

    def __init__(self, envs: int, observation: int) -> None:
        shape = (ROLLOUT_STEPS, envs)
        self.observations = torch.zeros(*shape, observation)
        self.actions = torch.zeros(shape, dtype=torch.int64)
        self.log_probs, self.values, self.rewards, self.ended = (torch.zeros(shape) for _ in range(4))
        self.last_values = torch.zeros(envs)

    def advantages(self) -> Tensor:
        """Return the generalized advantage estimate of each step."""
        estimates, following = torch.zeros_like(self.rewards), torch.zeros_like(self.last_values)
        next_values = self.last_values
        for step in reversed(range(ROLLOUT_STEPS)):
            goes_on = 1 - self.ended[step]
            surprise = self.rewards[step] + DISCOUNT * goes_on * next_values - self.values[step]
            following = surprise + DISCOUNT * TRACE * goes_on * following
            estimates[step], next_values = following, self.values[step]
        return estimates


class Player:
    """The environments, and where they stand."""

    def __init__(self, envs: int, slow: float, seed: int) -> None:
        def make() -> gym.Env[Any, Any]:
            env = gym.make("CartPole-v1")
            return Slow(env, slow) if slow else env

        vector = SyncVectorEnv([make] * envs, autoreset_mode=AutoresetMode.SAME_STEP)
        self.envs = RecordEpisodeStatistics(vector, RECENT_EPISODES)
        self.now, _ = self.envs.reset(seed=seed)

    @torch.no_grad()
    def play(self, agent: Agent) -> Rollout:
        rollout = Rollout(*self.now.shape)
        for step in range(ROLLOUT_STEPS):
            observations = torch.as_tensor(self.now)
            policy, values = agent(observations)
            actions = policy.sample()
            self.now, rewards, terminated, truncated, infos = self.envs.step(actions.numpy())
            rewards = REWARD_SCALE * rewards
            if truncated.any():  # the time is up, but the pole still stands: what was to come counts
                last = np.stack([seen for seen, cut in zip(infos["final_obs"], truncated, strict=True) if cut])
                rewards[truncated] += DISCOUNT * agent(torch.as_tensor(last))[1].numpy()
            rollout.observations[step], rollout.actions[step] = observations, actions
            rollout.log_probs[step], rollout.values[step] = policy.log_prob(actions), values
            rollout.rewards[step] = torch.as_tensor(rewards)
            rollout.ended[step] = torch.as_tensor(terminated | truncated)
        rollout.last_values = agent(torch.as_tensor(self.now))[1]
        return rollout

    def mean_return(self) -> float:
        """Return the mean of the last episodes."""
        return float(np.mean(self.envs.return_queue)) if self.envs.return_queue else float("nan")


def learn(agent: Agent, optimizer: torch.optim.Optimizer, rollout: Rollout) -> float:
    """Train on a rollout; return the mean loss."""
    estimates = rollout.advantages()
    parts = rollout.observations, rollout.actions, rollout.log_probs, estimates, estimates + rollout.values
    observations, actions, old_log_probs, advantages, returns = (part.flatten(0, 1) for part in parts)
    losses = []
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(actions)).chunk(MINIBATCHES):
            policy, values = agent(observations[chosen])
            advantage = advantages[chosen]
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            ratio = (policy.log_prob(actions[chosen]) - old_log_probs[chosen]).exp()
            gain = torch.min(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
            value_loss = 0.5 * (values - returns[chosen]).square().mean()
            loss = VALUE_WEIGHT * value_loss - gain - ENTROPY_WEIGHT * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
            losses.append(loss.item())
    return float(np.mean(losses))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    add = parser.add_argument
    add("--iterations", type=int, default=200, help="rollouts, each followed by its training (default: %(default)s)")
    add("--envs", type=int, default=8, help="environments that are played at once (default: %(default)s)")
    add(
        "--slow-env", type=float, default=0.0, metavar="MS", help="time that a step of an environment takes in addition"
    )
    add("--seed", type=int, default=0, help="same seed, same run (default: %(default)s)")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    torch.manual_seed(args.seed)
    # A second thread does not speed up matrices this small, and slows them down if another program needs the core.
    torch.set_num_threads(1)
    player = Player(args.envs, args.slow_env, args.seed)
    agent = Agent(player.now.shape[1], 2)
    optimizer = torch.optim.Adam(agent.parameters(), lr=LEARNING_RATE, eps=1e-5)
    for iteration in range(1, args.iterations + 1):
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * (1 - (iteration - 1) / args.iterations)
        loss = learn(agent, optimizer, player.play(agent))
        print(
            f"iteration {iteration}/{args.iterations}: return {player.mean_return():.1f}, loss {loss:.4f}", flush=True
        )
    player.envs.close()


if __name__ == "__main__":
    main()
