"""Find the models that an optimizer trains, among the modules of the process, and observe their calls.

No other module is changed: hooks on every module cost milliseconds and break compiled graphs. The program's frames are
not read: up to Python 3.12 the variables of a frame, once read, live until its function returns.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from functools import partial
from threading import get_ident
from typing import Any, Callable, Deque, Dict, List, Optional, Set, Tuple

from trainhooks.auto.data_loading import BatchCounter
from trainhooks.auto.instrumentation import call_safely, put_facts
from trainhooks.auto.models import program_facts
from trainhooks.auto.models.model_copies import ModelCopies
from trainhooks.auto.models.module_parts import (
    ParameterPlace,
    modules_in,
    optimized_parameters,
    parameters_in,
    place_in_module,
)
from trainhooks.auto.models.module_registry import MadeModules
from trainhooks.auto.models.own_writing import OwnWriting
from trainhooks.auto.operations.op_inspection import inspection
from trainhooks.auto.steps.step_order import ODD
from trainhooks.auto.steps.step_tracker import StepTracker
from trainhooks.device import cuda
from trainhooks.lane_entries import host_clock
from trainhooks.program_errors import until_gone

# A search looks at each module of the process, which takes a millisecond for a thousand. So many come at once; one
# that goes on making models (a notebook, a sweep) has further ones searched for in this share of the time.
PROMPT_SEARCHES = 16
MAX_SEARCH_SHARE = 0.005
MAX_MODELS = 32  # alive at a time
# A model that is trained by a method of its own (`agent.get_action(x)`, `model.loss(x)`) is never called as a module;
# its parts are, in one of the first levels. Each followed call takes microseconds.
FIRST_UNCALLED, LAST_UNCALLED = 2, 5  # steps of an optimizer after which its uncalled models are looked at
MOST_PARTS = 256
MAX_OTHER_CALLS = 64  # of other models since the leader's last: it is trained no longer (critics take a dozen)

# The attribute (torch 2.1 and later) through which torch lets a model's call be another function, as `Module.compile`
# sets it; Module._wrapped_call_impl calls it. A module's own hooks would be a part of the module: it could not be
# pickled with ours (`torch.save(model)`) nor scripted, and every compiler would trace them. This attribute is not in
# the state that torch saves, and compilers go straight to `forward`. A class with a way of its own of being saved or
# copied may take all attributes, this one among them: see `_Unsaved`.
CALL = "_compiled_call_impl"

# Repeated calls of a model are counted over its first calls: a loop that repeats calls does so from the start.
MAX_INSPECTED_CALLS = 256
MAX_AHEAD = 64  # inputs that are kept in mind, each as long as it lives: a large batch in parts has some dozens
FIRST_CALLS_REPORT = 32  # calls, and again at each doubling up to MAX_INSPECTED_CALLS


class TrainedModels:
    """Find the outermost modules that hold an optimizer's parameters, and follow their calls.

    Attributes:
        settled: optimizers whose models need no further search, by id.
    """

    def __init__(self, torch: Any, tracker: StepTracker, is_traced: Callable[[], bool]) -> None:
        self._made = MadeModules(torch.nn.Module, is_traced)
        self._torch = torch
        self._tracker = tracker
        self._counts = BatchCounter(torch).model_inputs
        self._followed: Dict[int, _Followed] = {}  # those alive, by id
        self._led: Optional[int] = None  # the id of the one whose inputs are counted, which may be gone
        self._other_calls = 0  # since the leader's last
        self._steps: Dict[int, int] = {}  # of optimizers that are not long settled, by id
        self._searches = 0
        self._next_search = 0.0  # time.monotonic
        self._copies = ModelCopies(torch, tracker, CALL)
        self.settled: Dict[int, Any] = {}

    def find(self, optimizer: Any) -> bool:
        """Find and follow the models of an optimizer. Return false if it is too early for another search."""
        began = time.monotonic()
        if began < self._next_search:  # first: until it is settled, an optimizer comes here at each of its steps
            return False
        if len(self._followed) >= MAX_MODELS or self._is_known(optimizer):
            return True
        found = self._outermost(_held_by(optimizer))
        self._follow_all(found)
        # A program evaluates and generates by what a wrapper holds (`model.module(x)`), too.
        inside = [part for module in found if (part := program_facts.wrapped(module)) is not None]
        self._follow_all(inside)
        for held in (self._followed.get(id(part)) for part in inside):
            if held is not None:
                held.is_inside = True
        self._made.forget({id(part) for module in self._roots() for part in modules_in(module)})
        self._searches += 1
        if self._searches >= PROMPT_SEARCHES:
            now = time.monotonic()
            self._next_search = now + (now - began) / MAX_SEARCH_SHARE
        return True

    def settle(self, optimizer: Any) -> None:
        """Search for the last time, at the optimizer's first step: the model has been wrapped and compiled by then."""
        if self.find(optimizer):
            key = id(optimizer)
            self.settled[key] = until_gone(optimizer, self.settled, key)
            for model in list(self._followed.values()):
                model.is_wrapped = True

    def steps(self, optimizer: Any) -> None:
        """Follow the parts of models that are never called themselves, in an optimizer's first steps."""
        key, tracker = id(optimizer), self._tracker
        if tracker.checks.left and self._copies.targets.followed and cuda.may_compute():
            call_safely(self._copies.targets.updates, tracker.rollouts.acted_at)
        if key not in self.settled:
            if key not in self._steps and cuda.may_compute():
                call_safely(self._copies.targets.first_step, optimizer)
            self._steps[key] = 1
            self.settle(optimizer)
        elif key in self._steps:
            self._steps[key] += 1
            # And again for the parts of models that are never called themselves, which are followed from then on.
            if self._steps[key] in (FIRST_UNCALLED, LAST_UNCALLED) and self._searches < PROMPT_SEARCHES:
                self._follow_copies(optimizer)
            if self._steps[key] >= FIRST_UNCALLED and tracker.has_gradients:
                self._follow_parts(_held_by(optimizer))
                if self._steps[key] == LAST_UNCALLED and not any(
                    one.is_called for one in list(self._followed.values())
                ):
                    self._follow_others()
            if self._steps[key] == LAST_UNCALLED:
                del self._steps[key]

    def _follow_copies(self, optimizer: Any) -> None:
        """Follow the copies of the models that this optimizer trains."""
        wanted, others = _held_by(optimizer), [one for one in self._modules() if id(one) not in self._followed]
        for key, held in list(self._followed.items()):
            module = held.module()
            if module is not None and not held.is_inside and _holds_any(module, wanted):
                self._copies.follow(program_facts.unwrap(module), others, _Unsaved, leads=key == self._led)

    def _follow_others(self) -> None:
        """Follow models that got gradients where no model of an optimizer is called: it holds an earlier copy's."""
        own = (vars(module).get("_parameters") or {} for module in self._modules())
        kind = self._torch.nn.Parameter  # a class of its own has functions of its own
        given = [one for held in own for one in held.values() if type(one) is kind and one.grad is not None]
        self._led = None
        self._follow_all(self._outermost(set(map(id, given))))

    def find_around(self, parameter: Any) -> None:
        """Find and follow the models, or their parts, of a program that updates parameters without an optimizer."""
        if self._searches >= LAST_UNCALLED:
            return
        self._searches += 1
        if not self._followed:
            self._follow_all(self._outermost({id(parameter)}))
        else:
            self._follow_parts({id(one) for module in self._roots() for one in parameters_in(module)})

    def _follow_parts(self, wanted: Set[int]) -> None:
        for key, held in list(self._followed.items()):
            module = held.module()
            if module is None or held.is_called or held.is_inside or not _holds_any(module, wanted):
                continue
            inner = [part for part in self._callable_parts(module) if _holds_any(part, wanted)]
            if len(self._followed) + len(inner) <= MOST_PARTS and not any(id(part) in self._followed for part in inner):
                held.writing.release_tables()
                self._follow_all(inner, MOST_PARTS)
                if self._led == key:
                    self._led = None  # the part that is called first takes over

    def _callable_parts(self, module: Any) -> List[Any]:
        """Return the modules directly inside a module; in place of a list or dictionary of modules, those in it."""
        found: List[Any] = []
        waiting = list((vars(module).get("_modules") or {}).values())
        while waiting:
            part = waiting.pop()
            if isinstance(part, (self._torch.nn.ModuleList, self._torch.nn.ModuleDict)):
                waiting += (vars(part).get("_modules") or {}).values()
            elif part is not None:
                found.append(part)
        return found

    def _is_known(self, optimizer: Any) -> bool:
        """Return whether all its parameters are those of models that were searched for at an optimizer's step."""
        modules = [model.module() for model in list(self._followed.values()) if model.is_wrapped]
        held = {id(parameter) for module in modules if module is not None for parameter in parameters_in(module)}
        return bool(held) and all(id(one) in held for group in optimizer.param_groups for one in group["params"])

    def _follow_all(self, modules: List[Any], limit: int = MAX_MODELS) -> None:
        for module in modules:
            self._copies.unfollow(module)
            # The attribute is set in a module compiled in place, and missing in an older torch.
            may_follow = getattr(module, CALL, module) is None
            if may_follow and id(module) not in self._followed and len(self._followed) < limit:
                self._follow(module)

    def _follow(self, module: Any) -> None:
        key = id(module)
        writing = OwnWriting(self._torch, self._tracker, CALL, _Unsaved)
        leader = self._leading_module()
        if leader is None:
            program_facts.remember_model(module)
            self._led = key
        elif any(part is leader for part in modules_in(module)):  # compiled or wrapped after its optimizer was made:
            writing = self._followed[id(leader)].writing  # it is called instead, by itself or in its wrapper
            self._led = key
        writing.follow_tables(module)
        followed = _Followed(until_gone(module, self._followed, key), writing)
        _ModelCalls(self._torch, self._tracker, self._counts, self._leads, key, followed, self._copies).follow(module)
        self._followed[key] = followed
        self._tracker.sees_model = True

    def forget_leader(self) -> Optional[int]:
        """Let the next model that is found lead, of another training. Return the id of the one that led."""
        leader, self._led, self._other_calls = self._led, None, 0
        return leader

    def lead_again(self, leader: Optional[int]) -> None:
        """Let the model with this id lead, if it is followed still."""
        if leader in self._followed:
            self._led, self._other_calls = leader, 0

    def _leading_module(self) -> Any:
        """Return the model whose inputs are counted; None where there is none, or none any longer."""
        led = self._followed.get(self._led or 0)
        return None if led is None else led.module()

    def _leads(self, key: int) -> bool:
        """Return whether this model's inputs are the step's; it takes over if the leader is no longer called."""
        if key == self._led:
            self._other_calls = 0
            return True
        self._other_calls += 1
        if self._led in self._followed and self._other_calls < MAX_OTHER_CALLS:
            return False
        self._led = key
        return True

    def _outermost(self, wanted: Set[int]) -> List[Any]:
        """Return the modules that are part of no other and hold one of the parameters with these ids."""
        parents: Dict[int, List[Any]] = {}  # by the id of the part
        reached: List[Any] = []
        for module in self._modules():
            attributes = vars(module)
            for part in (attributes.get("_modules") or {}).values():
                parents.setdefault(id(part), []).append(module)
            if any(id(parameter) in wanted for parameter in (attributes.get("_parameters") or {}).values()):
                reached.append(module)
        outermost: Dict[int, Any] = {}
        seen: Set[int] = set()
        while reached:
            module = reached.pop()
            if id(module) not in seen:
                seen.add(id(module))
                around = parents.get(id(module))
                if around is None:
                    outermost[id(module)] = module
                else:
                    reached += around
        own = [module for module in outermost.values() if not _is_graph(module)]
        return own or list(outermost.values())

    def places(self, optimizer: Any) -> Dict[int, ParameterPlace]:
        """Return where each parameter of an optimizer is kept, by its id: in a module, else in the optimizer."""
        keeper = weakref.ref(optimizer)
        found = {id(one): ParameterPlace(one, keeper, *keys) for one, keys in optimized_parameters(optimizer)}
        for module in self._modules():
            for name, one in (vars(module).get("_parameters") or {}).items():
                if id(one) in found:
                    found[id(one)] = place_in_module(one, module, name)
        return found

    def _modules(self) -> List[Any]:
        """Return all modules of the process: those that are followed, those in them, and those made since."""
        found = [part for module in self._roots() for part in modules_in(module)]
        return list({id(module): module for module in (*found, *self._made.living())}.values())

    def _roots(self) -> List[Any]:
        return [module for held in list(self._followed.values()) if (module := held.module()) is not None]


def _held_by(optimizer: Any) -> Set[int]:
    """Return the ids of an optimizer's parameters."""
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}


def _holds_any(module: Any, wanted: Set[int]) -> bool:
    return any(id(parameter) in wanted for parameter in parameters_in(module))


def _is_graph(module: Any) -> bool:
    """Return whether this is a traced graph: compilers make such modules around the parameters of a model."""
    return any(base.__module__ == "torch.fx.graph_module" for base in type(module).__mro__)


class _Followed:
    """A model whose calls are followed."""

    __slots__ = ("is_called", "is_inside", "is_wrapped", "module", "writing")

    def __init__(self, module: "weakref.ReferenceType[Any]", writing: OwnWriting) -> None:
        self.module = module
        self.writing = writing
        self.is_called = False  # in training
        self.is_inside = False  # of a wrapper that is followed
        self.is_wrapped = False  # gets no further wrapper


class _ModelCalls:
    """Report the calls of one model to the tracker.

    Args:
        counts: returns the counts of a batch.
        leads: returns whether the inputs of the model with that id are the step's.
        key: the model's id.
        followed: the model.
        copies: the copies of trained models.
    """

    def __init__(
        self,
        torch: Any,
        tracker: StepTracker,
        counts: Callable[[Any], Any],
        leads: Callable[[int], bool],
        key: int,
        followed: _Followed,
        copies: ModelCopies,
    ) -> None:
        self._followed = followed
        self._torch = torch
        self._tracker = tracker
        self._counts = counts
        self._leads = leads
        self._key = key
        self._repeated = RepeatedCalls()
        self._writing = followed.writing
        self._copies = copies

    def follow(self, module: Any) -> None:
        is_compiling = self._torch.compiler.is_dynamo_compiling
        called = self._tracker.fast_path.model_call(module, self._repeated, self._inputs, is_compiling, self._begins)
        # To script a module or a copy of it, torch would try to understand this annotation of what its dict holds.
        getattr(self._torch.nn.Module, "__annotations__", {}).pop(CALL, None)
        vars(module)[CALL] = _Unsaved(called)

    def _begins(self, module: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Optional[Callable[..., Any]]:
        """Record the begin of a model call off the fast path. Return the function to call if the tracker records it."""
        tracker, fast_path = self._tracker, self._tracker.fast_path
        if tracker.silent or id(module) != self._key or get_ident() != tracker.thread:
            return None
        if fast_path.in_part or tracker.in_forward or tracker.in_backward:
            return None
        if self._torch.compiler.is_compiling():  # torch.export calls it, on tensors that hold nothing
            return None
        fast_path.leave()
        checks = tracker.checks
        if not module.training:
            if tracker.grads_wanted():
                checks.modes.called_in_eval(module)
        elif checks.modes.pending or (checks.left and not checks.modes.seen_training):
            checks.evaluation_over()
        call: Callable[..., Any] = module._call_impl
        t = host_clock()
        given = args[0] if args else kwargs.get("input_ids")
        grads, writing = tracker.grads_wanted(), self._writing
        is_late = self._repeated.calls >= MAX_INSPECTED_CALLS
        written = call_safely(writing.learns, given, is_late) if grads else None
        if grads and checks.left:
            call_safely(self._copies.learns, given)
        is_counted = tracker.forward_begins(module.training, t)
        for place, figures in written or ():
            tracker.generations.counts(place, figures)
        if not grads:
            call_safely(writing.called, given, t)
        elif tracker.generations.looks:
            call_safely(tracker.generations.learns, args, kwargs)
        if tracker.called:
            leads = self._leads(self._key)
            if is_counted and leads:
                tracker.count(call_safely(self._inputs, args, kwargs))
            self._followed.is_called = True
            if checks.left:
                checks.syncs.model_called(module)
            if inspection.is_due(module, tracker.began):
                call = inspection.call_for(self._torch, module)
            place = self._key if leads else -self._key
            tracker.takes_call(place if inspection.done else ODD, leads)
        if self._repeated.calls < MAX_INSPECTED_CALLS:
            tensor = self._torch.Tensor
            if isinstance(given, tensor):
                others = {name: id(one) for name, one in (*enumerate(args), *kwargs.items()) if isinstance(one, tensor)}
                if tracker.called:
                    tracker.caches = tracker.caches or self._repeated.was_ahead(given)
                    self._repeated.add_call(given, others, tracker.began, tracker.gradients)
                else:
                    self._repeated.add_call_without_gradients(given, others)
        return call

    def _inputs(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        return self._counts(kwargs if "input_ids" in kwargs else args)


class _Unsaved(partial):  # type: ignore[type-arg]
    """The function that is called, as an object that every way of copying and pickling replaces by None.

    None is what a module has there without us. A `partial` makes the call in C: there is no further frame, in which the
    function would look for the module, and no measurable time is spent.
    """

    __slots__ = ()

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(None), ()


class RepeatedCalls:
    """Count calls of a model on the same input as the call before, whose result could have been reused.

    Two views, two batches or two networks are not repeated calls, nor is a second pass with its own gradients.
    """

    __slots__ = (
        "_ahead", "_backwards", "_input", "_next_report", "_others", "_pending", "_step", "calls", "looks", "times",
    )  # fmt: skip

    def __init__(self) -> None:
        self.calls = 0
        self.times = 0
        self.looks = 0  # calls without gradients on the input that the model was trained on last
        self._next_report = FIRST_CALLS_REPORT
        self._ahead: Deque["weakref.ReferenceType[Any]"] = deque(maxlen=MAX_AHEAD)  # of calls without gradients
        self._input: Optional["weakref.ReferenceType[Any]"] = None  # of the last call
        self._others: Dict[Any, int] = {}  # the ids of its tensors, by place or name
        self._step = 0  # the step in which that was, and how many backward passes this one had had
        self._backwards = 0
        self._pending = False  # the last call's input had had its backward pass, and there was none since

    def add_call(self, given: Any, others: Dict[Any, int], step: int, backwards: int) -> None:
        """Count one call.

        Args:
            given: the tensor that the model is called on.
            others: the ids of all tensors that it is given, by place or name.
            step: tells steps apart.
            backwards: gradients computed in this step so far.
        """
        self.calls += 1
        had_backward = step != self._step or backwards > self._backwards  # an ended step has had its backward pass
        again = self._is_again(given, others)
        if (again or self._pending) and not had_backward:
            self.times += 1
        self._pending = again and had_backward
        self._input, self._others = weakref.ref(given), others
        self._step, self._backwards = step, backwards
        if self.calls < self._next_report:
            return
        while self.calls >= self._next_report:
            self._next_report *= 2
        if self.times or self.looks:
            put_facts(forwards={"repeated": self.times, "calls": self.calls, "without_gradients": self.looks})

    def add_call_without_gradients(self, given: Any, others: Dict[Any, int]) -> None:
        """Count a call without gradients, as for the accuracy of a training batch."""
        self.looks += self._is_again(given, others)
        self._ahead.append(weakref.ref(given))

    def was_ahead(self, given: Any) -> bool:
        """Return whether an input of a call with gradients, and others, went through without them just before."""
        ahead, self._ahead = self._ahead, deque(maxlen=MAX_AHEAD)
        return len(ahead) > 1 and any(held() is given for held in ahead)

    def _is_again(self, given: Any, others: Dict[Any, int]) -> bool:
        """Return whether a call is given what the last one was, labels apart: `model(user, other_item)` is not."""
        if self._input is None or self._input() is not given:
            return False
        return all(others.get(name, one) == one for name, one in self._others.items())
