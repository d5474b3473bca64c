"""Start, record and stop a training."""
