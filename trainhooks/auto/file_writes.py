"""List what a program writes, makes and removes, for `trainmon try` where it cannot keep the program in.

Python tells of these calls before it makes them. What a library's own C++ code writes is not seen, nor what another
program writes that this one starts. Standard library only, and little of that: as for `imports`.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WRITES = "trial-writes"  # as in `protocol.trial_settings`
MAX_PATHS = 2000  # of a process
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Events of Python, what they mean, and which of their arguments are paths.
CHANGES = {
    "os.remove": ("removes", (0,)),
    "os.rmdir": ("removes", (0,)),
    "os.rename": ("renames", (0, 1)),
    "os.mkdir": ("makes", (0,)),
    "os.truncate": ("writes", (0,)),
    "os.link": ("makes", (1,)),
    "os.symlink": ("makes", (1,)),
    "shutil.rmtree": ("removes", (0,)),
}
QUIET = ("/dev/", "/proc/", "/sys/")


def watch(run: str) -> None:
    """Write each path into a file of the run's directory, once a process."""
    seen: set[tuple[str, str]] = set()
    file = os.open(os.path.join(run, WRITES), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def note(what: str, path: "Any") -> None:
        if isinstance(path, int) or len(seen) >= MAX_PATHS:
            return
        text = os.path.abspath(os.fsdecode(path))
        if text.startswith((*QUIET, run)) or (what, text) in seen:
            return
        seen.add((what, text))
        os.write(file, b"%s\t%s\n" % (what.encode(), text.encode("unicode_escape")))

    def hook(event: str, arguments: "Any") -> None:
        try:
            if event == "open":
                if isinstance(arguments[2], int) and arguments[2] & WRITING:
                    note("writes", arguments[0])
            elif event in CHANGES:
                what, places = CHANGES[event]
                for place in places:
                    note(what, arguments[place])
        except Exception:  # a path of a foreign kind, a full disk, a descriptor that the program closed
            pass

    sys.addaudithook(hook)
