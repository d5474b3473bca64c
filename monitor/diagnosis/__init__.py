"""Pure: the state of a run in, findings out."""
