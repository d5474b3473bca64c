"""Ranks and roles compared. Pure."""
