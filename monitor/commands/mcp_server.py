"""The tools of `mcp_answers` on stdio, by the SDK of the Model Context Protocol, which is an optional extra."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable
from functools import partial, wraps
from typing import Any

import anyio.to_thread
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from monitor import __version__
from monitor.commands import mcp_answers
from monitor.errors import UserError
from trainhooks.protocol.rundir import UnsafeDirectory


def serve(allowed: Iterable[str] = ()) -> None:
    """Answer until stdin is closed, with these of the tools that do something."""
    server(allowed).run("stdio")


def server(allowed: Iterable[str] = ()) -> MCPServer:
    """Return a server with a tool for each answer, and for each allowed action."""
    actions = {name: mcp_answers.ACTIONS[name] for name in allowed}
    more = mcp_answers.ASK_FIRST + ", ".join(actions) + "." if actions else mcp_answers.ONLY_READ
    made: MCPServer = MCPServer(
        "trainmon", version=__version__, instructions=mcp_answers.INSTRUCTIONS + more, log_level="WARNING"
    )
    for tool in map(_tool, actions.values()):
        made.add_tool(
            tool,
            description=inspect.cleandoc(tool.__doc__ or ""),
            annotations=ToolAnnotations(read_only_hint=False, destructive_hint=tool.__name__ == "stop"),
            structured_output=False,
        )
    for tool in (*map(_tool, mcp_answers.ANSWERS), wait):
        made.add_tool(
            tool,
            description=inspect.cleandoc(tool.__doc__ or ""),
            annotations=ToolAnnotations(read_only_hint=True),
            structured_output=False,
        )
    return made


def _tool(answer: Callable[..., str]) -> Callable[..., Any]:
    """Return an answer as a tool with the same parameters."""

    @wraps(answer)
    async def tool(**arguments: Any) -> str:
        return await _in_thread(partial(answer, **arguments))

    return tool


async def wait(run: str, until: str, timeout_seconds: float = 45.0) -> str:
    given_up = threading.Event()
    try:
        return await _in_thread(partial(mcp_answers.wait, run, until, timeout_seconds, given_up.is_set))
    finally:
        given_up.set()  # the call was taken back, or stdin is closed


wait.__doc__ = mcp_answers.wait.__doc__


async def _in_thread(answer: Callable[[], str]) -> str:
    """Answer in a thread, so that a long wait holds up no other call."""
    try:
        return await anyio.to_thread.run_sync(answer, abandon_on_cancel=True)
    except (UserError, UnsafeDirectory) as error:
        raise ToolError(mcp_answers.marked(str(error))) from None
