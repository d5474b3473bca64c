"""Check passes of a model: calls in evaluation mode that record gradients, and graphs that are retained for nothing."""

from __future__ import annotations

import weakref
from typing import Any, Dict, List, Optional, Tuple

from trainhooks.auto.instrumentation import call_safely
from trainhooks.auto.models.module_parts import modules_in

MIN_CALLS = 2  # in a row that make an evaluation; a single one may be the second view of a consistency loss
MAX_GRAPH_NODES = 8192  # of a graph that is searched: a transformer of some hundred layers
MAX_GRAPH_SEARCHES = 12  # in a run


class EvalModeWatch:
    """Model calls in evaluation mode while gradients are recorded: in an evaluation, or in training steps.

    A call that a backward pass follows belongs to a step; calls that a training call follows were an evaluation, and
    what they recorded for the backward pass was for nothing.

    Attributes:
        has_changed: whether the training has just left the evaluation mode again.
        pending: such calls since the last backward pass or training call.
        seen_training: whether there was a training call since the last backward pass.
        wasted: calls so far whose recording was for nothing.
    """

    __slots__ = ("_count", "_found", "_in_eval", "_last", "_module", "_names", "_times", "_trained",
                 "has_changed", "pending", "seen_training", "wasted")  # fmt: skip

    def __init__(self) -> None:
        self.pending = 0
        self.has_changed = False
        self._module: Optional["weakref.ReferenceType[Any]"] = None  # of the last such call
        self.seen_training = False
        self._last: Optional[bool] = None  # whether the last backward pass was of a call in evaluation mode
        self._trained = False  # steps in training mode came first
        self._in_eval = 0  # steps in evaluation mode in a row
        self._names: List[str] = []
        self._count = 0
        self._found = False
        self.wasted = self._times = 0

    def called_in_eval(self, module: Any) -> None:
        self.pending += 1
        self._module = weakref.ref(module)

    def called_in_training(self) -> None:
        if self.pending >= MIN_CALLS:
            self.wasted += self.pending
            self._times += 1
        self.pending = 0
        self.seen_training = True

    def gradient_begins(self) -> None:
        if self.pending:
            self._last = True
        elif self.seen_training:
            self._last = False
        self.pending = 0
        self.seen_training = False

    def optimizer_stepped(self) -> int:
        """Take an optimizer's step. Return how many in a row used passes in evaluation mode that it changes."""
        last, self._last = self._last, None
        self.has_changed = False
        if last is True:
            if not self._in_eval:
                module = self._module() if self._module is not None else None
                self._found = module is not None and bool(call_safely(self._inspect, module))
            self._in_eval += 1
        elif last is False:
            self.has_changed = self._in_eval > 0 and self._found
            self._trained = True
            self._in_eval = 0
        return self._in_eval if self._found else 0

    def _inspect(self, module: Any) -> bool:
        """Return whether evaluation mode makes a difference in all parts of the model where it can."""
        names: List[str] = []
        for part in modules_in(module):
            if _differs(part):
                if part.training:
                    return False  # set on purpose, part by part
                names.append(type(part).__name__)
        self._names, self._count = sorted(set(names)), len(names)
        return bool(names)

    def eval_mode(self) -> Dict[str, Any]:
        """Return the facts of steps in evaluation mode."""
        return {"steps": self._in_eval, "trained": self._trained, "modules": self._names[:4], "count": self._count}

    def evaluations(self) -> Dict[str, Any]:
        """Return the facts of evaluations that recorded gradients."""
        return {"calls": self.wasted, "times": self._times}


def _differs(part: Any) -> bool:
    """Return whether a module computes something else in evaluation mode."""
    names = {kind.__name__ for kind in type(part).__mro__}
    if "_DropoutNd" in names or "_BatchNorm" in names:
        probability = vars(part).get("p")
        return "_BatchNorm" in names or (isinstance(probability, float) and probability > 0.0)
    probability = vars(part).get("dropout")  # recurrent layers, attention
    return {"RNNBase", "MultiheadAttention"} & names != set() and isinstance(probability, float) and probability > 0.0


class RetainedGraphs:
    """Backward passes with `retain_graph=True` over graphs that no later pass uses.

    Each node of a graph has the number of its creation. A pass whose graph holds no node from before the last pass uses
    nothing of what that one retained.
    """

    __slots__ = ("_last", "_searches", "_used", "_wasted")

    def __init__(self) -> None:
        self._last: Optional[int] = None  # the number of the last pass's loss, if its graph was retained
        self._searches = 0
        self._used = False  # an older graph was used, or may have been
        self._wasted = 0

    def forget_step(self) -> None:
        self._last = None

    def may_be_used(self) -> None:
        self._used = self._used or self._last is not None

    def backward_begins(self, loss: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> int:
        """Take a pass. Return how many passes so far have retained a graph for nothing."""
        retains, creates = (_given(args, kwargs, place, name) for place, name in _OPTIONS)
        if self._used or self._searches >= MAX_GRAPH_SEARCHES:
            return 0 if self._used else self._wasted
        if not retains and self._last is None:
            return 0
        node = getattr(loss, "grad_fn", None)
        number = getattr(node, "_sequence_nr", None)
        if node is None or number is None or creates:
            self._used = True  # unknown
            return 0
        if self._last is not None:
            self._searches += 1
            if _reaches_back(node, self._last):
                self._used = True
                return 0
            self._wasted += 1
        self._last = number() if retains else None
        return self._wasted


_OPTIONS = ((2, "retain_graph"), (3, "create_graph"))  # of torch.autograd.backward


def _given(args: Tuple[Any, ...], kwargs: Dict[str, Any], place: int, name: str) -> bool:
    value = args[place] if len(args) > place else kwargs.get(name)
    return value is True


def _reaches_back(node: Any, number: int) -> bool:
    """Return whether a graph has a node that is as old as this number, or too many nodes to know."""
    nodes, seen = [node], {node}
    while nodes:
        node = nodes.pop()
        if getattr(node, "variable", None) is None:  # a parameter's node has no number
            made = getattr(node, "_sequence_nr", None)
            if made is None or made() <= number:
                return True
        for inner, _ in node.next_functions:
            if inner is not None and inner not in seen:
                seen.add(inner)
                nodes.append(inner)
        if len(seen) > MAX_GRAPH_NODES:
            return True
    return False
