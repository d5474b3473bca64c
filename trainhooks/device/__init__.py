"""The only way to torch.cuda: which steps are timed on the device, and what was timed."""
