"""The background thread's work: entries into events, stack samples, facts, the process's run."""
