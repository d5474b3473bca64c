"""A report as text and JSON."""
