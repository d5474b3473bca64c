"""The command `memory`: what holds the memory of a running training, and what it grows by."""

from __future__ import annotations

import click

from monitor.commands.far_runs import done_there
from trainhooks.protocol.control import MemoryRequest


@click.command()
@click.argument("run", required=False)
@click.option(
    "--growth",
    is_flag=True,
    help="Also what the host's memory grows by, by line and type, over five steps. tracemalloc runs meanwhile, for ten"
    " seconds at most: steps take up to ten times as long.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON: of each rank all that it says, in bytes.")
@click.pass_context
def memory(context: click.Context, run: str | None, growth: bool, as_json: bool) -> None:
    """Print what holds the memory of a running training: on the GPU and the host, the most first.

    Each process answers by its own hooks. The lines that hold most of the GPU are known where the program records them
    (torch.cuda.memory._record_memory_history); trainmon never turns that on.
    """
    from monitor.reports import memory_text
    from monitor.running.memory_requests import ranks_memory
    from monitor.runs import catalogue
    from monitor.runs.follow import load

    options = [*(["--growth"] if growth else []), *(["--json"] if as_json else [])]
    if (code := done_there(run, ["memory", *options])) is not None:
        context.exit(code)
    path = catalogue.resolve(run)
    ranks = ranks_memory(path, MemoryRequest(growth))
    held = load(path, measured=False).report.run.facts.held
    click.echo((memory_text.as_json if as_json else memory_text.text)(path.name, ranks, held), nl=as_json)
