"""Run one program twice in the same fresh directory, and name each difference."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from trainhooks.protocol import rundir

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "tests" / "auto" / "scripts"
MEASURED = Path(__file__).with_name("measured.py")
PYTHON = sys.executable
LIVING = Path(__file__).with_name("living.py")
COMMAND = str(Path(PYTHON).with_name("trainmon"))
LIMIT = 240.0  # seconds, against hanging
MORE_BYTES, MORE_SHARE = 5 << 20, 0.02  # peak memory that watching may add
# Our own variables aside, what a test's or a cluster's environment must not lend to the programs.
FOREIGN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_LOCALID", "PYTHONPATH", "PYTHONUNBUFFERED")
REPORT = b"trainmon: "  # our own lines on stderr begin so and come last
# Warnings of torch's own threads, and what its profiler prints, which `trainmon run` silences.
NOISE = re.compile(rb"^(W\d|I\d|\[W|\[rank|USDT:).*\n", re.MULTILINE)
# What the profiler of a build for CUDA prints besides: of the bare program alone, as nothing of ours may cause it.
SILENCED = re.compile(rb"^ERROR:\d+-.*\n", re.MULTILINE)


def _same(output: bytes) -> bytes:
    return output


@dataclass(frozen=True)
class Program:
    """A command with what it finds in its directory."""

    name: str
    family: str
    command: tuple[str, ...]
    files: dict[str, str] = field(default_factory=dict)
    stdin: bytes = b""
    env: dict[str, str] = field(default_factory=dict)
    setup: str = ""  # shell code that runs before the command
    needs: tuple[str, ...] = ()  # commands that must be on the machine
    memory: bool = False  # whether its peak memory is compared
    short: bool = True  # whether it is in the short form
    ends: int | None = None  # the exit code of a program that must come to its end, else its question is not asked
    masked: Callable[[bytes], bytes] = _same  # takes times and process ids out of the output


@dataclass
class Outcome:
    """What a program left."""

    code: int
    out: bytes
    err: bytes
    files: dict[str, str]
    peak: int | None  # bytes; None: not measured


@dataclass
class Compared:
    """Both runs of a program."""

    program: Program
    bare: Outcome
    watched: Outcome

    @property
    def differences(self) -> list[str]:
        bare, watched = self.bare, self.watched
        found = []
        if self.program.ends not in (None, bare.code):
            found.append(f"bare exit code {bare.code}, meant {self.program.ends}: {bare.err[-200:]!r}")
        if bare.code != watched.code:
            found.append(f"exit code {bare.code}, watched {watched.code}")
        for name, one, other in (("stdout", bare.out, watched.out), ("stderr", bare.err, watched.err)):
            if one != other:
                found.append(f"{name}: {_first_difference(one, other)}")
        paths = sorted(
            path for path in bare.files.keys() | watched.files.keys() if bare.files.get(path) != watched.files.get(path)
        )
        found += [f"file {path}: {bare.files.get(path)}, watched {watched.files.get(path)}" for path in paths[:5]]
        more = self.added_bytes
        if more is not None and bare.peak is not None and more > MORE_BYTES + MORE_SHARE * bare.peak:
            found.append(f"peak memory {bare.peak / 1e6:.1f} MB, watched {more / 1e6:+.1f} MB")
        return found

    @property
    def added_bytes(self) -> int | None:
        if self.bare.peak is None or self.watched.peak is None:
            return None
        return self.watched.peak - self.bare.peak


def compare(program: Program, place: Path) -> Compared:
    """Run a program bare and then watched.

    Args:
        program: the program.
        place: a directory that does not exist yet.

    Raises:
        subprocess.TimeoutExpired: one of the two hangs.
    """
    place.mkdir(parents=True)
    bare = _run(program, place, ())
    watched = _run(program, place, (COMMAND, "run", "--no-tui", "--"))
    return Compared(program, bare, watched)


def _run(program: Program, place: Path, before: tuple[str, ...]) -> Outcome:
    work, home = place / "work", place / "home"
    for directory in (work, home):
        if directory.exists():
            _writable(directory)
            shutil.rmtree(directory)
        directory.mkdir()
    for name, text in program.files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text)
        (work / name).chmod(0o755 if text.startswith("#!") else 0o644)
    peak = place / "peak"
    peak.unlink(missing_ok=True)
    command = (PYTHON, "-IS", str(MEASURED), str(peak), *program.command) if program.memory else program.command
    kept = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    env = {**kept, "HOME": str(home), rundir.STATE_VARIABLE: str(place / "state"), **program.env}
    script = f'{program.setup}\nexec "$@"'
    ended = subprocess.run(
        ["/bin/sh", "-c", script, "sh", *before, *command],
        cwd=work,
        env=env,
        input=program.stdin,
        capture_output=True,
        timeout=LIMIT,
    )
    err = ended.stderr.partition(REPORT)[0] if before else SILENCED.sub(b"", ended.stderr)
    files = {f"{top.name}/{path}": text for top in (work, home) for path, text in _files(top).items()}
    code = ended.returncode
    return Outcome(
        code if code >= 0 else 128 - code,  # as a shell gives it
        program.masked(ended.stdout),
        program.masked(NOISE.sub(b"", err)),
        files,
        int(peak.read_text()) if peak.exists() else None,
    )


def _files(top: Path) -> dict[str, str]:
    """Return kind, mode and content of each file; bytecode and libraries' caches aside."""
    found = {}
    for path in sorted(top.rglob("*")):
        name = str(path.relative_to(top))
        if "__pycache__" in name or name.startswith(".cache"):
            continue
        mode = path.lstat().st_mode
        content = hashlib.sha256(path.read_bytes()).hexdigest()[:12] if stat.S_ISREG(mode) else ""
        found[name] = f"{stat.filemode(mode)} {content}".strip()
    return found


def _writable(directory: Path) -> None:
    directory.chmod(0o755)
    for path in directory.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)


def _first_difference(one: bytes, other: bytes) -> str:
    rows, others = one.splitlines(), other.splitlines()
    for number, (row, another) in enumerate(zip(rows, others, strict=False), 1):
        if row != another:
            return f"line {number} is {row[:160]!r}, watched {another[:160]!r}"
    return f"{len(one):,} bytes, watched {len(other):,}; {(rows + others)[min(len(rows), len(others)) :][:1]!r:.200}"
