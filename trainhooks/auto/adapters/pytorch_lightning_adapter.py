"""pytorch_lightning: the older name of Lightning, whose adapter serves both."""

from trainhooks.auto.adapters import lightning_adapter as lightning_adapter
