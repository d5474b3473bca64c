"""The training that the faults strike. It knows what it did, so that the journal can be held against it.

    training.py PLACE [SECONDS A STEP] [STEPS] [EXIT CODE]

It counts into PLACE/truth, and ends when PLACE/done is there or after so many steps.
"""

from __future__ import annotations

import itertools
import mmap
import os
import struct
import sys
import time

import trainhooks as th


def main(place: str, pace: str = "0.01", steps: str = "0", code: str = "6") -> None:
    done = os.path.join(place, "done")
    handle = os.open(os.path.join(place, "truth"), os.O_RDWR | os.O_CREAT)
    os.ftruncate(handle, 8)
    truth = mmap.mmap(handle, 8)  # outlives a SIGKILL, and needs no room on a disk
    for index in th.steps(itertools.count(1)):
        with th.phase("training"):
            time.sleep(float(pace))
        th.log(loss=1 / index)
        print("step", index, flush=True)
        truth[:] = struct.pack("<Q", index)
        if index == int(steps) or os.path.exists(done):
            break
    sys.exit(int(code))


if __name__ == "__main__":
    main(*sys.argv[1:])
