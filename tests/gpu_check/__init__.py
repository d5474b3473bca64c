"""What can only be checked on a machine with an NVIDIA GPU: `make gpu-check`."""
