"""A long run under random faults: `make soak MINUTES=10`, or `python -m tests.soak --minutes 1`."""
