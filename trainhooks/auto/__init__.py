"""Instrumentation of programs that do not import trainmon: one file per framework, in `adapters`, found by its name.

Steps come only from torch's optimizers, by `adapters/torch_adapter.py`, so none is counted twice; the other adapters
add names of phases, totals, logged metrics and facts.
"""
