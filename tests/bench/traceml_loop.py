"""The loop of `zero_code_cost` inside TraceML: started by `traceml run`, which has prepared the process.

Bare blocks run with its functions in place and no traced step, so what these cost outside of one counts as bare: the
figure is TraceML's at its best.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main(pairs: int, out: Path) -> None:
    import torch
    from traceml_ai import trace_step  # type: ignore[import-not-found]

    from tests.bench.hooks_cost import _pairs
    from tests.bench.zero_code_cost import loop

    model, train = loop(torch)

    def traced(times: list[int]) -> None:
        train(times, lambda: trace_step(model))

    for warm in (train, traced, train, traced):
        warm([])
    out.write_text(json.dumps(_pairs("TraceML", train, traced, pairs)))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main(int(sys.argv[1]), Path(sys.argv[2]))
