"""Faults, injected into real runs: `python -m tests.faults [--short] [WORD...]` prints what became of them.

A file a family. Each fault is a function in the catalogue that strikes a real training and says what it found.
"""

from tests.faults import crowd, disk, processes, questions, sockets, speed, terminal

FAMILIES = (terminal, processes, sockets, questions, disk, crowd, speed)
