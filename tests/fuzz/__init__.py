"""Foreign input by the million: `python -m tests.fuzz --inputs 10000000`, or `make fuzz`."""
