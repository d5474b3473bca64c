"""The `trainmon` command: everything that reads what trainings write."""

__version__ = "0.2.0"
