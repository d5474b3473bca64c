"""Print the table: `make faults`, or `python -m tests.faults --short terminal disk` for some of it quickly."""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.faults import FAMILIES  # noqa: F401  # their faults enter the catalogue
from tests.faults.catalogue import FAULTS, Fault, NotHere
from tests.signals import as_in_a_terminal

WIDTH = 58


def main() -> int:
    as_in_a_terminal()
    short = "--short" in sys.argv
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    chosen = [each for each in FAULTS if not words or any(word == each.family or word in each.name for word in words)]
    if not chosen:
        print(f"no fault and no family is named {' or '.join(words)}", file=sys.stderr)
        return 2
    print(f"{'fault':{WIDTH}} {'injected':>8} {'harmed':>6} {'lost':>5} {'recovered in':>12}")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="trainmon-faults-") as path:
        bad = sum(not _row(each, Path(path) / str(place), short) for place, each in enumerate(chosen))
    print(f"\n{len(chosen)} faults in {time.monotonic() - began:.0f} s; {bad or 'none'} did harm, lost or failed")
    return 1 if bad else 0


def _row(each: Fault, path: Path, short: bool) -> bool:
    """Inject a fault and print its line; whether all is well."""
    try:
        found = each.run(path, short)
    except NotHere as why:
        print(f"{each.name:{WIDTH}} NOT INJECTED: {why}", flush=True)
        return True
    except Exception:  # of whatever kind: the table goes on, the other faults have something to say, too
        print(f"{each.name:{WIDTH}} FAILED\n{traceback.format_exc()}", flush=True)
        return False
    figures = f"{found.injected:>8,} {len(found.harmed):>6} {found.lost:>5} {found.recovered:>10.1f} s"
    print(f"{each.name:{WIDTH}} {figures}  {found.say}".rstrip(), flush=True)
    for harm in found.harmed:
        print(f"    {harm}", flush=True)
    return not found.harmed and not found.lost


if __name__ == "__main__":
    sys.exit(main())
