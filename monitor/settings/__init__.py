"""What a person has set: one file of theirs, read here."""
