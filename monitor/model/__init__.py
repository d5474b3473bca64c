"""Pure: events folded into the state of a run, and the report read off it."""
