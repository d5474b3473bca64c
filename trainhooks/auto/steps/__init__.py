"""The steps of unmodified programs, and how many of them are planned."""
