"""trainhooks: report to trainmon what a training does, without slowing or harming it.

    import trainhooks as th

    th.init(name="rft", total_steps=3558, config=vars(args))       # optional
    for batch in th.steps(loader):                                  # a step an item; waiting for it is phase `data`
        with th.phase("generation"):                                # nests; also a decorator: @th.phase("reward")
            ...
        if not code:
            th.skip("empty code")
            continue
        th.log(reward=0.35, loss=loss)                              # a tensor is read later, never synchronized here
        th.count(tokens=n, samples=len(batch))
    with th.span("checkpoint"):                                     # work outside the steps, or rare in them
        ...
    with th.step(role="generator", stage="3"):                      # a step of a loop that has no iterable
        ...

Every call is safe from any thread, without a viewer, after fork and spawn, on a full disk; none raises, blocks,
or waits for the GPU. Time belongs to the innermost open phase, so the parts of a step add up to it.
"""

import sys as _sys
from typing import Optional as _Optional

from trainhooks.api import count, init, log, note, phase, skip, span, step, steps

__all__ = ["count", "init", "log", "note", "phase", "show", "skip", "span", "step", "steps"]


def show(run: _Optional[str] = None, seconds: float = 10.0, height: int = 600) -> None:
    """Show the report of a run below a notebook's cell, and anew while a cell runs.

    Args:
        run: a run's id or name; by default this kernel's.
        seconds: between two reports, at least.
        height: of the frame, in pixels.
    """
    from trainhooks import notebook

    notebook.show(run, seconds, height)


if "IPython" in _sys.modules:
    from trainhooks import notebook

    notebook.arm()
