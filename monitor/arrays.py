"""numpy, without the threads for linear algebra, one for each core, that it would start; and the types of arrays."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeAlias

THREADS = "OPENBLAS_NUM_THREADS"

_given = os.environ.get(THREADS)
os.environ[THREADS] = "1"
try:
    import numpy as np
finally:
    del os.environ[THREADS]
    if _given is not None:
        os.environ[THREADS] = _given

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray: TypeAlias = NDArray[np.float64]
    IntArray: TypeAlias = NDArray[np.int64]
    BoolArray: TypeAlias = NDArray[np.bool_]
else:  # what a decoder of states looks at
    FloatArray = IntArray = BoolArray = np.ndarray

__all__ = ["BoolArray", "FloatArray", "IntArray", "np"]
