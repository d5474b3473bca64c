"""Reinforcement learning: environments, rollouts, what is generated, decoding, time limits."""
