"""What both sides share: events, limits, names, the run directory, the journal. Standard library only."""
