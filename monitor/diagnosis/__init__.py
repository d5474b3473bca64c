"""Findings from the state of a run. Pure."""
