"""What every test needs: nothing of the developer's own environment, and no claim about speed."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# A busy box makes examples slow; that is no fault of what is tested.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")

for _name in [name for name in os.environ if name.startswith("TRAINMON")] + [
    "NO_COLOR",
    "FORCE_COLOR",
    "RANK",
    "WORLD_SIZE",
]:
    os.environ.pop(_name, None)
