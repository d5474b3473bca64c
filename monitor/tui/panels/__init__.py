"""One panel a file: a pure function from a View to rows, and the small widget around it."""
