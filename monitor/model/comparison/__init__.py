"""Runs compared with each other, and with what they could be. Pure."""
