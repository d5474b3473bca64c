"""The environment of the RL demo: problems, tests, a sandbox that runs what the models write, and the rewards.

A program is one expression that completes `def f(a, b): return ...`. A test is four characters such as `23=5`, short
for `f(2,3)==5`, so that even an untrained model sometimes writes a valid one and gets a reward.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass

Verdict = list[bool] | None
"""One program against all tests; None if it is blank, does not compile, runs too long or takes its process down."""

VALIDATION_INPUTS = ((3, 5), (7, 2), (4, 9), (6, 3), (5, 8))
# Passed by a program that computes something: neither a constant nor an argument. Without this intermediate reward an
# untrained model earns nothing; and if every program that compiles were rewarded, it would only learn `return a`.
EFFORT_TEST = "f(3,5)!=f(7,2) and f(3,5) not in (3,5,-3,-5)"
EFFORT_REWARD = 0.2
TEST_SHORTHAND = re.compile(r"(\d)(\d)([<=>])(\d)")
SECONDS_PER_PROGRAM = 0.2
MEMORY_LIMIT = 512 * 2**20


@dataclass(frozen=True)
class Problem:
    """A task by name, and an expression that solves it."""

    name: str
    reference: str

    @property
    def fixed_tests(self) -> list[str]:
        """The effort test, then the validation cases: `f` must agree with the reference on five pairs of numbers."""
        return [EFFORT_TEST, *(f"f({a},{b})==(lambda a,b:{self.reference})({a},{b})" for a, b in VALIDATION_INPUTS)]


PROBLEMS = (
    Problem("sum", "a+b"),
    Problem("difference", "a-b"),
    Problem("product", "a*b"),
    Problem("square", "a*a"),
    Problem("double", "2*b"),
    Problem("next", "a+1"),
    Problem("area", "a*b-1"),
    Problem("line", "2*a+b"),
)


def expand_test(shorthand: str) -> str | None:
    """Return the test of a shorthand, `f(2,3)==5` for `23=5`; None for an invalid one."""
    match = TEST_SHORTHAND.fullmatch(shorthand)
    if match is None:
        return None
    a, b, relation, value = match.groups()
    return f"f({a},{b}){'==' if relation == '=' else relation}{value}"


# Runs in a child process. Programs get no builtins, and limits on CPU time, memory, files and wall time. The verdict on
# each program is a separate line, so that those before a crash or a kill are not lost.
RUNNER = """
import json, resource, signal, sys

class TooSlow(BaseException):
    pass

def too_slow(signum, frame):
    raise TooSlow

def passes(test, scope):
    try:
        return bool(eval(test, scope))
    except Exception:  # a program written by a model may raise anything; then it does not pass
        return False

job = json.load(sys.stdin)
for limit, value in (("RLIMIT_CPU", job["cpu"]), ("RLIMIT_AS", job["memory"]), ("RLIMIT_FSIZE", 0)):
    try:
        resource.setrlimit(getattr(resource, limit), (value, value))
    except (ValueError, OSError):
        pass  # a stricter limit is already in place, or this system does not know it
signal.signal(signal.SIGALRM, too_slow)
tests = [compile(test, "test", "eval") for test in job["tests"]]
for program in job["programs"]:
    verdict = None
    try:
        signal.setitimer(signal.ITIMER_REAL, job["seconds"])
        scope = {"__builtins__": {}}
        if program.strip():
            exec("def f(a, b): return " + program, scope)
            verdict = [passes(test, scope) for test in tests]
    except (Exception, TooSlow):
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    print(json.dumps(verdict), flush=True)
"""


def run_programs(programs: list[str], tests: list[str], time_limit: float) -> list[Verdict]:
    """Run every program against every test in a sandbox; one that hangs or crashes does not affect the others."""
    verdicts: list[Verdict] = []
    while len(verdicts) < len(programs):
        answered = _run_in_child(programs[len(verdicts) :], tests, time_limit)
        verdicts += answered
        if len(verdicts) < len(programs):
            verdicts.append(None)  # the program after the last verdict ended the child; continue with the next one
    return verdicts


def _run_in_child(programs: list[str], tests: list[str], time_limit: float) -> list[Verdict]:
    """Return the verdicts of one child process, up to the program that ended it, if any."""
    limits = {"seconds": SECONDS_PER_PROGRAM, "memory": MEMORY_LIMIT, "cpu": int(time_limit) + 1}
    job = json.dumps({"programs": programs, "tests": tests, **limits}).encode()
    # -I: no environment variables, no user site. -S: no site-packages. -W: `1a` is an error here, not worth a warning.
    command = [sys.executable, "-I", "-S", "-W", "ignore", "-c", RUNNER]
    with tempfile.TemporaryDirectory(prefix="rl-sandbox-") as empty:
        try:
            output = subprocess.run(
                command, input=job, capture_output=True, timeout=time_limit, cwd=empty, env={}, check=False
            ).stdout
        except subprocess.TimeoutExpired as late:  # run() has killed the child
            output = late.stdout or b""
    return [json.loads(line) for line in output.splitlines(keepends=True) if line.endswith(b"\n")]


@dataclass
class Judgment:
    """The verdicts of one step, and the rewards for them.

    Rows: the reference, the solutions of the other problems, the batch. Columns: the effort test, the fixed cases, and
    the valid tests in `written`.
    """

    verdicts: list[Verdict]
    written: list[str | None]

    def __post_init__(self) -> None:
        self.fixed = range(1, 1 + len(VALIDATION_INPUTS))
        self.reference = self.verdicts[0] or []
        self.programs = self.verdicts[len(PROBLEMS) :]
        self.sound = [column for column in range(self.fixed.stop, len(self.reference)) if self.reference[column]]

    def program_rewards(self) -> list[float]:
        """Return each program's reward: some for effort, the rest by the share of fixed and sound tests passed."""
        columns = [*self.fixed, *self.sound]

        def reward(row: list[bool]) -> float:
            passed = sum(row[column] for column in columns) / len(columns)
            return EFFORT_REWARD * row[0] + (1 - EFFORT_REWARD) * passed

        return [reward(row) if row else 0.0 for row in self.programs]

    def test_rewards(self) -> list[float]:
        """Return each test's reward: 0 if invalid, 0.1 if unsound, 0.3 to 1 if sound, by the wrong programs failed."""
        wrong = [row for row in self.verdicts[1:] if row and not all(row[column] for column in self.fixed)]
        rewards, column = [], self.fixed.stop
        for test in self.written:
            if test is None:
                rewards.append(0.0)
                continue
            broken = sum(not row[column] for row in wrong) / max(1, len(wrong))
            rewards.append(0.3 + 0.7 * broken if column in self.sound else 0.1)
            column += 1
        return rewards

    def counts(self) -> dict[str, int]:
        """Return what the submission, the first program of the batch, passed."""
        row = self.programs[0] or [False] * len(self.reference)
        return {
            "gen_passed": sum(row[column] for column in self.sound),
            "gen_total": len(self.sound),
            "val_passed": sum(row[column] for column in self.fixed),
            "val_total": len(self.fixed),
        }
