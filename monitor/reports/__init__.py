"""A report as text, JSON and a page for a browser."""
