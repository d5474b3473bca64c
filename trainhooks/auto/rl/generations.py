"""What a program generates: to learn from, or to look at, as an evaluation and samples are.

What it learns from comes back in a model's pass with gradients, whoever held it meanwhile; that is told by the ids of
some rows (`id_windows`), place by place: a call of `generate()` together with the calls that lead to it. Few passes
are looked at, and only until a place is known. Until then a place is presumed to collect if the program had not
learned before it generated there, else to evaluate; what is counted there is kept back. Where nothing can be told (a
learner that is given no ids, answers of a few ids) it collects: to call that an evaluation would be a false alarm.

What is written after a text that is learned from, and before that is learned, belongs to the same rollout, though
nobody learns from it: it may decide what the text is worth, as tests of a program do.
"""

from __future__ import annotations

import sys
from collections import deque
from functools import partial
from types import FrameType
from typing import Any, Callable, Deque, Dict, List, Mapping, Optional, Tuple

from trainhooks import session
from trainhooks.auto.batch_parts import as_mapping
from trainhooks.auto.instrumentation import EVAL, call_safely, framework, is_open, own_tracker, phase, span
from trainhooks.auto.rl.id_windows import MAX_IDS, MIN_LENGTH, GeneratedRows, input_hashes, padded_rows, split
from trainhooks.auto.rl.instances import EVALUATES, TRAINS
from trainhooks.auto.rl.own_decoding import DecodedRow
from trainhooks.auto.rl.texts import Texts, texts_of
from trainhooks.device import cuda, deferred
from trainhooks.lane_entries import AGGREGATE

MAX_PLACES = 32
MAX_FUNCTIONS = 24  # under way, that tell a place
MAX_WATCHED = 8  # calls of a place whose ids are looked for: they may come back an update later
MAX_AHEAD = 4  # of these since the last pass with gradients: all that is generated comes back, or none
MAX_LOOKS = 32  # passes with gradients after a call: by then some minibatches of a first epoch have been
MAX_EARLIER = 4  # inputs that are kept in mind: a model that repeats them by heart has not made them
MIN_RETURNS = 2  # calls in a row whose ids came back, against a presumption, where nothing else has yet
MIN_PARTIAL = 8  # passes, where only a part of what is generated and of what is learned from is compared
MAX_ARGUMENTS, MAX_INPUTS = 16, 3  # of a model's call; of these, those that are looked at
NO_IDS = ("mask", "position")  # in names of arguments

GENERATION = "generation"

Figures = Tuple[Mapping[str, float], Mapping[str, float]]  # those to add up, those to average


class _Found:
    """What was found of a place's ids: a sum of `GeneratedRows.found_in`, which arrives from a device later."""

    __slots__ = ("_name", "_sum", "looks", "read", "value")

    def __init__(self, name: str) -> None:
        self._name = name
        self._sum: Any = None
        self.looks = self.read = self.value = 0  # inputs looked at, those in the value, the value

    def add(self, number: Any) -> None:
        self._sum = number if self._sum is None else self._sum + number
        self.looks += 1
        self.copy()

    def copy(self) -> None:
        if self._sum.is_cpu:
            self._arrives(self.looks, self._sum)
        else:
            arriving = deferred.start_copy(self._name, self._sum)
            if arriving is not None:
                arriving.wanted = False
                arriving.reader = partial(self._arrives, self.looks)

    def _arrives(self, looks: int, value: Any) -> None:
        self.read, self.value = looks, int(value)


class Place:
    """A place in the program that generates, with the calls that lead there.

    Attributes:
        use: TRAINS or EVALUATES.
        is_known: that is no presumption any more.
        calls: of it, so far.
        steps: the program's, at the last call.
        returns: calls in a row whose ids came back, among those that were watched.
        watched: what is looked for, of the last such calls.
        ahead: calls that were watched since the last pass with gradients.
        found: of that, since the place was judged.
        passes: with gradients, that were looked at since then.
        is_partial: in some, not all was compared.
        leader: the place that was taken to collect before its last call, for the same update.
        texts: that were made of what its last call has generated.
    """

    __slots__ = (
        "_batches", "_name", "_sums", "ahead", "calls", "found", "is_known", "is_partial", "leader", "passes",
        "returns", "steps", "texts", "use", "watched",
    )  # fmt: skip

    def __init__(self, use: int, name: str) -> None:
        self.use = use
        self.is_known = False
        self.calls = self.steps = self.returns = self.ahead = 0
        self._name = name
        self._sums: Dict[str, float] = {}
        self._batches: Dict[str, Tuple[float, int]] = {}
        self.watched: Deque[GeneratedRows] = deque(maxlen=MAX_WATCHED)
        self.leader: Optional[Place] = None
        self.texts: Optional[Texts] = None
        self.count_anew()

    @property
    def collects(self) -> bool:
        """Whether it is known that what it generates is learned from."""
        return self.use == TRAINS and self.is_known

    def count_anew(self) -> None:
        """Forget what was found."""
        self.found = _Found(self._name)
        self.passes = 0
        self.is_partial = False

    def is_due(self) -> bool:
        """Return whether the ids of the call that has ended are looked for; ever more rarely once that is known."""
        if self.collects or self.ahead >= MAX_AHEAD:
            return False
        return not self.is_known or self.returns > 0 or not self.calls & (self.calls - 1)

    def keep(self, sums: Mapping[str, float], means: Mapping[str, float]) -> None:
        """Keep the figures of a call back."""
        for name, value in sums.items():
            self._sums[name] = self._sums.get(name, 0) + value
        for name, value in means.items():
            before, count = self._batches.get(name, (0.0, 0))
            self._batches[name] = before + value, count + 1

    def take(self) -> Optional[Figures]:
        """Return what was kept back, which then is no longer."""
        sums, self._sums = self._sums, {}
        batches, self._batches = self._batches, {}
        return (sums, {name: total / count for name, (total, count) in batches.items()}) if sums else None


class Generations:
    """The places of one tracker's thread that generate.

    Attributes:
        looks: passes with gradients that are still to be looked at.
    """

    __slots__ = ("_collecting", "_earlier", "_has_trained", "_last", "_places", "_prompts", "_row", "_tracker", "looks")

    def __init__(self, tracker: Any) -> None:
        self._tracker = tracker
        self._places: Dict[int, Place] = {}
        self._row: Optional[DecodedRow] = None  # the last one, whose ids are not watched yet
        self._has_trained = False  # what a place has generated came back
        self._collecting: Optional[Place] = None  # the last one that was taken to collect
        self._last: Optional[Place] = None  # the last one whose ids are watched: what is decoded then is its text
        self._prompts: List[str] = []  # the texts that were tokenized last
        self._earlier: Deque[Tuple[int, Any]] = deque(maxlen=MAX_EARLIER)  # widths of windows, and their numbers
        self.looks = 0

    def begins(self) -> Optional[Place]:
        """Take the begin of a call that generates. Return its place; None if there are too many."""
        tracker = self._tracker
        key = _calling_place()
        place = self._places.get(key)
        steps = tracker.fast_path.steps
        if place is None:
            if len(self._places) >= MAX_PLACES:
                return None
            has_learned = steps > 0 or bool(tracker.stepped)
            name = f"generated ids {len(self._places)}"
            place = self._places[key] = Place(EVALUATES if has_learned else TRAINS, name)
        leader = place.leader if self._collecting is place else self._collecting
        place.leader = leader if leader is not None and leader.steps == steps else None
        if not place.collects:
            if place.leader is not None and place.leader.collects:
                self._trains(place)
            else:
                self._judge(place, steps)
        if place.use == TRAINS:
            self._collecting = place
        place.calls += 1
        place.steps = steps
        return place

    def ends(self, place: Place, new_ids: Callable[[], Any], figures: Optional[Figures]) -> None:
        """Take the end of a call.

        Args:
            new_ids: returns the new ids, a tensor of shape (rows, ids), rows padded at their end.
            figures: of the call.
        """
        if figures is not None:
            self.counts(place, figures)
        if place.collects:
            return
        place.steps = self._tracker.fast_path.steps
        if place.is_due():
            self._watch(place, new_ids() if cuda.may_compute() else None)

    def counts(self, place: Optional[Place], figures: Figures) -> None:
        """Take the figures of what was generated at a place; until that is known to be learned from, keep them back."""
        if place is None or place.collects:
            self._tracker.put((AGGREGATE, *figures))
        else:
            place.keep(*figures)

    def decodes(self, row: DecodedRow) -> None:
        """Take a loop of the program's own that may generate."""
        self._row_ends()
        row.place = place = self.begins()
        if place is not None and place.is_due():
            row.keep()

    def is_learned(self, row: DecodedRow) -> bool:
        """Take a loop that does generate. Return whether that is learned from, as far as is known."""
        if row.is_kept:
            self._row = row
            self.looks = MAX_LOOKS
        return row.place is None or row.place.use == TRAINS

    def _row_ends(self) -> None:
        row, self._row = self._row, None
        if row is not None:
            self._watch(row.place, row.new_ids() if cuda.may_compute() else None)
            row.drop()

    def _watch(self, place: Place, ids: Any) -> None:
        if not self._is_readable(ids) or ids.dim() != 2 or ids.shape[1] < MIN_LENGTH:
            if not place.watched:
                self._cannot_tell(place)
            return
        rows = GeneratedRows(ids)
        for width, seen in self._earlier:
            if width == rows.width and rows.is_near(seen):
                rows.forget(seen)
        place.watched.append(rows)
        place.ahead += 1
        self.looks = MAX_LOOKS
        place.texts, self._last = Texts(ids.shape[1]), place

    def decoded(self, ids: Any, made: Any) -> None:
        """Take a text that was made of ids, or texts of rows of them."""
        place = self._last
        if place is not None and place.texts is not None and place.watched:
            for row, text in zip(ids, made) if isinstance(made, list) else [(ids, made)]:
                shape = getattr(row, "shape", None)
                count = shape[-1] if shape else len(row) if isinstance(row, (list, tuple)) else 1
                place.texts.add(text, count, self._prompts)

    def tokenized(self, given: Any, made: Any) -> None:
        """Take what a tokenizer was given, and its `BatchEncoding`."""
        self._prompts = texts = texts_of(given)
        encodings = getattr(made, "encodings", None)  # None: it does not tell where the ids lie in the text
        if not (texts and encodings and len(encodings) == len(texts) and self.looks):
            return
        for place in self._places.values():
            rows = place.texts.ids_in(texts, encodings) if place.watched and place.texts is not None else []
            rows = [row for row in rows if len(row) >= MIN_LENGTH]
            if rows:
                place.watched.append(GeneratedRows(padded_rows(rows)))

    def learns(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> None:
        """Look at the inputs of a pass with gradients for what was generated."""
        if not cuda.may_compute():
            return
        self.looks -= 1
        self._row_ends()
        inputs = self._inputs(args, kwargs)
        seen: Dict[Tuple[int, int], Any] = {}
        for place in [place for place in self._places.values() if place.watched]:
            before, place.ahead = place.found.looks, 0
            for rows in place.watched:
                for ids in inputs:
                    if rows.width <= ids.shape[-1] and rows.is_near(ids):
                        key = rows.width, id(ids)
                        if key not in seen:
                            seen[key] = input_hashes(ids, rows.width)
                        place.found.add(rows.found_in(seen[key]))
                        place.is_partial |= not rows.are_all or ids.numel() > MAX_IDS
            place.passes += place.found.looks > before
            if place.use == TRAINS and split(place.found.value)[0]:
                self._trains(place)
        self._earlier.extend((width, numbers) for (width, _), numbers in seen.items())

    def finish(self) -> None:
        """Put what was kept back, at the end of the program."""
        for place in self._places.values():
            self._judge(place, self._tracker.fast_path.steps)
            if place.use == TRAINS:
                self._put(place)

    def _judge(self, place: Place, steps: int) -> None:
        """Decide what a place is for, by what was learned since its last calls."""
        found = place.found
        if found.read < found.looks:
            found.copy()  # on a device still
            return
        back, begun, told = split(found.value)
        if not found.looks:
            if place.watched and steps > place.steps and not place.is_known:
                self._cannot_tell(place)
        elif back or place.passes >= (MIN_PARTIAL if place.is_partial else 1):
            place.count_anew()
            place.returns = place.returns + 1 if back else 0
            if back and (place.use == TRAINS or self._has_trained or place.returns >= MIN_RETURNS):
                self._trains(place)
            elif not back and (place.leader is None or place.leader.use == EVALUATES):
                # A leader that may collect has to be known first. Where the begins of answers come back, and nothing
                # else does, it learns from parts of them.
                if told and (self._has_trained or not begun):
                    place.use = EVALUATES
                place.is_known = True
        if place.collects:
            place.watched.clear()
            self._put(place)

    def _cannot_tell(self, place: Place) -> None:
        place.use = TRAINS
        self._put(place)

    def _trains(self, place: Place) -> None:
        self._has_trained = place.is_known = True
        place.use = TRAINS
        place.watched.clear()
        place.count_anew()
        self._put(place)
        if not any(one.watched for one in self._places.values()):
            self.looks = 0

    def _put(self, place: Place) -> None:
        figures = place.take()
        if figures is not None:
            self._tracker.put((AGGREGATE, *figures))

    def _inputs(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> List[Any]:
        """Return the tensors of ids among a model's arguments: some are given their targets apart."""
        table = (as_mapping(args[0]) if args else None) or kwargs
        named = [(name, table.get(name)) for name in list(table.keys())[:MAX_ARGUMENTS]]
        given = [*args[:MAX_ARGUMENTS], *(one for name, one in named if not any(word in str(name) for word in NO_IDS))]
        found: Dict[int, Any] = {id(one): one for one in given if self._is_readable(one) and one.dim()}
        return [one for one in found.values() if one.shape[-1] >= MIN_LENGTH][:MAX_INPUTS]

    def _is_readable(self, ids: Any) -> bool:
        torch = sys.modules["torch"]
        if type(ids) is not torch.Tensor or ids.dtype not in (torch.int64, torch.int32) or not ids.numel():
            return False
        return bool(ids.is_cpu or (ids.is_cuda and cuda.is_quiet()))


class Generation:
    """A call that generates, as a context manager: the phase `generation`, or an evaluation."""

    __slots__ = ("_is_counted", "_place", "_section", "_tracker")

    def __init__(self) -> None:
        self._tracker = tracker = own_tracker()
        self._place: Optional[Place] = None
        self._is_counted = tracker is None or not framework.open_evaluations
        # A call inside of a pass is part of that; a framework knows what its own is for.
        is_known = is_open(GENERATION) or tracker is None or tracker.in_forward or tracker.in_backward
        if self._is_counted and not is_known:
            self._place = call_safely(tracker.generations.begins)
        evaluates = self._place is not None and self._place.use == EVALUATES
        self._section = span(EVAL) if evaluates else phase(GENERATION)
        if self._place is not None and not evaluates:
            call_safely(tracker.generates)

    def __enter__(self) -> "Generation":
        self._section.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._section.__exit__(*error)

    def ended(self, new_ids: Callable[[], Any], figures: Optional[Figures]) -> None:
        """Take what the call has generated; see `Generations.ends`."""
        if self._place is not None:
            call_safely(self._tracker.generations.ends, self._place, new_ids, figures)
        elif figures is not None and self._is_counted:
            session.quiet_put()((AGGREGATE, *figures))


def _calling_place() -> int:
    """Return a number for where the program is, by the calls under way; those of a recursion count once."""
    frame: Optional[FrameType] = sys._getframe(1)
    places: Dict[Tuple[str, int], int] = {}
    while frame is not None and len(places) < MAX_FUNCTIONS:
        code = frame.f_code
        places.setdefault((code.co_filename, code.co_firstlineno), frame.f_lasti)
        frame = frame.f_back
    return hash(tuple(places.items()))
