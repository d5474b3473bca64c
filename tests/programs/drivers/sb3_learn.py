"""Stable-Baselines3's `learn`, as its README shows: `sb3_learn.py PPO 2048`."""

import sys

import stable_baselines3

algorithm = getattr(stable_baselines3, sys.argv[1])
more = {"n_steps": 256} if sys.argv[1] == "PPO" else {"learning_starts": 100, "exploration_fraction": 0.5}
model = algorithm("MlpPolicy", "CartPole-v1", verbose=1, seed=0, device="cpu", **more)
model.learn(total_timesteps=int(sys.argv[2]), log_interval=1)
