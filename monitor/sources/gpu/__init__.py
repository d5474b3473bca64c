"""NVIDIA GPUs, read through the driver's own library. Every reading is optional: many cards lack many of them."""
