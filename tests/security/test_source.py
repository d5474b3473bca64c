"""What the source does not do: run foreign text, trust foreign bytes, open the network."""

from __future__ import annotations

import ast
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from monitor.runs.follow import load
from tests.launch.conftest import ROOT, State, python, wait_for
from tests.signals import send_group_signal

SOURCES = sorted(path for room in ("monitor", "trainhooks") for path in (ROOT / room).rglob("*.py"))
# Modules whose readers run what they read, and calls that run text.
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "yaml", "xmlrpc", "code"}
CALLS = {"eval", "exec", "compile", "os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}
CALLS |= {"socket.socket", "socket.create_server", "socket.create_connection"}
NETWORK = {"http.server", "socketserver", "asyncio.start_server", "urllib.request", "requests", "http.client", "httpx"}

SENDER = ["import http.client", "import urllib.request"]  # of figures, to a receiver that the user names


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def local(address: ast.expr) -> bool:
    """Whether an address is a socket in a directory: ZeroMQ's, or a path (the network's addresses are tuples)."""
    if isinstance(address, ast.Call) and dotted(address.func) == "str":
        return True
    first = address.values[0] if isinstance(address, ast.JoinedStr) else address
    return isinstance(first, ast.Constant) and str(first.value).startswith("ipc://")


def in_a_directory(call: ast.Call) -> bool:
    """Whether a socket is made that can only lead to another one in a directory."""
    return dotted(call.func) == "socket.socket" and bool(call.args) and dotted(call.args[0]) == "socket.AF_UNIX"


def dangers(source: str) -> Iterator[str]:
    """What in a program's text runs foreign text or speaks to the network."""
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Call):
            called = dotted(node.func)
            dangerous = called in CALLS and not in_a_directory(node)
            if dangerous or called.endswith((".loads_pickle", ".recv_pyobj", ".set_unsafe")):
                yield called
            binds = called.endswith(".bind") and called != "signature.bind"
            if binds and not (node.args and local(node.args[0])):
                yield called
            if any(word.arg == "shell" for word in node.keywords):
                yield f"{called}(shell=...)"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("tcp://"):
            yield node.value
        for name in names:
            if name.split(".")[0] in MODULES or name in NETWORK:
                yield f"import {name}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_source_runs_foreign_text_or_opens_the_network(path: Path) -> None:
    allowed = SENDER if path.name == "otlp_sender.py" else []
    assert list(dangers(path.read_text(encoding="utf-8"))) == allowed


@pytest.mark.parametrize(
    "source",
    [
        "import pickle", "from marshal import loads", "eval(x)", "exec(x)", "os.system(x)", "run(x, shell=True)",
        "s.bind('tcp://*:1')", "s.bind(('', 1))", "import yaml", "socket.socket(socket.AF_INET)", "socket.socket()",
        "s.recv_pyobj()", "zmq_socket.bind(address)", "import http.server", "s.connect('tcp://host:1')",
    ],
)  # fmt: skip
def test_the_test_of_the_source_can_fail(source: str) -> None:
    assert list(dangers(source))


@pytest.mark.parametrize(
    ("verb", "option"),
    [(verb, option) for verb in ("run", "attach", "report", "relay") for option in ("--listen", "--port", "--host")],
)
def test_there_is_no_option_that_listens(state: State, verb: str, option: str) -> None:
    done = state.call(verb, option, "127.0.0.1:7000")
    asks = (verb, option) == ("attach", "--host")  # which host to ask, by ssh: it needs --job
    assert done.returncode == 2 and (b"--job and --host" if asks else b"No such option") in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_nothing_listens_on_the_network_while_a_run_goes_on(state: State) -> None:
    """Neither the training, nor the supervisor, nor the front, nor a reader."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import time, trainhooks as th\n"
    front = state.start(*python(code + "for _ in th.steps(range(100000)): time.sleep(0.01)"))
    try:
        wait_for(lambda: list(state.only.glob("rank-*.jsonl")))
        pids = {front.pid, state.pid(state.only), state.supervisor(state.only)}
        assert len(pids) == 3
        for pid in pids:
            assert psutil.Process(pid).net_connections(kind="inet") == []
        assert any(psutil.Process(pid).net_connections(kind="unix") for pid in pids), "it would be seen"
    finally:
        send_group_signal(state.pid(state.only), signal.SIGKILL)
        front.wait()


def test_the_cache_of_a_state_is_data_and_no_program(state: State) -> None:
    """`state.cache` is MessagePack with fixed types: a pickle in its place is passed over, and runs nothing."""
    import pickle

    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import trainhooks as th\nfor _ in th.steps(range(9)): pass"
    assert state.run(sys.executable, "-c", code).returncode == 0

    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(state.path / "trapped"),)

    trap, cache = pickle.dumps(Trap()), state.only / "state.cache"
    cache.write_bytes(trap)
    done = state.call("report")
    assert done.returncode == 0 and b"9 steps" in done.stdout
    for bad in (trap, b"", b"\xc1" * 100, b"\x84\xa5shape\xa0", b"\xdf\xff\xff\xff\xff", b"\x91" * 100_000):
        cache.write_bytes(bad)
        assert load(state.only).report.progress.steps_done == 9
    assert not (state.path / "trapped").exists()
