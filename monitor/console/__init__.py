"""Read a program's own output as events: bytes -> lines -> readings -> steps, spans, metrics. No clock, no files."""
