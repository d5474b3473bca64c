"""A run in the formats of other tools. Nothing is computed here: what the journals hold is written down again."""
