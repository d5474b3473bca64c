"""Starting, recording and ending a training."""
