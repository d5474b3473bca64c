"""Notebooks, by a real kernel: a run a kernel, cell by cell, and the report below a cell."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from monitor.model.view import View
from monitor.runs.follow import load
from trainhooks.protocol import rundir

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60.0
CELLS = (
    "import time\nimport trainhooks as th",
    "for i in th.steps(range(20)):\n    time.sleep(0.005)\n    th.log(loss=1 / (i + 1))",
    "for i in th.steps(range(9)):\n    time.sleep(0.005)\n    th.log(loss=2)\n    if i == 4: raise KeyError('column')",
    "for i in th.steps(range(10)):\n    time.sleep(0.005)\n    th.log(loss=3)",
)
pytestmark = pytest.mark.long


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], list[Any]]]:
    """Run a cell, and return what it has put below itself."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install nbclient ipykernel")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install nbclient ipykernel")
    import nbformat

    monkeypatch.setenv(rundir.STATE_VARIABLE, str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/ada/fine tune.ipynb")
    monkeypatch.delenv(rundir.RUN_VARIABLE, raising=False)
    notebook = nbformat.v4.new_notebook()
    client = nbclient.NotebookClient(notebook, timeout=int(SECONDS), kernel_name="python3", allow_errors=True)
    with client.setup_kernel():

        def run(source: str) -> list[Any]:
            notebook.cells.append(nbformat.v4.new_code_cell(source))
            client.execute_cell(notebook.cells[-1], len(notebook.cells) - 1)
            outputs: list[Any] = notebook.cells[-1].outputs  # later updates come there
            return outputs

        yield run


def until(state: Path, true: Callable[[View], object]) -> View:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        runs = list(state.glob("runs/*"))
        if runs and true(view := load(runs[0])):
            assert len(runs) == 1
            return view
        time.sleep(0.1)
    raise AssertionError("it did not come true")


def test_a_run_goes_on_from_cell_to_cell(kernel: Callable[[str], list[Any]], tmp_path: Path) -> None:
    for cell in CELLS:
        kernel(cell)
    view = until(tmp_path, lambda view: view.report.progress.steps_done == 34)  # the failed step did no work
    assert view.report.run.name == "fine tune" and view.report.metrics["loss"].last == 3
    assert any(name == "between cells" for name, _ in until(tmp_path, lambda view: view.open.spans).open.spans)


def test_a_kernel_that_is_shut_down_has_finished(kernel: Callable[[str], list[Any]], tmp_path: Path) -> None:
    for cell in CELLS:
        kernel(cell)
    kernel("get_ipython().kernel.do_shutdown(False); exit()")
    view = until(tmp_path, lambda view: view.report.outcome.state != "running")
    assert view.report.outcome.state == "finished" and view.report.progress.steps_done == 34
    assert "crashed" not in {each.code for each in view.report.findings}
    assert view.report.wall.spans["between cells"] > 0


def test_the_report_is_shown_below_the_cell_and_anew_while_it_runs(kernel: Callable[[str], list[Any]]) -> None:
    kernel(CELLS[0])
    shown = kernel("th.show(seconds=1)\nfor i in th.steps(range(30)):\n    time.sleep(0.05)\n    th.log(loss=1)")
    end = time.monotonic() + SECONDS
    while "no step yet" in shown[0]["data"]["text/html"] and time.monotonic() < end:
        kernel("time.sleep(0.5)")  # while a cell runs, it is made anew
    (frame,) = shown
    page = frame["data"]["text/html"]
    assert page.startswith("<iframe sandbox=") and "fine tune" in page and "no step yet" not in page


def test_outside_of_a_notebook_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    import trainhooks

    trainhooks.show()
    assert "show() is for notebooks" in capsys.readouterr().out
