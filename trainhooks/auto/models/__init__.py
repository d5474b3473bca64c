"""The models that an optimizer trains: their calls, copies, gradients and updates."""
