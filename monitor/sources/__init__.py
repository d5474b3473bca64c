"""Sources of events: journals, sockets, the NVIDIA driver, the host, output files."""
