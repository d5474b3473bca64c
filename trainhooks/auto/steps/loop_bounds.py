"""How long the program's own loops run, read from their headers: `for epoch in range(30)`, `trange(args.steps)`.

Where an optimizer steps, each loop around the call is found in the source. Its bound is known if it is a number, a
variable of a module, or a local variable that is assigned once, and to a number: a function's locals are never read.
What is not certain is unknown: a bound that a call returns, a step under a condition that varies, a `while` whose steps
it does not count (`counted_loops`).
"""

from __future__ import annotations

import ast
import inspect
import os
import sys
import textwrap
from types import CodeType, FrameType
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

from trainhooks.auto.steps import counted_loops
from trainhooks.auto.steps.loop_numbers import MAX_ITERATIONS, Bounds
from trainhooks.program_errors import pass_on
from trainhooks.recording import sources
from trainhooks.recording.frames import is_users, parse_source

MAX_STACK_FRAMES = 200  # of a stack that are looked at
MAX_STEP_STACKS = 16  # different stacks at which optimizers step; with more, nothing is claimed
MAX_EARLY_LOOKS = 100  # before sources are read: our thread that reads them may have been refused
MAX_SOURCE_LINES = 20_000  # of a file; a longer one is not parsed

ITERABLE_WRAPPERS = ("tqdm", "track", "progress_bar", "master_bar", "enumerate", "reversed", "iter", "list", "tuple")
ITERATORS = ("enumerate", "reversed", "iter")  # of these, those that may have begun before the loop
TRAINING = "train"  # in the name of the one pass of several (training, validation) in which steps are made

_TORCH = f"-packages{os.sep}torch{os.sep}"
_OWN = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep

Place = Tuple[str, int, int]  # file, first line of the function, line
_Function = (ast.FunctionDef, ast.AsyncFunctionDef)


class Loop(NamedTuple):
    """A loop around an optimizer's step. `times`: how often it runs; None: unknown."""

    file: str
    line: int
    times: Optional[int]


class Nest(NamedTuple):
    """The loops around an optimizer's step, the outermost first.

    Attributes:
        is_certain: whether each pass of the innermost one makes a step.
        counted: the steps of a `while` around them that counts its steps.
        around: the places from which the program came to the outermost loop: elsewhere it is another training's.
    """

    loops: Tuple[Loop, ...]
    is_certain: bool
    counted: Optional[int] = None
    around: Tuple[Place, ...] = ()

    def plan(self) -> Dict[str, int]:
        """Return `updates`, the steps of all passes together, or `epochs`, passes over what the innermost iterates."""
        if self.counted is not None:
            return {"updates": self.counted} if self.is_certain else {}
        times = [loop.times for loop in self.loops]
        if not times:
            return {}
        outer = _product(times[:-1])
        if times[-1] is None:
            return {"epochs": outer} if len(times) > 1 and outer is not None else {}
        updates = _product(times) if self.is_certain else None
        return {} if updates is None else {"updates": updates}


def _product(times: List[Optional[int]]) -> Optional[int]:
    product = 1
    for number in times:
        if number is None or product * number > MAX_ITERATIONS:
            return None
        product *= number
    return product


class LoopWatch:
    """The loops in which a training steps; they are claimed while all of its steps are made in the same ones.

    Attributes:
        is_early: whether the last look came before the sources had been read.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget the loops, as another training begins."""
        self._known: Dict[Tuple[Place, ...], Nest] = {}
        self._looks_early = 0
        self.is_early = False
        self._nest: Optional[Nest] = None
        self._is_over = False

    def look(self, frame: Optional[FrameType], arguments: Mapping[str, int]) -> Optional[Dict[str, int]]:
        """Look at the stack of an optimizer's step. Return the plan where it is new or has changed; {}: none.

        Args:
            arguments: what argparse has parsed.
        """
        if self._is_over:
            return None
        frames = _programs(frame)
        places = tuple([_place(one) for one in frames])
        if places in self._known:
            return None
        if self._looks_early < MAX_EARLY_LOOKS and any(sources.known(place[0]) is None for place in places):
            self._looks_early += 1
            self.is_early = True
            return None
        self.is_early = False
        nest = self._known[places] = read_nest(frames, arguments)
        before, self._nest = self._nest, nest
        if before is None:
            return nest.plan()
        same = [loop[:2] for loop in before.loops] == [loop[:2] for loop in nest.loops]
        same = same and before.counted == nest.counted and before.around == nest.around
        self._is_over = not same or len(self._known) >= MAX_STEP_STACKS
        if self._is_over:  # a plan of one of several loops is none of the training
            return {}
        self._nest = before._replace(is_certain=before.is_certain and nest.is_certain)
        return self._nest.plan()


def _programs(frame: Optional[FrameType]) -> List[FrameType]:
    """Return the frames that are neither ours nor torch's, the innermost first.

    Of a script or a notebook's cell, what runs it is left out: its loops are not the program's.
    """
    frames: List[FrameType] = []
    outermost = None
    while frame is not None and len(frames) < MAX_STACK_FRAMES:
        path = frame.f_code.co_filename
        if not path.startswith(_OWN) and _TORCH not in path:
            frames.append(frame)
            if is_users(path) or path.startswith("<ipython"):
                outermost = len(frames)
        frame = frame.f_back
    is_script = outermost is not None and frames[outermost - 1].f_code.co_name == "<module>"
    return frames[:outermost] if is_script else frames


def _place(frame: FrameType) -> Place:
    return frame.f_code.co_filename, frame.f_code.co_firstlineno, frame.f_lineno


def read_nest(frames: List[FrameType], arguments: Mapping[str, int]) -> Nest:
    """Return the loops around the calls of a stack, whose frames come with the innermost first."""
    loops: List[Loop] = []
    is_certain = True
    counted: Optional[int] = None
    around: List[Place] = []
    for frame in reversed(frames):
        path = _path(frame.f_code, frame.f_lineno)
        if path is None:  # no source, or not that of this code
            if _is_loopless(frame.f_code):
                continue
            return Nest((), False)
        function = path[0]
        inside: Optional[ast.For] = None
        for depth, (node, child) in enumerate(zip(path, [*path[1:], None])):
            if isinstance(node, counted_loops.LOOPS):
                if counted is not None or child is None or child not in node.body:
                    return Nest((), False)  # in its header, or behind it
                if isinstance(node, ast.While) and not loops and not _repeats(path[-1]):
                    counted = counted_loops.counted_steps(function, path[depth:], Bounds(frame, function, arguments))
                    if counted is not None:
                        around.append((frame.f_code.co_filename, _line(function, frame.f_code, node), 0))
                        break  # it has looked at the loops within it
                if not isinstance(node, ast.For):
                    return Nest((), False)
                times = _times(node, frame, function, arguments)
                if not is_certain and loops:
                    loops[-1] = loops[-1]._replace(times=None)
                loops.append(Loop(frame.f_code.co_filename, _line(function, frame.f_code, node), times))
                inside, is_certain = node, not _continues(node)
            elif child is None:
                if _repeats(node):
                    return Nest((), False)
            elif _may_not_run(node, child, inside, function, bool(loops) or counted is not None):
                is_certain = False
        if not loops and counted is None:
            around.append(_place(frame))
    return Nest(tuple(loops), is_certain, counted, tuple(around))


def _path(code: CodeType, line: int) -> Optional[List[Any]]:
    """Return the nodes around a line of this code, from the function or module inward; None where it is unclear."""
    found = _tree(code)
    if found is None:
        return None
    path: List[Any] = [found[0]]
    line -= found[1]
    while True:
        child = next((node for node in _statements(path[-1]) if _holds(node, line)), None)
        if child is None or isinstance(child, (*_Function, ast.ClassDef)):
            return path
        path.append(child)


def _tree(code: CodeType) -> Optional[Tuple[Any, int]]:
    """Return the node of a function or module, and by how many lines its numbers are behind the file's."""
    source = sources.known(code.co_filename)
    lines = [] if source is None or source.was_edited else source.lines
    if not lines or len(lines) > MAX_SOURCE_LINES or (code.co_name.startswith("<") and code.co_name != "<module>"):
        return None
    try:
        if code.co_name == "<module>":
            return parse_source("".join(lines)), 0
        first = code.co_firstlineno - 1
        block = textwrap.dedent("".join(inspect.getblock(lines[first:])))
        (function,) = parse_source(block).body
    except Exception as error:  # an edited file, or no Python
        pass_on(error)
        return None
    return (function, first) if isinstance(function, _Function) and function.name == code.co_name else None


def _is_loopless(code: CodeType) -> bool:
    """Return whether code without a readable source has no loop: the interpreter's own, and one-line functions."""
    return code.co_filename.startswith("<frozen") or code.co_name == "<lambda>"


def _statements(node: Any) -> Iterator[Any]:
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        found = getattr(node, name, ())
        yield from found if isinstance(found, list) else ()


def _holds(node: Any, line: int) -> bool:
    if not hasattr(node, "lineno"):  # a case of a match
        return any(_holds(child, line) for child in node.body)
    return bool(node.lineno <= line <= node.end_lineno)


def _line(function: Any, code: CodeType, node: Any) -> int:
    """Return the line of a node in its file."""
    return int(node.lineno + (0 if isinstance(function, ast.Module) else code.co_firstlineno - 1))


def _may_not_run(node: Any, child: Any, loop: Optional[ast.For], function: Any, is_called_in_loop: bool) -> bool:
    """Return whether a part of a statement may be left out in some passes of the loops around it."""
    if isinstance(node, ast.If):
        varying = _assigned(loop) if loop is not None else _locals(function) if is_called_in_loop else set()
        return _varies(node.test, varying)
    if isinstance(node, ast.Try):
        return child not in node.body and child not in node.finalbody
    return not isinstance(node, (ast.With, ast.AsyncWith, ast.Module, *_Function))


def _varies(test: ast.expr, varying: Set[str]) -> bool:
    """Return whether a condition may change from one pass to the next."""
    for node in ast.walk(test):
        if isinstance(node, (ast.Call, ast.Mod, ast.NamedExpr, ast.Await, ast.Subscript)):
            return True
        if isinstance(node, ast.Name) and (node.id in varying or node.id == "self"):
            return True
    return False


def _assigned(node: Any) -> Set[str]:
    names = (part for part in ast.walk(node) if isinstance(part, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}


def _locals(function: Any) -> Set[str]:
    parameters = {part.arg for part in ast.walk(function) if isinstance(part, ast.arg)}
    return parameters | _assigned(function)


def _continues(loop: ast.For) -> bool:
    """Return whether a pass of the loop may end early and go on with the next one."""
    waiting: List[Any] = list(loop.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Continue):
            return True
        if not isinstance(node, (ast.For, ast.While, ast.AsyncFor, *_Function, ast.ClassDef)):
            waiting.extend(_statements(node))
    return False


_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _repeats(statement: Any) -> bool:
    """Return whether a simple statement may run what it calls several times."""
    if isinstance(statement, (ast.Module, *_Function)):
        return True  # a line that is no statement
    parts = list(ast.walk(statement))
    calls = {_name(part.func) for part in parts if isinstance(part, ast.Call)}
    return any(isinstance(part, _COMPREHENSIONS) for part in parts) or not calls.isdisjoint(("map", "starmap"))


def _times(loop: ast.For, frame: FrameType, function: Any, arguments: Mapping[str, int]) -> Optional[int]:
    bounds = Bounds(frame, function, arguments)
    iterated = _unwrapped(loop.iter)
    if isinstance(iterated, ast.Name):  # `bar = tqdm(range(n))` before `for i in bar`
        named = bounds.assigned(iterated.id)
        is_new = isinstance(named, ast.Call) and _name(named.func) not in ITERATORS
        iterated = _unwrapped(named) if is_new else None
    if isinstance(iterated, (ast.List, ast.Tuple)):
        return _training_passes(iterated.elts)
    if not isinstance(iterated, ast.Call) or _name(iterated.func) not in ("range", "trange", "tnrange"):
        return None
    if _name(iterated.func) == "range" and bounds.is_own("range"):
        return None
    if any(isinstance(argument, ast.Starred) for argument in iterated.args) or len(iterated.args) > 3:
        return None
    given = [bounds.value(argument) for argument in iterated.args]
    if not given or None in given or (len(given) == 3 and given[2] == 0):
        return None
    times = len(range(*[number for number in given if number is not None]))
    return times if 0 < times <= MAX_ITERATIONS else None


def _unwrapped(iterated: Any) -> Any:
    """Return what an expression iterates, without bars and the like around it."""
    while isinstance(iterated, ast.Call) and iterated.args and _name(iterated.func) in ITERABLE_WRAPPERS:
        iterated = iterated.args[0]
    return iterated


def _training_passes(items: List[ast.expr]) -> Optional[int]:
    """Return 1 for `["train", "val"]`, of which one pass makes steps; else None: what each item does is unknown."""
    texts = [item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    return 1 if len(texts) == len(items) and sum(TRAINING in text.lower() for text in texts) == 1 else None


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


watch = LoopWatch()


def optimizer_steps(arguments: Mapping[str, int]) -> Optional[Dict[str, int]]:
    """Look at the loops around the optimizer's step that calls this; see `LoopWatch.look`."""
    return watch.look(sys._getframe(1), arguments)
