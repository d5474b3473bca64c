"""Where events come from: journals, sockets, the driver, the host."""
