"""A viewer without a screen: writes down which events it was given, until the run is over.

viewer.py RUN FILE
"""

from __future__ import annotations

import sys
from pathlib import Path

from monitor.sources.run_directory import RunDirectory
from trainhooks.protocol import rundir


def main(run: Path, out: Path) -> None:
    source = RunDirectory(run)
    with open(out, "w") as told:
        while True:
            # The training's end is not the journals' last line: its recorder still writes how it ended.
            alive = rundir.run_alive(run) or rundir.lock_held(rundir.recorder_lock(run))
            while batch := source.poll():
                told.writelines(f"{event.producer} {event.seq}\n" for event in batch)
                told.flush()
            if not alive:
                break
            source.wait(0.2)
        told.write(f"missing {source.missing}\n")
    source.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
