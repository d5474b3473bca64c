"""Which of the numbers in the output is the training's own step, and how far it has come. Pure.

Steps are counted by what the program numbers, never by its lines. Several counters may run at once: an outer bar and
an inner one, a bar and lines with numbers, an evaluation's. One is the training's; the others are passed over.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from monitor.console import bars
from monitor.console.reading import Reading

MAX_COUNTERS = 200
CLEAR = 3  # times that a counter brings metrics, where the training's has brought none, until it takes over
# Steps from one line to the next, and times as many as from the one before: the digits of two ranks' lines may have run
# together ("step 5002" and "4992" make 50,024,992). The next line shows whether they did.
LEAP, LEAP_TIMES = 10_000, 100
NEARLY = 0.9  # a bar that was cleared this close to its end had reached it: tqdm leaves its last frames out


@dataclass(slots=True)
class Counter:
    """One number that rises."""

    key: str
    bar: bool
    total: int | None = None
    last: int = 0  # how many are done, in this round
    base: int = 0  # done in rounds before
    row: int = 0
    zero: bool = False  # its first one is called 0
    begun: bool = False  # has been read before: a bar that is drawn at 0 once more does not begin then
    per_epoch: bool = False  # begins again in each epoch
    epoch: float | None = None
    interval: int = 0  # how far it went last time
    telling: int = 0  # so many of its readings brought metrics
    roles: dict[str, int] = field(default_factory=dict)  # how far each role is in this round


@dataclass(frozen=True, slots=True)
class Position:
    """Where the training stands after a reading."""

    index: int  # the step, counted from 1 over the whole run
    advance: int = 0  # so many more than before
    begins: bool = False  # a bar has been drawn at its begin: time runs from here
    skipped_over: int = 0  # steps before the first one read, of which nothing is known yet
    backfill: int = 0  # of these, so many turn out to have been done in this run


@dataclass(slots=True)
class Counters:
    """Follows every counter and knows which is the training's."""

    main: Counter | None = None
    epochs: int | None = None
    epoch: float | None = None
    announced: int | None = None  # a total that a line by itself told
    inner: bool = False  # the last bar read was none of the training's
    _all: dict[str, Counter] = field(default_factory=dict)
    _epoch_bars: set[str] = field(default_factory=set)
    _first: int = 0  # steps before the first reading, unexplained so far
    _epochs_done: int = 0
    _waiting: float | None = None  # an epoch that was told, while nothing finer is
    _leapt: int | None = None  # where a leap led to that nothing has confirmed yet
    _late: int = 0  # epochs up to that one, when the next shows that they are the steps
    _has_epoch_bar: bool = False

    def take(self, reading: Reading) -> Position | None:
        """The training's position by this reading; None where it is not about that."""
        self.inner = False
        epoch_before = self.epoch
        self._note(reading)
        reading = self._as_epoch(reading)
        if reading.step is None or reading.mention:
            return None
        if reading.family == "bar" and (bars.counts_epochs(reading) or full_key(reading) in self._epoch_bars):
            self._has_epoch_bar = True
            self._take_epochs(reading)
            return None
        counter = self._counter(reading)
        if counter is None:
            return None
        if not self._chosen(counter, reading):
            self.inner = reading.family == "bar"
            counter.last = _done(counter, reading)
            return None
        assert self.main is not None
        return self._move(self.main, counter, reading, epoch_before)

    def total(self) -> int | None:
        """The steps of the whole run, as far as they are told."""
        main = self.main
        if main is None or main.total is None:
            return self.announced
        if main.per_epoch:
            if self.epochs:
                return main.total * self.epochs
            return self.announced if self.epoch is not None else (main.base + main.total if main.base else None)
        return main.base + main.total

    def at(self, reading: Reading) -> int | None:
        """The step that a line's figures belong to, where the line does not move the training on."""
        main = self.main
        if main is None:
            waiting = int(self._waiting or 1) if self._waiting is not None else None
            return waiting if reading.step is None or reading.completed else reading.step
        index = main.base + main.last
        if reading.step is not None and not reading.completed and reading.step <= main.last + 1:
            return main.base + reading.step + (1 if main.zero else 0)
        return index

    @property
    def index(self) -> int:
        return self.main.base + self.main.last if self.main is not None else 0

    @property
    def by_epochs(self) -> bool:
        """Whether the steps are the program's epochs, for want of anything finer."""
        return self.main is not None and self.main.key == "epoch"

    @property
    def finished(self) -> bool:
        total = self.total()
        return total is not None and self.index >= total

    def resume(self, main: Counter) -> None:
        """Go on with a counter that was followed before."""
        self.main = self._all[main.key] = main

    # Epochs

    def _note(self, reading: Reading) -> None:
        if reading.epochs:
            self.epochs = reading.epochs
        if reading.epoch is not None:
            self.epoch = reading.epoch
        if reading.total is not None and reading.step is None and reading.family != "bar":
            self.announced = reading.total

    def _as_epoch(self, reading: Reading) -> Reading:
        """Where a program numbers nothing but its epochs, these are its steps: from the second one on."""
        epoch = reading.epoch
        if reading.step is not None or epoch is None or reading.family not in ("epoch", "metrics"):
            return reading
        if self.main is not None and not self.by_epochs:
            return reading
        if not reading.metrics or epoch != int(epoch):
            self._waiting = None if epoch != int(epoch) else self._waiting
            return reading
        if self.main is None and (self._waiting is None or epoch <= self._waiting):
            self._waiting = epoch if self._waiting is None else min(epoch, self._waiting)
            return reading
        if self.main is None and self._waiting is not None:
            self.main = self._all["epoch"] = Counter("epoch", bar=False, total=reading.epochs)
            self.main.zero = self._waiting == 0
            self.main.last = int(self._waiting) + (1 if self.main.zero else 0)
            self._late = self.main.last
        return replace(reading, step=int(epoch), total=reading.epochs, key="epoch", epoch=None)

    def _take_epochs(self, reading: Reading) -> None:
        self.epochs = reading.total or self.epochs
        done = reading.step or 0
        if done > self._epochs_done:
            self._epochs_done = done
            main = self.main
            if main is not None and main.per_epoch and main.total and main.base < done * main.total:
                self.epoch = float(done) + 1

    # The choice

    def _counter(self, reading: Reading) -> Counter | None:
        key = full_key(reading)
        counter = self._all.get(key)
        if counter is None:
            if len(self._all) >= MAX_COUNTERS:
                return None
            counter = self._all[key] = Counter(key, reading.family == "bar")
        if not reading.completed and reading.step == 0:
            counter.zero = True
        counter.total = reading.total or counter.total
        counter.row = reading.row
        counter.per_epoch = counter.per_epoch or reading.per_epoch or (counter.bar and self._has_epoch_bar)
        counter.telling += bool(reading.metrics)
        return counter

    def _chosen(self, counter: Counter, reading: Reading) -> bool:
        """Whether this counter is the training's, or becomes so now."""
        main = self.main
        if main is None or main is counter:
            if main is None:
                self.main = counter
            return True
        if main.key == "epoch":  # something finer than epochs
            return self._succeed(counter)
        if main.total is not None and counter.total == main.total and main.bar != counter.bar:
            return True  # a bar and numbered lines that count the same
        if main.bar and not counter.bar and counter.total is None and abs(main.last - _done(counter, reading)) <= 1:
            return True
        if counter.bar and main.bar and main.last == 0 and counter.row > main.row and not bars.says_training(reading):
            self._epoch_bars.add(main.key)
            self.epochs, counter.per_epoch = main.total or self.epochs, True
            self.main = counter
            return True
        if main.total is not None and main.last >= main.total:
            return self._succeed(counter) if _goes_on(main, counter) else False
        if counter.telling >= CLEAR and not main.telling and not _is_inner(main, counter):
            return self._replace(counter, reading)
        return False

    def _succeed(self, counter: Counter) -> bool:
        assert self.main is not None
        counter.base, counter.last = self.main.base + self.main.last, 0
        self.main = counter
        return True

    def _replace(self, counter: Counter, reading: Reading) -> bool:
        """Follow a counter that has run beside the training's for a while: it goes on from its own number."""
        self._succeed(counter)
        if _done(counter, reading) >= counter.base:
            counter.base, counter.last = 0, counter.base
        return True

    # The move

    def _move(self, main: Counter, told: Counter, reading: Reading, epoch_before: float | None) -> Position:
        done = _done(told, reading)
        first = main.last == 0 and main.base == 0 and main.interval == 0
        if first and not reading.completed and done > 1:
            main.last, main.interval, self._first = done, 0, done - 1
            main.epoch = self.epoch
            return Position(done, 1, skipped_over=done - 1)
        if done < main.last or (done == main.total and self._is_full_again(main)):
            return self._fallen(main, told, reading, done, epoch_before)
        if self._leaps(main, told, reading, done):
            return Position(main.base + main.last)
        if reading.role is not None and len(main.roles) < MAX_COUNTERS:
            main.roles[reading.role] = done
        advance = done - main.last
        main.last, main.epoch = done, self.epoch
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

    def _leaps(self, main: Counter, told: Counter, reading: Reading, done: int) -> bool:
        """Whether this number lies so far ahead that another one has to confirm it: a total does so, too."""
        before, self._leapt = self._leapt, None
        if not main.interval or done - main.last <= max(LEAP, LEAP_TIMES * main.interval):
            return False
        if told.total is not None and reading.step is not None and reading.step <= told.total:
            return False
        if before is not None and 0 <= done - before <= before - main.last:
            return False
        self._leapt = done
        return True

    def _is_full_again(self, main: Counter) -> bool:
        """Whether a bar that is only drawn full, once an epoch, stands for another epoch."""
        later = self.epoch is not None and main.epoch is not None and self.epoch > main.epoch
        return main.bar and main.per_epoch and main.last == main.total and later

    def _fallen(
        self, main: Counter, told: Counter, reading: Reading, done: int, epoch_before: float | None
    ) -> Position:
        """A lower number than before: a new round, or a look back."""
        behind = reading.role is not None and not (main.total and main.last >= main.total)
        if behind and done > main.roles.get(reading.role or "", 0):  # one role follows the other
            main.roles[reading.role or ""] = done
            return Position(main.base + main.last)
        known = main.epoch if main.epoch is not None else epoch_before
        new_epoch = self.epoch is not None and known is not None and self.epoch > known
        begun = done <= max(1, main.interval) or (reading.completed and 2 * done <= main.last)
        if told is not main or not (new_epoch or begun):
            return Position(main.base + main.last)
        main.roles.clear()
        full = main.last
        if main.total and (new_epoch or (reading.completed and main.last >= NEARLY * main.total)):
            full = main.total
        advance = full - main.last + done
        main.base += full
        main.last, main.per_epoch, main.epoch = done, main.per_epoch or new_epoch or reading.completed, self.epoch
        main.interval = max(1, done)
        self._first = 0
        return Position(main.base + done, advance, reading.completed and done == 0)


def _done(counter: Counter, reading: Reading) -> int:
    """How many are done by this reading: a bar says so, a line names the one that was done."""
    assert reading.step is not None
    done = reading.step + (1 if counter.zero and not reading.completed else 0)
    return min(done, counter.total) if counter.total else done


def full_key(reading: Reading) -> str:
    if reading.family != "bar":
        return reading.key or "step"
    return f"{reading.key}/{reading.total}" if reading.total is not None else reading.key


def _stem(counter: Counter) -> str:
    return counter.key.rpartition("/")[0]


def _is_inner(main: Counter, counter: Counter) -> bool:
    """Whether a bar is drawn within a step of the training's: below it, or shorter while that one has not ended."""
    if not (counter.bar and main.bar):
        return False
    return counter.row > main.row or bool(main.total and counter.total and counter.total < main.total)


def _goes_on(over: Counter, counter: Counter) -> bool:
    """Whether this counter goes on where the training's has come to its end: a bar of the next epoch, a longer one."""
    if not counter.bar or not over.bar:
        return not counter.bar
    longer = counter.total is not None and over.total is not None and counter.total > over.total
    return longer or (_stem(counter) == _stem(over) and _stem(counter) != "bar ")
