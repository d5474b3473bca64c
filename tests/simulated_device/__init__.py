"""A simulated asynchronous CUDA device that drives the real hooks: virtual time, and a ledger that is the truth.

    from tests.simulated_device import begin
    device, clock = begin()          # before trainhooks is imported
    device.launch(8, 0.001, "forward")
    device.synchronize()

Nothing in this package needs a GPU, and nothing of it depends on how fast the machine is.
"""

from tests.simulated_device.clock import Clock, install_clock
from tests.simulated_device.device import CostTable, Device, DeviceError
from tests.simulated_device.ledger import Ledger

__all__ = ["Clock", "CostTable", "Device", "DeviceError", "Ledger", "begin", "install_clock"]


def begin(**options: object) -> tuple[Device, Clock]:
    """Put the virtual clock in place of this process's own, and make a device that lives by it.

    Torch is stood in for by `cuda.install` (the real torch with a CUDA of ours) or `cuda.install_fake` (no torch at
    all). Call this before trainhooks is imported: it binds its clock then.
    """
    clock = install_clock()
    return Device(clock, **options), clock  # type: ignore[arg-type]
