"""Reinforcement learning: environments, rollouts, decoding, time limits."""
