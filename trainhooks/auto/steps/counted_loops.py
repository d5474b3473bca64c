"""How many steps a `while` makes that counts them: `while step < 1000`, or `while True` with a `break` at a bound.

The counter grows by one exactly where the optimizer steps, and is assigned nowhere else in the loop. A loop over data
within the `while` ends at the same bound. An exit for another reason, as early stopping, is not foreseen.
"""

from __future__ import annotations

import ast
from typing import Any, List, NamedTuple, Optional

from trainhooks.auto.steps.loop_numbers import Bounds

LOOPS = (ast.For, ast.AsyncFor, ast.While)


class _Exit(NamedTuple):
    """Where a loop ends: the counter's first value at which it does, and the line; None: the header of a `while`."""

    value: int
    line: Optional[int]
    is_return: bool = False


def counted_steps(function: Any, path: List[Any], bounds: Bounds) -> Optional[int]:
    """Return how many steps a `while` makes from now on; None where that is unknown.

    Args:
        function: the node of the function or module around the loop.
        path: the nodes from the `while` to the statement that steps, both included.
        bounds: reads the whole numbers in expressions of this frame.
    """
    growth = _growth(path)
    if growth is None:
        return None
    name = growth.target.id
    value = bounds.value(growth.target) if bounds.is_global(name) else _initial(function, name, bounds)
    last = _exit([node for node in path if isinstance(node, LOOPS)], name, bounds)
    if value is None or last is None:
        return None
    step, grows = path[-1].lineno, growth.lineno
    count = last.value - value
    if bounds.is_global(name) and grows < step:  # it has grown in this pass already
        count += 1
    if last.line is not None:  # between the two, one is done and the other is not
        count += (step < last.line < grows) - (grows < last.line < step)
    return count if count > 0 else None


def _growth(path: List[Any]) -> Optional[Any]:
    """Return the statement `counter += 1` that runs once with each step; None without one, or with several."""
    beside: List[Any] = []
    for node in reversed(path[:-1]):
        beside += node.body
        if not isinstance(node, (ast.With, ast.AsyncWith)):
            break
    found = [node for node in beside if _is_growth(node) and _stores(path[0], node.target.id) == 1]
    return found[0] if len(found) == 1 else None


def _is_growth(node: Any) -> bool:
    if not isinstance(node, ast.AugAssign) or not isinstance(node.target, ast.Name):
        return False
    return isinstance(node.op, ast.Add) and isinstance(node.value, ast.Constant) and node.value.value == 1


def _stores(node: Any, name: str) -> int:
    names = [part for part in ast.walk(node) if isinstance(part, ast.Name) and part.id == name]
    return sum(not isinstance(part.ctx, ast.Load) for part in names)


def _initial(function: Any, name: str, bounds: Bounds) -> Optional[int]:
    """Return what a local counter begins with: all that is assigned to it besides its growth."""
    if _stores(function, name) != 2 or any(isinstance(p, ast.arg) and p.arg == name for p in ast.walk(function)):
        return None
    assigned = [node for node in ast.walk(function) if isinstance(node, ast.Assign) and len(node.targets) == 1]
    values = [node.value for node in assigned if getattr(node.targets[0], "id", None) == name]
    return bounds.value(values[0]) if len(values) == 1 else None


def _exit(loops: List[Any], name: str, bounds: Bounds) -> Optional[_Exit]:
    """Return the exit of the innermost loop that ends those around it as well; None where there is no such one."""
    *outer, innermost = [_exits(loop, name, bounds) for loop in loops]
    if len(innermost) != 1:
        return None
    last = innermost[0]
    follow = all(any(exit.value <= last.value for exit in exits) for exits in outer)
    return last if last.is_return or follow else None


def _exits(loop: Any, name: str, bounds: Bounds) -> List[_Exit]:
    found = []
    if isinstance(loop, ast.While) and not isinstance(loop.test, ast.Constant):
        value = _limit(loop.test, name, bounds, (ast.Lt, ast.NotEq), ast.LtE)
        if value is None:  # another condition
            return []
        found.append(_Exit(value, None))
    for node in loop.body:
        if isinstance(node, ast.If) and isinstance(node.body[-1], (ast.Break, ast.Return)):
            value = _limit(node.test, name, bounds, (ast.GtE, ast.Eq), ast.Gt)
            if value is not None:
                found.append(_Exit(value, node.lineno, isinstance(node.body[-1], ast.Return)))
    return found


def _limit(test: ast.expr, name: str, bounds: Bounds, at: Any, beyond: Any) -> Optional[int]:
    """Return the counter's first value at which a loop ends by this condition; None where it is another one.

    Args:
        at: comparisons that end it at the bound.
        beyond: those that end it at the next value.
    """
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or getattr(test.left, "id", None) != name:
        return None
    bound = bounds.value(test.comparators[0])
    if bound is None or not isinstance(test.ops[0], (*at, beyond)):
        return None
    return bound + isinstance(test.ops[0], beyond)
