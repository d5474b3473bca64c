"""List, follow, replay, cache and remove runs."""
