"""Floating point operations, the peaks of GPUs, and MFU. Pure."""
