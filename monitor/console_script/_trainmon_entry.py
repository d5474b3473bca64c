"""Where the `trainmon` command begins.

Installed, this lies beside the packages. What lies on PYTHONPATH may be called `monitor` or `trainhooks`, but not as
this file is. So it imports neither, and loads `monitor/entry.py` by its path, which sees to the rest.
"""

import os
import sys
from importlib.machinery import SourceFileLoader


def main() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.path.join(here, "monitor", "entry.py")
    if not os.path.isfile(path):  # in a checkout, of which an editable install puts this directory on sys.path
        path = os.path.join(os.path.dirname(here), "entry.py")
    entry = type(sys)("_trainmon_start")
    entry.__file__ = path
    SourceFileLoader(entry.__name__, path).exec_module(entry)
    entry.main()
