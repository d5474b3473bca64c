"""The calls of one model, heard where torch itself lets a model's call be another function: what `Module.compile` sets.

A module's own hooks would be quicker to write. But they are a part of the module: it could not be pickled with ours
(`torch.save(model)`), nor scripted, and every compiler would trace them. This attribute is none of the state that is
saved, and compilers go straight to `forward`.

Whatever takes over a module's attributes (DataParallel's replicas, a copy of its `__dict__`) takes over the function,
too. So whose call it is it learns from torch's own frame, and the calls of others it only passes on.
"""

from __future__ import annotations

import sys
import weakref
from threading import get_ident
from typing import Any, Callable, Dict, Optional, Tuple

from trainhooks.auto import op_look
from trainhooks.auto.repeats import LOOKS, Repeats
from trainhooks.auto.steps import Steps
from trainhooks.auto.usual import CALLED, CALLING, FETCHED, LEARNING
from trainhooks.clocks import host_clock

CALL = "_compiled_call_impl"  # torch 2.1 and later; what calls it is Module._wrapped_call_impl


class Listener:
    """Hears the calls of a module, once `listen` has been called.

    Args:
        counts: what a batch holds.
        leads: whether the inputs of the model with that id are the step's.
    """

    def __init__(
        self, torch: Any, watched: Steps, counts: Callable[[Any], Any], leads: Callable[[int], bool], key: int
    ) -> None:
        self._torch = torch
        self._watched = watched
        self._counts = counts
        self._leads = leads
        self._key = key
        self._repeats = Repeats()

    def listen(self, module: Any) -> None:
        called = self._called(module)
        is_compiled = "_orig_mod" in module._modules  # by torch.compile: such a one is saved with all its attributes
        vars(module)[CALL] = _Unsaved(called) if is_compiled else called

    def _called(self, module: Any) -> Callable[..., Any]:
        key, watched, usual, repeats, begins = (
            self._key,
            self._watched,
            self._watched.usual,
            self._repeats,
            self._begins,
        )
        is_compiling, grads_wanted = self._torch.compiler.is_dynamo_compiling, watched.grads_wanted
        frame = sys._getframe
        reference = weakref.ref(module)  # it lives as long as without us

        def called(*args: Any, **kwargs: Any) -> Any:
            if is_compiling():  # where there are no frames
                return reference()._call_impl(*args, **kwargs)  # type: ignore[union-attr]
            module = frame(1).f_locals["self"]
            if (
                usual.stage == FETCHED
                and id(module) == usual.root == key
                and module.training
                and grads_wanted()
                and get_ident() == usual.thread
            ):
                usual.called = host_clock()
                usual.stage = CALLING
                repeats.calls += 1
                result = module._call_impl(*args, **kwargs)
                if usual.stage == CALLING:
                    usual.stage = CALLED
                return result
            call = begins(module, args, kwargs)
            if call is None:
                return module._call_impl(*args, **kwargs)
            result = call(*args, **kwargs)
            watched.forward_ends()
            return result

        return called

    def _begins(self, module: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Optional[Callable[..., Any]]:
        """A model is called, and it is not the usual call. Returns what to call where its end is to be told."""
        watched, usual = self._watched, self._watched.usual
        if watched.silent or id(module) != self._key or get_ident() != watched.thread:
            return None
        if usual.stage in (CALLING, LEARNING) or watched.in_forward or watched.in_backward:
            return None  # a part of what goes on
        if self._torch.compiler.is_compiling():  # torch.export runs it, on tensors that hold nothing
            return None
        if usual.stage:
            usual.hand_over()
        call: Callable[..., Any] = module._call_impl
        forwards, began = watched.forwards, watched.began
        if watched.forward_begins(module.training, host_clock()) and self._leads(self._key):
            watched.count(self._counts(kwargs) if "input_ids" in kwargs else self._counts(args))
        if watched.forwards > forwards or watched.began != began:
            if op_look.look.due(module, watched.began):
                call = op_look.look.at(self._torch, module)
            if op_look.look.done:
                usual.root = self._key
            if self._repeats.calls < LOOKS:
                given = args[0] if args else kwargs.get("input_ids")
                if isinstance(given, self._torch.Tensor):
                    self._repeats.called(given, watched.began, watched.backwards)
        return call


class _Unsaved:
    """The function, for a module that is saved with it: what is read in or copied has None there, as without us."""

    __slots__ = ("_called",)

    def __init__(self, called: Callable[..., Any]) -> None:
        self._called = called

    def __call__(ours, *args: Any, **kwargs: Any) -> Any:
        self = sys._getframe(1).f_locals["self"]  # where the function looks for it  # noqa: F841
        return ours._called(*args, **kwargs)

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(None), ()
