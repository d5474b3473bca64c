"""The verbs of the command line: one small function each, and what they share."""
