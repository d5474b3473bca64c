"""Pure: a program's own output read as events. Bytes -> lines -> readings -> steps, spans, metrics."""
