"""The panels of the overview, one `*_panel` module each: pure functions from a View to rows, and a small widget."""
