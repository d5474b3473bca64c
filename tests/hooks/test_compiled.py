"""The public calls in code that `torch.compile` compiles: the graph and its results are those without the calls."""

from __future__ import annotations

import pytest

from .conftest import Trainings

pytest.importorskip("torch")

SCRIPT = """
import torch
from torch import nn

class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)).sin())

class Phase(Plain):
    def forward(self, x):
        with th.phase('inner'):
            x = torch.relu(self.first(x))
            with th.span('inner'):
                x = x.sin()
        return self.second(x)

class Decorated(Plain):
    @th.phase('inner')
    def forward(self, x):
        return self.second(self.middle(x))

    @th.span('inner')
    def middle(self, x):
        return torch.relu(self.first(x)).sin()

class Calls(Plain):
    def forward(self, x):
        th.init(name='inner')
        with th.step(role='inner'):
            y = torch.relu(self.first(x)).sin()
            th.log(inner=1.0)
            th.log({'inner': y})
            th.count(tokens=x.shape[0], samples=2)
            th.skip('inner')
        th.note('inner')
        return self.second(y)

class Loop(Plain):
    def forward(self, x):
        for layer in th.steps([self.first], total=1):
            x = layer(x)
        return self.second(torch.relu(x).sin())

graphs = []

def counted(graph, inputs):
    graphs.append([str(node) for node in graph.graph.nodes])
    return graph

def results(kind, backend, **how):
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = kind()
    run = torch.compile(model, backend=backend, **how)
    with th.phase('outer'):
        out = run(torch.ones(2, 8))
        with th.phase(kind.__name__): pass  # a new name: no reason to compile again
        out = run(torch.ones(2, 8))
    out.sum().backward()
    return [out, *(parameter.grad for parameter in model.parameters())]

def compare(backend):
    bare = results(Plain, backend, fullgraph=True)
    for kind in (Phase, Decorated, Calls, Loop):
        seen = results(kind, backend, fullgraph=True)
        assert len(seen) == 5 and all(map(torch.equal, seen, bare)), kind.__name__
"""


@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.long)])
@pytest.mark.long
def test_results_of_a_full_graph_are_equal_to_the_bit(train: Trainings, backend: str) -> None:
    told = train(SCRIPT + f"compare('{backend}')")
    recorded = {span["name"] for span in told.kind("span")}
    assert recorded >= {"outer", "Plain", "Phase", "Decorated"}
    assert "inner" not in str([event for event in told.events if event["kind"] not in ("hello", "facts")])


@pytest.mark.long
def test_the_graph_is_the_same_and_compiled_once(train: Trainings) -> None:
    told = train(
        SCRIPT
        + """
compare(counted)
assert len(graphs) == 5 and all(len(graph) == len(graphs[0]) for graph in graphs), graphs
        """
    )
    assert told.kind("span")


def test_a_graph_break_inside_a_phase_is_one_break(train: Trainings) -> None:
    train(
        SCRIPT
        + """
class Broken(Plain):
    def forward(self, x):
        with th.phase('inner'):
            x = torch.relu(self.first(x))
            torch._dynamo.graph_break()
            x = x.sin()
        return self.second(x)

broken, bare = results(Broken, counted), results(Plain, 'eager')
assert all(map(torch.equal, broken, bare)) and len(graphs) == 2, graphs
        """
    )


@pytest.mark.long
def test_a_wrapper_of_the_program_s_around_a_decorated_function_is_traced(train: Trainings) -> None:
    train(
        SCRIPT
        + """
import functools

def doubled(function):
    @functools.wraps(function)
    def ours(*args): return function(*args) * 2
    return ours

class Wrapped(Plain):
    forward = doubled(Decorated.forward)
    middle = Decorated.middle

wrapped, bare = results(Wrapped, 'eager', fullgraph=True), results(Plain, 'eager')
assert torch.equal(wrapped[0], bare[0] * 2)
        """
    )


def test_functions_are_those_of_before_outside_of_graphs(train: Trainings) -> None:
    told = train(
        """
        import inspect, pickle
        for function in (th.phase, th.log, th.step, th.steps, th.span):
            assert pickle.loads(pickle.dumps(function)) is function
            assert 'args' not in inspect.signature(function).parameters
            assert inspect.getmodule(function).__name__ == 'trainhooks.api'
        assert 'torch' not in sys.modules

        @th.phase('work')
        def work(error):
            if error: raise KeyError('theirs')
            return 3

        with th.step():
            assert work(False) == 3
            try: work(True)
            except KeyError as error: assert error.args == ('theirs',)
        """
    )
    assert [name for name, *_ in told.steps[0]["phases"]].count("work") == 1
