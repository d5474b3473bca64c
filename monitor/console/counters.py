"""Decide which of the numbers in the output is the training's step, and follow it.

Steps are counted by what the program numbers, never by its lines. Several counters may run at once: an outer bar and
an inner one, a bar and lines with numbers, an evaluation's. One is the training's; the others are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from monitor.console.bar_roles import NEARLY_COMPLETE, counts_epochs, names_training
from monitor.console.configuration import is_result
from monitor.console.reading import Reading

MAX_COUNTERS = 200
MIN_READINGS_WITH_METRICS = 3  # of a counter, until it replaces one without metrics
# Steps between two lines, absolute and relative to the previous distance. Beyond both, the digits of two ranks' lines
# may have been joined ("step 5002" and "4992" make 50,024,992); the next line shows whether they were.
MAX_STEP_ADVANCE, MAX_STEP_ADVANCE_RATIO = 10_000, 100

# The fields of the training's counter that a successor needs.
_SAVED_FIELDS = (
    "key",
    "bar",
    "total",
    "base",
    "member",
    "zero",
    "begun",
    "per_epoch",
    "epoch",
    "interval",
    "with_metrics",
    "last",
)


@dataclass(slots=True)
class Counter:
    """One rising number in the output."""

    key: str
    bar: bool
    total: int | None = None
    last: int = 0  # steps done in this round
    base: int = 0  # steps done in earlier rounds
    member: int = 0  # of these, steps of earlier trainings: a sweep counts its epochs anew
    row: int = 0
    zero: bool = False  # its first step is numbered 0
    begun: bool = False  # was read before: a bar drawn at 0 again does not begin then
    per_epoch: bool = False  # starts again in every epoch
    epoch: float | None = None
    interval: int = 0  # steps between its last two readings
    elapsed: float | None = None  # of a bar, as it was last drawn
    with_metrics: int = 0  # readings with metrics
    roles: dict[str, int] = field(default_factory=dict)  # role -> steps done in this round

    @property
    def position(self) -> int:
        """Return the step, counted from the first round."""
        return self.base + self.last

    def done(self, reading: Reading) -> int:
        """Return the steps done by this reading: a bar gives the number done, a line the step that was done."""
        assert reading.step is not None
        done = reading.step + (1 if self.zero and not reading.completed else 0)
        return min(done, self.total) if self.total else done


@dataclass(frozen=True, slots=True)
class Position:
    """The training's position after a reading."""

    index: int  # step, counted from 1 over the whole run
    advance: int = 0  # steps since the previous position
    begins: bool = False  # a bar was drawn at its start: time runs from here
    skipped_over: int = 0  # steps before the first one read
    backfill: int = 0  # of these, the steps that proved to be of this run


@dataclass(slots=True)
class Counters:
    """Follow every counter, and decide which is the training's."""

    main: Counter | None = None
    epochs: int | None = None
    epoch: float | None = None
    planned_epochs: int | None = None  # by a printed configuration
    announced: int | None = None  # a total that a line stated on its own
    inner: bool = False  # the last bar read was not the training's
    _all: dict[str, Counter] = field(default_factory=dict)
    _epoch_bars: set[str] = field(default_factory=set)
    _first: int = 0  # steps before the first reading, not yet known to be of this run
    _epochs_done: int = 0
    _first_epoch: float | None = None  # the first epoch named, while only epochs are numbered
    _leap: int | None = None  # a number far ahead, not confirmed yet
    _late: int = 0  # epochs up to the first, when the next one shows that they are the steps
    _has_epoch_bar: bool = False
    _first_named: float | None = None  # the lowest epoch
    _fractional: bool = False  # epochs are named in parts: `epoch 1.25`
    _epochs_from_zero: bool = False
    _reached_total: bool = False  # a line gave its total as its number: numbers do not end before it

    def add_reading(self, reading: Reading) -> Position | None:
        """Return the training's position by this reading; None where the reading has none."""
        self.inner = False
        epoch_before = self.epoch
        self._set_announced(reading)
        reading = self._as_epoch(reading)
        if reading.step is None or reading.mention:
            return None
        if reading.family == "bar" and (counts_epochs(reading) or reading.counter in self._epoch_bars):
            self._has_epoch_bar = True
            self._set_epochs(reading)
            return None
        counter = self._counter(reading)
        if counter is None:
            return None
        if not self._chosen(counter, reading):
            self.inner = reading.family == "bar"
            counter.last = counter.done(reading)
            return None
        assert self.main is not None
        return self._move(self.main, counter, reading, epoch_before)

    def total(self) -> int | None:
        """Return the steps of the whole run; None where unknown."""
        main = self.main
        if main is None or main.total is None:
            return self.announced
        if not main.per_epoch:
            return None if self._may_restart(main) else main.base + main.total
        epochs = self.all_epochs()
        total = self.announced if epochs is None else main.member + main.total * epochs
        if total is None and epochs is None and self.epoch is None and main.base:
            total = main.base + main.total
        return total if total is None or total >= main.position else None  # what was done contradicts it

    def _may_restart(self, main: Counter) -> bool:
        """Return whether a counter's total may be that of one epoch of several: `Epoch 1/3 ... iter 20/500`.

        It is, once the counter is not where one of the whole run would be in this epoch; `_move` notes that.
        """
        epochs = self.all_epochs()
        if main.bar or main.base or self.epoch is None or epochs is None or epochs < 2:
            return False
        return self._first_named is None or self.epoch == self._first_named

    def _is_of_an_epoch(self, main: Counter) -> bool:
        """Return whether a counter that may restart lies outside of what its epoch is of a whole run."""
        epochs = self.all_epochs()
        if not main.total or epochs is None or self.epoch is None or not self._may_restart(main):
            return False
        number = int(self.epoch) - (0 if self._epochs_from_zero else 1)
        begin, end = (main.total * at / epochs for at in (number, number + 1))
        return not begin - main.interval <= main.last <= end + main.interval

    def all_epochs(self) -> int | None:
        """Return the epochs of the training; None where unknown: `Epoch 0/2` is the first of two or of three."""
        stated, planned = self.epochs, self.planned_epochs
        if stated is None or not self._epochs_from_zero:
            return planned if stated is None and planned is not None and (self.epoch or 0) <= planned else stated
        if self.epoch is not None and self.epoch >= stated:
            return stated + 1
        if planned in (stated, stated + 1):
            return planned
        main = self.main
        counts_alike = main is not None and main.per_epoch and not main.bar and main.zero and bool(main.base)
        return stated if counts_alike and not self._reached_total else None

    def place(self, start: int) -> dict[str, int]:
        """Return the position as it is printed: the steps since the first one of this run, and what else is known.

        It is empty until the second position shows which one the first was.
        """
        main, total = self.main, self.total()
        if main is None or self._first:
            return {}
        place: dict[str, int | None] = {"step": main.position - start}
        place["total"] = None if total is None else total - start
        epoch = None
        if self.epoch is not None and not self._fractional:
            epoch = int(self.epoch) + (1 if self._first_named == 0 else 0)
        if not self.by_epochs:
            place["epoch"], place["epochs"] = epoch, self.all_epochs()
        else:
            place["epoch"], place["epochs"] = main.last, self.all_epochs()
        if main.per_epoch and main.total:
            place["batch"], place["batches"] = main.last, main.total
        return {name: value for name, value in place.items() if value is not None and value > 0}

    def index_of(self, reading: Reading) -> int | None:
        """Return the number, over the whole run, of the step that a reading names; None where it names none."""
        main = self.main
        if reading.step is None or main is None:
            return reading.step
        return main.base + reading.step + (1 if main.zero else 0)

    @property
    def round_done(self) -> bool:
        """Return whether the training's number has reached its total: that of an epoch, or of all."""
        return self.main is not None and bool(self.main.total) and self.main.last == self.main.total

    @property
    def begun(self) -> bool:
        """Return whether the training's bar was drawn at its start, and has not moved."""
        return self.main is not None and self.main.begun and self.main.position == 0

    @property
    def in_first_epoch(self) -> bool:
        """Return whether an epoch was named, and nothing that counts as a step."""
        return self.main is None and self._first_epoch is not None

    @property
    def missing_at_start(self) -> bool:
        """Return whether nothing of the training was read yet."""
        return self.main is None and self.epoch is None

    def at(self, reading: Reading) -> int | None:
        """Return the step that a line's values belong to, where the line does not advance the training."""
        main = self.main
        if main is None:
            first = int(self._first_epoch or 1) if self._first_epoch is not None else None
            return first if reading.step is None or reading.completed else reading.step
        if reading.step is not None and not reading.completed and reading.step <= main.last + 1:
            return main.base + reading.step + (1 if main.zero else 0)
        return main.position

    @property
    def index(self) -> int:
        return self.main.position if self.main is not None else 0

    @property
    def by_epochs(self) -> bool:
        """Return whether the steps are the program's epochs, because nothing finer is numbered."""
        return self.main is not None and self.main.key == "epoch"

    @property
    def finished(self) -> bool:
        total = self.total()
        return total is not None and self.index >= total

    # State for a successor, if the reading process ends before the output

    def saved_state(self, emitted: int) -> dict[str, Any]:
        """Return the state of the count by the steps given out, the last of which is `emitted`."""
        known: dict[str, Any] = {"epochs": self.epochs, "epoch": self.epoch, "main": None}
        if self.main is not None:
            known["main"] = {name: getattr(self.main, name) for name in _SAVED_FIELDS}
            known["main"]["last"] = max(0, emitted - self.main.base)
        return known

    def restore_state(self, known: dict[str, Any]) -> bool:
        """Continue from the state of `memory`. Return whether it has a counter."""
        main = known.get("main")
        self.epochs, self.epoch = known.get("epochs"), known.get("epoch")
        if not isinstance(main, dict):
            return False
        self.main = Counter(**{name: main[name] for name in _SAVED_FIELDS if name in main})
        self._all[self.main.key] = self.main
        return True

    # Epochs

    def _set_announced(self, reading: Reading) -> None:
        if reading.planned_epochs:
            self.planned_epochs = reading.planned_epochs
        if reading.epochs:
            self.epochs = reading.epochs
            self._epochs_from_zero = self._epochs_from_zero or reading.epoch == 0
        if reading.epoch is not None:
            self.epoch = reading.epoch
            first, self._fractional = self._first_named, self._fractional or reading.epoch != int(reading.epoch)
            self._first_named = reading.epoch if first is None else min(first, reading.epoch)
        if reading.total is None or reading.step is not None or reading.family == "bar":
            return
        # Beside results it is a count of what was done: `num_steps: 20000, episode_reward: 12.5`.
        if not any(map(is_result, reading.metrics)):
            self.announced = reading.total

    def _as_epoch(self, reading: Reading) -> Reading:
        """Return the reading with its epoch as its step where a program numbers only epochs, from the second one on."""
        epoch = reading.epoch
        if reading.step is not None or epoch is None or reading.family not in ("epoch", "metrics"):
            return reading
        if self.main is not None and not self.by_epochs:
            return reading
        first = self._first_epoch
        if epoch != int(epoch):
            self._first_epoch = None
            return reading
        if not reading.metrics:
            return reading
        if self.main is None and (first is None or epoch <= first):
            self._first_epoch = epoch
            return reading
        if self.main is None and first is not None:
            self.main = self._all["epoch"] = Counter("epoch", bar=False, total=self.all_epochs())
            self.main.zero = first == 0
            self.main.last = int(first) + (1 if self.main.zero else 0)
            self._late = self.main.last
        return replace(reading, step=int(epoch), total=self.all_epochs(), key="epoch", epoch=None)

    def _set_epochs(self, reading: Reading) -> None:
        self.epochs = reading.total or self.epochs
        done = reading.step or 0
        if done > self._epochs_done:
            self._epochs_done = done
            main = self.main
            if main is not None and main.per_epoch and main.total and main.base < done * main.total:
                self.epoch = float(done) + 1

    # Choosing the counter

    def _counter(self, reading: Reading) -> Counter | None:
        key = reading.counter
        counter = self._all.get(key)
        main = self.main
        if counter is None and main is not None and _is_redrawn(main, reading):
            counter = self._all[key] = main
            main.key = key
        elif counter is main and main is not None and main.key != key and reading.row < main.row:
            counter = None  # a bar above it, which had looked like it
        if counter is None:
            if len(self._all) >= MAX_COUNTERS:
                return None
            counter = self._all[key] = Counter(key, reading.family == "bar")
        if not reading.completed and reading.step == 0:
            counter.zero = True
        if not reading.completed and reading.total and reading.step == reading.total:
            self._reached_total = True
        counter.total = reading.total or counter.total
        counter.row, counter.elapsed = reading.row, reading.elapsed
        counter.per_epoch = counter.per_epoch or reading.per_epoch or (counter.bar and self._has_epoch_bar)
        counter.with_metrics += bool(reading.metrics)
        return counter

    def _chosen(self, counter: Counter, reading: Reading) -> bool:
        """Return whether this counter is the training's, or becomes so now."""
        main = self.main
        if main is None or main is counter:
            if main is None:
                self.main = counter
            return True
        if main.key == "epoch":  # something finer than epochs
            return self._succeed(counter)
        if counter.key == "head" and main.key == "step" and abs(main.last - counter.done(reading)) <= 1:
            return True  # lines that begin with the number that others give as their step
        if main.total is not None and counter.total == main.total and main.bar != counter.bar:
            return True  # a bar and numbered lines that count the same
        if main.bar and not counter.bar and counter.total is None and abs(main.last - counter.done(reading)) <= 1:
            return True
        if counter.bar and main.bar and main.last == 0 and counter.row > main.row and not names_training(reading):
            self._epoch_bars.add(main.key)
            self.epochs, counter.per_epoch = main.total or self.epochs, True
            self.main = counter
            return True
        if main.total is not None and main.last >= main.total:
            if counter.bar and main.bar and counter.row < main.row and counter.done(reading) == counter.last + 1:
                self._epoch_bars.add(counter.key)  # a bar above the training's moves where that is full
                self.epochs, main.per_epoch = counter.total or self.epochs, True
                return False
            return self._succeed(counter) if _continues(main, counter) else False
        if counter.with_metrics >= MIN_READINGS_WITH_METRICS and not main.with_metrics and not _is_inner(main, counter):
            return self._replace(counter, reading)
        return False

    def _succeed(self, counter: Counter) -> bool:
        assert self.main is not None
        counter.base, counter.last = self.main.position, 0
        self.main = counter
        return True

    def _replace(self, counter: Counter, reading: Reading) -> bool:
        """Replace the training's counter by one that has run beside it, from that one's own number."""
        self._succeed(counter)
        if counter.done(reading) >= counter.base:
            counter.base, counter.last = 0, counter.base
        return True

    # Advancing the counter

    def _move(self, main: Counter, read: Counter, reading: Reading, epoch_before: float | None) -> Position:
        """Advance the training's counter by a reading of it or of an equivalent counter."""
        done = read.done(reading)
        first = main.last == 0 and main.base == 0 and main.interval == 0
        if first and not reading.completed and done > 1:
            main.last, main.interval, self._first = done, 0, done - 1
            main.epoch = self.epoch
            return Position(done, 1, skipped_over=done - 1)
        if done < main.last or (done == main.total and self._is_full_again(main)):
            return self._fall(main, read, reading, done, epoch_before)
        if self._leaps(main, read, reading, done):
            return Position(main.position)
        if reading.role is not None and len(main.roles) < MAX_COUNTERS:
            main.roles[reading.role] = done
        advance = done - main.last
        main.last, main.epoch = done, self.epoch
        main.per_epoch = main.per_epoch or self._is_of_an_epoch(main)
        backfill = 0
        if advance:
            main.interval = advance
            if self._first:
                backfill = self._first if self._first < advance + 1 else 0
                self._first = 0
        begins = reading.completed and done == 0 and not main.begun
        main.begun = True
        late, self._late = self._late, 0
        return Position(main.base + done, advance, begins, late, min(late, 1) or backfill)

    def _leaps(self, main: Counter, read: Counter, reading: Reading, done: int) -> bool:
        """Return whether this number is so far ahead that another one, or a total, must confirm it."""
        before, self._leap = self._leap, None
        if not main.interval or done - main.last <= max(MAX_STEP_ADVANCE, MAX_STEP_ADVANCE_RATIO * main.interval):
            return False
        if read.total is not None and reading.step is not None and reading.step <= read.total:
            return False
        if before is not None and 0 <= done - before <= before - main.last:
            return False
        self._leap = done
        return True

    def _is_full_again(self, main: Counter) -> bool:
        """Return whether a number that is only told when it is full, once per epoch, means another epoch."""
        later = self.epoch is not None and (self.epoch > main.epoch if main.epoch is not None else not main.per_epoch)
        only_full = not self._fractional and (main.interval == main.total or (not main.bar and not main.interval))
        return ((main.bar and main.per_epoch) or only_full) and main.last == main.total and later

    def _fall(self, main: Counter, read: Counter, reading: Reading, done: int, epoch_before: float | None) -> Position:
        """Take a lower number than before: a new round, or a repeated number."""
        role, complete = reading.role, bool(main.total and main.last >= main.total)
        if role is not None and not complete and done > main.roles.get(role, 0):  # one role follows the other
            main.roles[role] = done
            return Position(main.position)
        known = main.epoch if main.epoch is not None else epoch_before
        new_epoch = self.epoch is not None and known is not None and self.epoch > known
        begun = done <= max(1, main.interval) or (reading.completed and 2 * done <= main.last)
        if read is not main or not (new_epoch or begun):
            return Position(main.position)
        main.roles.clear()
        full = main.last
        beyond = main.last + main.interval if not reading.completed else main.last / NEARLY_COMPLETE  # the next line
        if main.total and (new_epoch or beyond >= main.total):
            full = max(full, main.total)  # a smaller total does not reduce the steps done
        advance = full - main.last + done
        main.base += full
        once = complete and self.epochs == 1 and not self._has_epoch_bar
        if self.epoch is not None and known is not None and (self.epoch < known or (once and self.epoch == known)):
            main.member = main.base  # epochs start over: another training
        main.last, main.per_epoch, main.epoch = done, main.per_epoch or new_epoch or reading.completed, self.epoch
        main.interval = max(1, done)
        first, self._first = self._first, 0
        return Position(main.base + done, advance, reading.completed and done == 0, 0, first if first < advance else 0)


def _stem(counter: Counter) -> str:
    return counter.key.rpartition("/")[0]


def _is_redrawn(main: Counter, bar: Reading) -> bool:
    """Return whether a bar that was not drawn before is the training's with other words: `loss: 0.5`, `loss: 1e-05`.

    It has as many steps, goes on from where that one is, and its time does too.
    """
    if bar.family != "bar" or not main.bar or bar.total is None or bar.total != main.total or bar.step is None:
        return False
    return main.last <= bar.step and main.last < main.total and (bar.elapsed or 0.0) >= (main.elapsed or 0.0)


def _is_inner(main: Counter, counter: Counter) -> bool:
    """Return whether a bar is within a step of the training's bar: below it, or shorter while that one is open."""
    if not (counter.bar and main.bar):
        return False
    return counter.row > main.row or bool(main.total and counter.total and counter.total < main.total)


def _continues(over: Counter, counter: Counter) -> bool:
    """Return whether this counter continues where the training's ended: a bar of the next epoch, or a longer one."""
    if not counter.bar or not over.bar:
        return not counter.bar
    longer = counter.total is not None and over.total is not None and counter.total > over.total
    return longer or (_stem(counter) == _stem(over) and _stem(counter) != "bar ")
