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

from trainhooks.api import count, init, log, note, phase, skip, span, step, steps

__all__ = ["count", "init", "log", "note", "phase", "skip", "span", "step", "steps"]
