"""The same targets under a fuzzer that is guided by coverage, where atheris is installed (it is no dependency).

`python -m tests.fuzz.guided {decode|console} -runs=N`: what comes after the target goes to libFuzzer.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec


def main(words: list[str]) -> int:
    if find_spec("atheris") is None:
        print(
            "fuzz: atheris is not installed here; `python -m tests.fuzz` needs nothing (pip install atheris)",
            file=sys.stderr,
        )
        return 2
    if not words or words[0] not in ("decode", "console"):
        print("fuzz: name a target: decode or console", file=sys.stderr)
        return 2
    import atheris

    with atheris.instrument_imports(include=["monitor.sources", "monitor.console"]):
        from tests.fuzz.inputs import LINES
        from tests.fuzz.targets import Decoder, Printed

    target = Decoder() if words[0] == "decode" else Printed()

    def one(data: bytes) -> None:
        # The first byte chooses a line to begin with, so that coverage grows inside the kinds and not before them.
        if words[0] == "decode" and data and data[0] < len(LINES):
            line = LINES[data[0]]
            at = data[1] % len(line) if len(data) > 1 else 0
            data = line[:at] + data[2:] + line[at:]
        target.check(data)

    atheris.Setup([sys.argv[0], *words[1:]], one)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
