"""Dialogs over the board."""
