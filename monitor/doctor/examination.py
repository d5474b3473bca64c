"""Check the libraries that trainmon needs, and the Python of the training with its libraries."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from monitor.doctor import checks, directory_checks
from monitor.doctor.checks import Check, room_for_both, session_lifetime
from monitor.doctor.owner_checks import parent_directories
from monitor.doctor.terminal_check import terminal
from monitor.errors import UserError
from monitor.running import lifetime, room
from trainhooks.protocol import rundir
from trainhooks.protocol.limits import clean

PROBE_SECONDS = 120.0  # seconds: the first import of torch reads a gigabyte from disk
MIN_PYTHON = (3, 9)  # Python version that the hooks support

OWN_LIBRARIES = ("textual", "plotext", "nvidia-ml-py", "psutil", "pyzmq", "msgspec", "click", "platformdirs")

# Run by the training's Python, which may be an old one. Torch is really imported: only then is it known to work.
PROBE = """
import json, sys
out = {"version": list(sys.version_info[:3]), "executable": sys.executable, "libraries": {}}
out["injected"] = "trainhooks.auto.imports" in sys.modules
try:
    from importlib.metadata import version
    for name in ("torch", "msgspec", "transformers", "trl", "accelerate", "lightning"):
        try:
            out["libraries"][name] = version(name)
        except Exception:  # not installed, or its metadata is broken: there is nothing to report
            pass
except ImportError:
    pass
try:
    import torch
    out["torch"] = {"version": str(torch.__version__), "cuda": torch.version.cuda}
    out["torch"]["devices"] = torch.cuda.device_count() if torch.cuda.is_available() else 0
except Exception as error:
    out["torch_error"] = "%s: %s" % (type(error).__name__, error)
print("\\n" + json.dumps(out))
"""


def own_libraries() -> Check:
    """Check the libraries that trainmon itself needs."""
    versions, missing = {}, []
    for name in OWN_LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    text = f"Python {sys.version_info[0]}.{sys.version_info[1]}, " + ", ".join(f"{k} {v}" for k, v in versions.items())
    details = {"python": sys.executable, "versions": versions, "missing": missing}
    if missing:
        text = f"{sys.executable}: missing {', '.join(missing)}"
        return Check("trainmon itself", "broken", text, "Reinstall trainmon: pip install .", True, details)
    return Check("trainmon itself", "works", text, None, True, details)


def training_python(given: str | None, gpus: int) -> list[Check]:
    """Check the Python of the training: the given one, or `python` on PATH.

    Args:
        gpus: the number of GPUs that the driver shows.

    Raises:
        UserError: the given one does not exist.
    """
    path = shutil.which(given) if given else shutil.which("python") or shutil.which("python3")
    if path is None:
        if given:
            raise UserError(f"--python {given}: no such program")
        return [
            Check(
                "Python of the training",
                "missing",
                "no python on PATH",
                "Select one with: trainmon doctor --python PATH",
            )
        ]
    answer = _probe(path)
    if isinstance(answer, str):
        return [Check("Python of the training", "broken", f"{path}: {answer}", "Select another one with --python PATH")]
    return [_python(path, answer), _injection(answer), _torch(answer, gpus), _msgspec(answer)]


def _probe(path: str) -> dict[str, Any] | str:
    """Return what a Python reports of itself, or an error text."""
    search = os.pathsep.join(filter(None, (rundir.BOOTSTRAP, os.environ.get("PYTHONPATH"))))
    nowhere = {rundir.RUN_VARIABLE: os.devnull}  # arms the hooks, which find no run directory there
    try:
        done = subprocess.run(
            [path, "-c", PROBE],
            env={**os.environ, **nowhere, "PYTHONPATH": search},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_SECONDS,
        )
    except OSError as error:
        return str(error.strerror)
    except subprocess.TimeoutExpired:
        return f"no answer within {PROBE_SECONDS:g} s"
    lines = done.stdout.splitlines()
    try:
        answer = json.loads(lines[-1])
    except (LookupError, ValueError):
        error_lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return clean(error_lines[-1], 200) if error_lines else f"exited with code {done.returncode} without output"
    return answer if isinstance(answer, dict) else "not a Python"


def _python(path: str, answer: dict[str, Any]) -> Check:
    version = tuple(answer["version"])
    text = f"{'.'.join(map(str, version))}, {path}"
    if version < MIN_PYTHON:
        return Check("Python of the training", "broken", text, "The hooks need Python 3.9 or later.", details=answer)
    return Check("Python of the training", "works", text, details=answer)


def _injection(answer: dict[str, Any]) -> Check:
    part = "hooks without code changes"
    if answer.get("injected"):
        return Check(part, "works", "this Python loads the hooks from PYTHONPATH")
    return Check(
        part,
        "missing",
        "this Python does not load the hooks from PYTHONPATH",
        "A wrapper may start it with -I, -E or -S. `import trainhooks` in the program works anyway.",
    )


def _torch(answer: dict[str, Any], gpus: int) -> Check:
    torch = answer.get("torch")
    if not isinstance(torch, dict):
        error = clean(answer.get("torch_error", ""), 200)
        if "torch" in answer["libraries"]:
            return Check("torch", "broken", f"import fails: {error}", "Reinstall torch in that environment.")
        advice = "Nothing to do without torch; otherwise select its Python with --python PATH."
        return Check("torch", "missing", "not installed in that Python", advice)
    text = f"{clean(torch['version'], 64)}, " + (
        f"CUDA {clean(torch['cuda'], 32)}" if torch["cuda"] else "without CUDA"
    )
    devices = torch["devices"]
    if not gpus and not devices:
        return Check("torch", "works", f"{text}; no GPU", details=torch)
    if not devices:
        advice = (
            "This torch is a CPU build: install one with CUDA (pytorch.org/get-started)."
            if not torch["cuda"]
            else "Check CUDA_VISIBLE_DEVICES, and the CUDA version that the driver supports (nvidia-smi)."
        )
        return Check("torch", "limited", f"{text}; sees no GPU", advice, details=torch)
    return Check("torch", "works", f"{text}; sees {devices} GPU{'s' if devices > 1 else ''}", details=torch)


def _msgspec(answer: dict[str, Any]) -> Check:
    version = answer["libraries"].get("msgspec")
    part = "msgspec of the training"
    if version is None:
        advice = "Optional: makes the hooks encode seven times faster; pip install msgspec."
        return Check(part, "missing", "not installed in that Python", advice)
    return Check(part, "works", clean(version, 64))


# All checks, and their output.

Paint = Callable[[str, str], str]  # (text, state of a check) -> colored text


def examine(python: str | None = None) -> list[Check]:
    """
    Args:
        python: of the training; by default what `python` means here.

    Raises:
        monitor.runs.UserError: `python` is no program.
    """
    driver = checks.gpu_checks()
    cards = driver[0].details.get("gpus", 0)
    return [
        *driver,
        own_libraries(),
        *training_python(python, cards),
        *directory_checks.run_directory(),
        parent_directories(),
        directory_checks.sockets(),
        room_for_both(room.shortage()),
        session_lifetime(lifetime.lifetime_limit()),
        terminal(),
    ]


def text(checks: Sequence[Check], width: int, paint: Paint = lambda word, state: word) -> str:
    """Return the checks as text: one line each, and below it what to do."""
    room = max(len(check.part) for check in checks)
    margin = " " * 9
    lines = []
    for check in checks:
        head = f"{paint(f'{check.state:7}', check.state)}  "
        body = f"{check.part:{room}}  {check.text}"
        folded = textwrap.wrap(body, max(20, width - 9), subsequent_indent=" " * (room + 2))
        lines += [head + folded[0], *(margin + line for line in folded[1:])]
        if check.advice is not None:
            hint = textwrap.wrap(check.advice, max(20, width - 9 - room - 4))
            indent = margin + " " * (room + 2)
            lines += [f"{indent}{'→' if number == 0 else ' '} {line}" for number, line in enumerate(hint)]
    fatal = [check.part for check in checks if check.fatal]
    lines.append("")
    lines.append(
        f"trainmon cannot work: {', '.join(fatal)} broken" if fatal else "trainmon can record and show trainings here"
    )
    return "\n".join(lines) + "\n"


def mapping(checks: Sequence[Check]) -> dict[str, Any]:
    return {"ok": not any(check.fatal for check in checks), "checks": [asdict(check) for check in checks]}
