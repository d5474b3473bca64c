"""Probes with torch, a file for each subject. Each program asks one question of what it can see after some training."""
