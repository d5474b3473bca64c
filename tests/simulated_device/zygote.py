"""Starts scripts in forked copies of one process that has loaded torch: the import is most of a short script's time.

Each line of input is a request as JSON: the script, its directory, its environment, and files for its output. The
answer is the exit code. Trainhooks is not loaded here: each copy loads it after its clock was made virtual.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import sys
import threading
import traceback
import warnings
from typing import NoReturn


def main() -> None:
    """Serve until the input ends."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch._dynamo  # optimizers load it when they are first used
        import torch.utils.data  # noqa: F401
    gc.freeze()
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(request)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become(request: dict[str, object]) -> NoReturn:
    """The script, as if it had been started by itself. It ends as one, without torch's long teardown."""
    for descriptor, name, flags in (
        (0, "/dev/null", os.O_RDONLY),
        (1, str(request["out"]), os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        (2, str(request["err"]), os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
        opened = os.open(name, flags, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    os.chdir(str(request["cwd"]))
    environment: dict[str, str] = request["environment"]  # type: ignore[assignment]
    os.environ.clear()
    os.environ.update(environment)
    script = str(request["script"])
    sys.argv = sys.orig_argv = [script]
    code = 0
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        code, sys.last_value = 1, error
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the interpreter does
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
