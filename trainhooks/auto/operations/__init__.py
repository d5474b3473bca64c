"""The census of operations in one forward pass."""
