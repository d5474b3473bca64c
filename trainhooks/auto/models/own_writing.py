"""What a model writes in loops of the program's own: by its calls, or by methods as `model.inference(ids, state)`.

Such a method is no call of the module, but it looks up what it reads in a table of tokens. Tables of positions and
segments are read beside that one: what counts is the table in which the most sequences were written.
"""

from __future__ import annotations

import sys
from threading import get_ident
from typing import Any, Callable, Dict, List, Optional, Tuple

from trainhooks.auto import unseen
from trainhooks.auto.instrumentation import call_safely, framework, put_facts
from trainhooks.auto.models.module_parts import modules_in
from trainhooks.auto.rl.own_decoding import Figures, OwnDecoding
from trainhooks.auto.steps.step_tracker import StepTracker
from trainhooks.lane_entries import host_clock
from trainhooks.program_errors import until_gone
from trainhooks.protocol.vocabulary import OWN_LOOP, UNCACHED_CALLS

MAX_TABLES = 8  # of a model: those of categories are many, and no sequences


class OwnWriting:
    """What one model writes.

    Args:
        attribute: through which torch lets a module's call be another function.
        wrapper: makes an object of a function that copying and pickling replace by None.
    """

    def __init__(self, torch: Any, tracker: StepTracker, attribute: str, wrapper: Callable[[Any], Any]) -> None:
        self._torch = torch
        self._tracker = tracker
        self._attribute = attribute
        self._wrapper = wrapper
        self._calls = OwnDecoding()
        self._tables: Dict[int, Tuple[Any, OwnDecoding]] = {}  # by id, with a weak reference
        self._is_settled = False  # the table of tokens is known
        self._is_told = False  # that there is no cache

    def follow_tables(self, model: Any) -> None:
        """Follow the tables in a model, if they are few and nobody else does."""
        tables = [one for one in modules_in(model) if isinstance(one, self._torch.nn.Embedding) and one is not model]
        if len(tables) <= MAX_TABLES and all(getattr(one, self._attribute, one) is None for one in tables):
            for table in tables:
                vars(table)[self._attribute] = self._wrapper(self._function(table))

    def release_tables(self, but: Optional[int] = None) -> None:
        """Follow none of them any longer, but the one with this id."""
        for key, (held, _) in list(self._tables.items()):
            table = held()
            if table is not None and key != but:
                del self._tables[key]
                vars(table).pop(self._attribute, None)

    def called(self, given: Any, t: int) -> None:
        """Take a call of the model without gradients, which begins at `t`."""
        if framework.open_phases or framework.open_evaluations:
            return  # a framework's own generation has its name
        calls = self._calls
        row = calls.makes_row(given, t) if type(given) is self._torch.Tensor else None
        if row is not None:
            self._tracker.decodes(row, calls.goes_on())

    def learns(self, given: Any, is_late: bool) -> List[Tuple[Any, Figures]]:
        """Take a call of the model with gradients, which is about to begin.

        Args:
            given: what it is called on.
            is_late: whether tables in which nothing was written so far are to be left.

        Returns:
            For each place the metrics of what was written since the last such call, to add up and to average.
        """
        if type(given) is not self._torch.Tensor:
            return []
        found = self._learns(self._calls, given)
        by_table = {key: written for key, (_, one) in self._tables.items() if (written := self._learns(one, given))}
        if by_table:
            most = max(by_table, key=lambda key: sum(sums["completions"] for _, (sums, _) in by_table[key]))
            found += by_table[most]
            self.release_tables(but=most)
            self._is_settled = True
        elif is_late and not self._is_settled:
            self.release_tables()
        if not self._is_told and any(UNCACHED_CALLS in sums for _, (sums, _) in found):
            self._is_told = True
            put_facts(generate={"set_by": OWN_LOOP})
        return found

    def _learns(self, decoding: OwnDecoding, given: Any) -> List[Tuple[Any, Figures]]:
        if not decoding.is_pending:
            return []
        row, written = decoding.learns(given)
        if row is not None and row.place is not None:
            self._tracker.has_decoded(row)
        return written

    def _function(self, table: Any) -> Callable[..., Any]:
        """Return the function to call in place of the table's `_call_impl`, as `FastPath.model_call` does."""
        key, decoding = id(table), OwnDecoding()
        reference = until_gone(table, self._tables, key)
        self._tables[key] = reference, decoding
        is_compiling, frame = self._torch.compiler.is_dynamo_compiling, sys._getframe
        grads_wanted = self._tracker.grads_wanted

        def called(*args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return reference()._call_impl(*args, **kwargs)  # type: ignore[union-attr]
            module = frame(1).f_locals["self"]
            if not grads_wanted() and id(module) == key:
                call_safely(self._looks_up, decoding, args)
            try:
                return module._call_impl(*args, **kwargs)
            except BaseException as error:
                unseen.drop_own_frames(error)
                raise

        return called

    def _looks_up(self, decoding: OwnDecoding, args: Tuple[Any, ...]) -> None:
        tracker = self._tracker
        if tracker.in_forward or tracker.silent or framework.open_phases or framework.open_evaluations:
            return  # the model's own call has told it, or a framework does
        if get_ident() != tracker.thread or not args or type(args[0]) is not self._torch.Tensor:
            return
        t = host_clock()
        row, is_known = decoding.makes_row(args[0], t), decoding.goes_on()
        if row is not None and decoding is max((one for _, one in self._tables.values()), key=_sequences):
            if is_known:
                tracker.fast_path.leave()
            tracker.decodes(row, is_known)
        if is_known:
            tracker.decoded(t)


def _sequences(decoding: OwnDecoding) -> int:
    return decoding.sequences
