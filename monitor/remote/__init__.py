"""Runs on other hosts: a copy of a run directory that grows with it, over the stdin and stdout of any command."""
