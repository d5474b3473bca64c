"""Instrumentation of programs that know nothing of trainmon: one file a framework, each armed when it is imported.

The steps of a program are told by `boundaries` alone, from torch's own optimizers; the frameworks' files add what only
they know: names of phases, totals, logged metrics, facts. So nothing is counted twice.
"""
