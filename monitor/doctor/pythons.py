"""The libraries that trainmon needs, and the Python of the training with what it holds."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from typing import Any

from monitor.doctor.check import Check
from monitor.errors import UserError
from trainhooks import rundir
from trainhooks.events import clean

PATIENCE = 120.0  # seconds: the first import of torch reads a gigabyte from disk
OLDEST = (3, 9)  # that the hooks run in

OWN = ("textual", "plotext", "nvidia-ml-py", "psutil", "pyzmq", "msgspec", "click", "platformdirs")

# Run by the training's Python, which may be an old one. Torch is really imported: only then is it known to work.
PROBE = """
import json, sys
out = {"version": list(sys.version_info[:3]), "executable": sys.executable, "libraries": {}}
out["injected"] = "trainhooks.auto.imports" in sys.modules
try:
    from importlib.metadata import version
    for name in ("torch", "pyzmq", "msgspec", "transformers", "trl", "accelerate", "lightning"):
        try:
            out["libraries"][name] = version(name)
        except Exception:  # not installed, or its metadata is broken: either way there is nothing to tell
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
    """What this Python lacks of what trainmon itself is made of."""
    found, missing = {}, []
    for name in OWN:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    text = f"Python {sys.version_info[0]}.{sys.version_info[1]}, " + ", ".join(f"{k} {v}" for k, v in found.items())
    details = {"python": sys.executable, "versions": found, "missing": missing}
    if missing:
        text = f"{sys.executable} lacks {', '.join(missing)}"
        return Check("trainmon itself", "broken", text, "Install trainmon anew: pip install .", True, details)
    return Check("trainmon itself", "works", text, None, True, details)


def training_python(given: str | None, gpus: int) -> list[Check]:
    """The Python that would run the training: the one given, or the one that `python` means here.

    Args:
        gpus: how many GPUs the driver shows.

    Raises:
        UserError: the one that was given is no program.
    """
    path = shutil.which(given) if given else shutil.which("python") or shutil.which("python3")
    if path is None:
        if given:
            raise UserError(f"--python {given}: there is no such program")
        return [
            Check("Python of the training", "missing", "no python on PATH", "Name it: trainmon doctor --python PATH")
        ]
    found = _probe(path)
    if isinstance(found, str):
        return [Check("Python of the training", "broken", f"{path}: {found}", "Name another with --python PATH")]
    return [_python(path, found), _injection(found), _torch(found, gpus), *map(_helper(found), _HELPERS)]


def _probe(path: str) -> dict[str, Any] | str:
    """What a Python tells of itself, or why it does not."""
    search = os.pathsep.join(filter(None, (rundir.BOOTSTRAP, os.environ.get("PYTHONPATH"))))
    nowhere = {rundir.RUN_VARIABLE: os.devnull}  # arms the hooks, which find no run directory there
    try:
        done = subprocess.run(
            [path, "-c", PROBE],
            env={**os.environ, **nowhere, "PYTHONPATH": search},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
        )
    except OSError as error:
        return str(error.strerror)
    except subprocess.TimeoutExpired:
        return f"no answer within {PATIENCE:g} s"
    lines = done.stdout.splitlines()
    try:
        found = json.loads(lines[-1])
    except (LookupError, ValueError):
        told = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return clean(told[-1], 200) if told else f"it ended with code {done.returncode} and told nothing"
    return found if isinstance(found, dict) else "it is no Python"


def _python(path: str, found: dict[str, Any]) -> Check:
    version = tuple(found["version"])
    text = f"{'.'.join(map(str, version))}, {path}"
    if version < OLDEST:
        return Check("Python of the training", "broken", text, "The hooks need Python 3.9 or later.", details=found)
    return Check("Python of the training", "works", text, details=found)


def _injection(found: dict[str, Any]) -> Check:
    part = "hooks without code changes"
    if found.get("injected"):
        return Check(part, "works", "this Python loads what `trainmon run` puts on PYTHONPATH")
    return Check(
        part,
        "missing",
        "this Python does not load what `trainmon run` puts on PYTHONPATH",
        "Is it started with -I, -E or -S, by a wrapper perhaps? `import trainhooks` in the program works there, too.",
    )


def _torch(found: dict[str, Any], gpus: int) -> Check:
    torch = found.get("torch")
    if not isinstance(torch, dict):
        error = clean(found.get("torch_error", ""), 200)
        if "torch" in found["libraries"]:
            return Check("torch", "broken", f"it cannot be imported: {error}", "Reinstall torch in that environment.")
        advice = "Nothing to do for a training without torch; else name its Python with --python PATH."
        return Check("torch", "missing", "not installed in that Python", advice)
    text = f"{clean(torch['version'], 64)}, " + (
        f"CUDA {clean(torch['cuda'], 32)}" if torch["cuda"] else "without CUDA"
    )
    devices = torch["devices"]
    if not gpus and not devices:
        return Check("torch", "works", f"{text}; no GPU to use", details=torch)
    if not devices:
        advice = (
            "This build of torch is for the CPU: install one with CUDA (pytorch.org/get-started)."
            if not torch["cuda"]
            else "Compare CUDA_VISIBLE_DEVICES, and the CUDA version that the driver supports (nvidia-smi)."
        )
        return Check("torch", "limited", f"{text}; it sees none of the GPUs", advice, details=torch)
    return Check("torch", "works", f"{text}; sees {devices} GPU{'s' if devices > 1 else ''}", details=torch)


_HELPERS = {
    "pyzmq": "Optional: with it viewers also hear what a full disk refuses; without, they have the journal alone.",
    "msgspec": "Optional: with it the hooks write their lines seven times faster; pip install msgspec.",
}


def _helper(found: dict[str, Any]) -> Any:
    def check(name: str) -> Check:
        version = found["libraries"].get(name)
        part = f"{name} of the training"
        if version is None:
            return Check(part, "missing", "not installed in that Python", _HELPERS[name])
        return Check(part, "works", clean(version, 64))

    return check
