"""Find parameters whose gradients no optimizer uses: of a frozen encoder, a teacher, a reference, a perceptual loss.

The graph of a loss ends in the parameters that the backward pass computes gradients for. A few graphs are searched, and
only nodes and addresses are looked at. What may use the gradients in another way is a reason to report nothing: hooks,
a program that updates the parameters itself, optimizers over copies, an optimizer that has not stepped yet.
"""

from __future__ import annotations

import sys
from collections import deque
from itertools import islice
from typing import Any, Deque, Dict, Iterable, List, Optional, Set, Tuple

FIRST_SEARCH, LATER_SEARCHES = 4, 3  # passes: the fourth one, then three times as many each time
PASSES_IN_A_ROW = 2  # in a row that are searched: those of a GAN take turns
MAX_UNUSED_SEARCHES = 6
MAX_SEARCHED_NODES = 16_384  # of a graph that is searched: two transformers of some hundred layers
MAX_MADE = 64
MANY_ENDS = 2


class UnusedGradients:
    """The searches of one training thread."""

    __slots__ = ("_before", "_found", "_next", "_passes", "_searches", "facts", "made")

    def __init__(self) -> None:
        self.facts: Optional[Dict[str, int]] = None  # of parameters without an optimizer, once they are certain
        self._passes = self._searches = 0
        self._next = FIRST_SEARCH
        self._found: Optional[_Found] = None  # in this search
        self.made: Deque[Any] = deque(maxlen=MAX_MADE)  # weak references to the optimizers that were made last
        self._before: Optional[Dict[int, int]] = None  # the versions in the search before; no parameter is kept

    def backward_begins(self, loss: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], optimizers: List[Any]) -> bool:
        """Take a pass. Return whether the facts have changed.

        Args:
            loss: a plain tensor, or None.
            args, kwargs: of the call of `backward`, which may compute the gradients of some inputs alone.
            optimizers: those that have stepped so far; empty: unknown.
        """
        node = getattr(loss, "grad_fn", None)
        if not optimizers or self._searches >= MAX_UNUSED_SEARCHES:
            return False
        self._passes += 1
        if self._passes < self._next:
            return False
        if node is not None and kwargs.get("inputs") is None and len(args) < 6:
            found = _search(node, optimizers)
            if found is not None and (self._found is None or found.unused > self._found.unused):
                again = found.unused > 0 and found.versions == self._before
                found.is_certain = again and (self.facts is not None or not is_listed(found.witness, self.made))
                found.witness = None
                self._found = found
        if self._passes < self._next + PASSES_IN_A_ROW - 1:
            return False
        self._searches += 1
        self._next *= LATER_SEARCHES
        return self._compare()

    def _compare(self) -> bool:
        """Compare two searches: what no optimizer has updated, and nothing else either, is unused."""
        found, known = self._found, self.facts
        self._found, self._before = None, found.versions if found is not None else None
        if found is None or not found.unused:
            self.facts = None
        elif found.is_certain:
            self.facts = found.facts()
        if self.facts is not None:
            self._searches = max(self._searches, MAX_UNUSED_SEARCHES - 2)  # once more: another optimizer may step late
        return self.facts != known


class _Found:
    """Parameters at the ends of a graph, by elements.

    Attributes:
        cut: those without an optimizer in parts of the graph that no trained parameter needs.
        beside: those without an optimizer in other parts: the pass has to go through these anyway.
        nodes, needless: of the graph, and those that no trained parameter needs.
        versions: of the parameters without an optimizer, by address.
        witness: one of them, until it has been looked at.
        is_certain: whether the search before found the same, unchanged, and no optimizer is to come for them.
    """

    __slots__ = ("beside", "cut", "is_certain", "needless", "nodes", "trained", "versions", "witness")

    def __init__(self) -> None:
        self.cut = self.beside = self.trained = self.nodes = self.needless = 0
        self.versions: Dict[int, int] = {}
        self.witness: Any = None
        self.is_certain = False

    @property
    def unused(self) -> int:
        return self.cut + self.beside

    def facts(self) -> Dict[str, int]:
        names = ("cut", "beside", "trained", "nodes", "needless")
        return {"tensors": len(self.versions), **{name: int(getattr(self, name)) for name in names}}


def _search(root: Any, optimizers: Iterable[Any]) -> Optional[_Found]:
    """Return the parameters at the ends of a graph; None where something else may use their gradients."""
    kind = sys.modules["torch"].nn.Parameter
    elsewhere: Dict[int, int] = {}  # the optimizers' parameters that the graph does not reach, by elements
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            elsewhere.update((id(parameter), parameter.numel()) for parameter in group["params"])
    trained = set(elsewhere)
    order = _children_first(root)
    if order is None:
        return None
    found, needed = _Found(), set()  # the nodes from which a trained parameter is reached
    ends: Dict[Any, Set[Any]] = {}  # node -> the ends without an optimizer below it, up to MANY
    beside: Set[Any] = set()
    for node, inner in order:
        variable = None if inner else getattr(node, "variable", None)  # a function's own node may have one, too
        if variable is None:
            found.nodes += 1
            if any(one in needed for one in inner):
                needed.add(node)
                # A single end is a weight of this very operation, behind a view or a cast; more are a part of its own.
                beside.update(*(ends[one] for one in inner if one in ends and len(ends[one]) == 1))
            else:
                found.needless += 1
                ends[node] = set(islice(set().union(*(ends.get(one, ()) for one in inner)), MANY_ENDS))
        elif id(variable) in trained:
            needed.add(node)
            found.trained += elsewhere.pop(id(variable), 0)
        elif type(variable) is kind:
            if _has_hooks(variable):
                return None
            ends[node] = {node}
            found.versions[id(variable)] = variable._version
            found.cut += variable.numel()
            found.witness = variable
    found.beside = sum(node.variable.numel() for node in beside)
    found.cut -= found.beside
    # Optimizers over copies, as in mixed precision by hand, have as many elements that no graph reaches.
    return found if found.trained and sum(elsewhere.values()) < max(1, found.unused) else None


def _children_first(root: Any) -> Optional[List[Tuple[Any, List[Any]]]]:
    """Return the nodes of a graph with the nodes below each, these first; None if there are too many."""
    order: List[Tuple[Any, List[Any]]] = []
    seen, stack = {root}, [(root, _below(root))]
    left = [list(stack[0][1])]
    while stack:
        if left[-1]:
            node = left[-1].pop()
            if node not in seen:
                seen.add(node)
                stack.append((node, _below(node)))
                left.append(list(stack[-1][1]))
        else:
            order.append(stack.pop())
            left.pop()
        if len(seen) > MAX_SEARCHED_NODES:
            return None
    return order


def _below(node: Any) -> List[Any]:
    return [inner for inner, _ in node.next_functions if inner is not None]


def _has_hooks(parameter: Any) -> bool:
    """Return whether the program takes the gradient itself: some update each parameter in its hook."""
    return bool(parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None))


def is_listed(parameter: Any, made: Iterable[Any]) -> bool:
    """Return whether an optimizer has the parameter, which then has not stepped yet."""
    groups = [group for held in made for group in getattr(held(), "param_groups", ())]
    return any(one is parameter for group in groups for one in group["params"])
