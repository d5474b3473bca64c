"""The runs of this machine: found, followed, replayed, kept or removed."""
