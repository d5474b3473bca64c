"""The whole numbers in a loop's header, read from the source and the variables around it.

A number is known if it is written there, if it is a variable of a module or an argument that was parsed, or if it is a
local variable that is assigned once, and to such a number: a function's locals are never read.
"""

from __future__ import annotations

import ast
from types import FrameType
from typing import Any, Iterator, Mapping, Optional

MAX_ITERATIONS = 10**8  # a larger bound stands for "until I stop it"


class Bounds:
    """What the numbers in a loop's header are."""

    def __init__(self, frame: FrameType, function: Any, arguments: Mapping[str, int]) -> None:
        self._globals, self._function, self._arguments = frame.f_globals, function, arguments
        code = frame.f_code
        is_module = isinstance(function, ast.Module)
        self._locals = set() if is_module else {*code.co_varnames, *code.co_cellvars, *code.co_freevars}

    def is_global(self, name: str) -> bool:
        """Return whether the name is a variable of the module."""
        return name not in self._locals

    def is_own(self, name: str) -> bool:
        """Return whether the program has a variable of this name."""
        return name in self._locals or name in self._globals

    def value(self, node: ast.expr) -> Optional[int]:
        """Return the whole number that an expression is; None where that is unknown."""
        if isinstance(node, ast.BinOp):
            return _arithmetic(node.op, self.value(node.left), self.value(node.right))
        if isinstance(node, ast.Constant):
            found = node.value
        elif isinstance(node, ast.Name):
            found = self._local(node.id) if node.id in self._locals else self._globals.get(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found = self._attribute(node.value.id, node.attr)
        else:
            found = None
        return found if type(found) is int and abs(found) <= MAX_ITERATIONS else None

    def _local(self, name: str) -> Optional[int]:
        """Return the number that a local variable is assigned."""
        value = self.assigned(name)
        return None if value is None else self.value(value)

    def assigned(self, name: str) -> Optional[ast.expr]:
        """Return what a variable is assigned, once in the whole function or module; None if it is not certain."""
        function = self._function
        if any(isinstance(part, ast.arg) and part.arg == name for part in ast.walk(function)):
            return None
        places = [part for part in ast.walk(function) if isinstance(part, ast.Name) and part.id == name]
        stored = [part for part in places if not isinstance(part.ctx, ast.Load)]
        values = [
            part.value
            for part in ast.walk(function)
            if isinstance(part, ast.Assign) and len(part.targets) == 1 and part.targets[0] in stored
        ]
        values += [
            part.context_expr
            for part in ast.walk(function)
            if isinstance(part, ast.withitem) and part.optional_vars in stored
        ]
        if len(stored) != 1 or len(values) != 1 or any(_names(values[0], name)):
            return None
        return values[0]

    def _attribute(self, owner: str, name: str) -> Any:
        """Return an attribute of a module's variable; of a local one, the argument of that name that was parsed."""
        if owner in self._locals:
            return self._arguments.get(name) if owner != "self" else None
        holder = self._globals.get(owner)
        try:
            values = type.__getattribute__(holder, "__dict__") if isinstance(holder, type) else _own(holder)
        except AttributeError:
            return None
        return values.get(name)


def _own(holder: Any) -> Mapping[str, Any]:
    found = object.__getattribute__(holder, "__dict__")
    return found if type(found) is dict else {}


def _names(node: ast.expr, name: str) -> Iterator[ast.Name]:
    return (part for part in ast.walk(node) if isinstance(part, ast.Name) and part.id == name)


def _arithmetic(operator: ast.operator, left: Optional[int], right: Optional[int]) -> Optional[int]:
    if left is None or right is None:
        return None
    if isinstance(operator, ast.Add):
        return left + right
    if isinstance(operator, ast.Sub):
        return left - right
    if isinstance(operator, ast.Mult):
        return left * right
    return left // right if isinstance(operator, ast.FloorDiv) and right else None
