"""Readings turned into events: steps, metrics, spans, totals. Pure.

How long a step took is known from the time between two positions, and from nothing else. Where a program tells its
position every ten steps, each of the ten gets a tenth of the time between: their sum is true, their spread unknown.
The first step that is told, and every step of a log without times, has a duration of 0, which means "not known".
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from monitor.console import bars, doubt, memory
from monitor.console.clock import Arrival, Clock
from monitor.console.counters import Counters, Position
from monitor.console.flow import Amount, Flow
from monitor.console.news import News
from monitor.console.reading import MORE_THAN_ALL, Reading
from monitor.console.stretches import Stretches
from trainhooks.events import Event, Facts, Metrics, Note, Number, Phase, Pulse, Step

MAX_GROUP = 4096  # readings of one moment
HOLD = 0.3  # seconds that the newest step waits for what is printed just after it: its phases, its metrics
INSTANT = 1e-6  # seconds; moments that were reckoned differ by less
ROUNDED = 1.05  # a program's own times are rounded


@dataclass(slots=True)
class _Draft:
    """Steps that are known to be done, and not yet how long they took."""

    index: int  # of the last
    count: int
    reading: Reading
    tokens: Amount
    samples: Amount
    phases: Reading | None = None


@dataclass(slots=True)
class Tracker:
    """Takes readings in their order; `drain` gives the events that they make."""

    clock: Clock
    counters: Counters = field(default_factory=Counters)
    steps: int = 0  # events of steps given out
    most: int = 10_000  # told one by one for one reading; of more the count is kept and no more
    news: News = field(default_factory=News)
    _out: list[Event] = field(default_factory=list)
    _held: list[Step] = field(default_factory=list)  # timed, the last one may still get phases
    _drafts: list[_Draft] = field(default_factory=list)  # of one moment
    _moment: float = 0.0
    _ended: float = 0.0  # the end of the newest step whose time is known
    _mark: float | None = None  # up to here the time is told
    _stretches: Stretches = field(default_factory=Stretches)
    _doubts: doubt.Doubts = field(default_factory=doubt.Doubts)
    _busy: float = 0.0  # seconds of spans since the mark
    _tokens: Flow = field(default_factory=lambda: Flow("tokens"))
    _samples: Flow = field(default_factory=lambda: Flow("samples"))
    _waiting: Reading | None = None  # phases that were told before their step
    _phases_first: bool | None = None
    _told_total: int | None = None
    _start_step: int = 0
    _role: str | None = None
    _last_advance: int = 0
    _emitted: int = 0

    def take(self, reading: Reading) -> None:
        """One reading. It is left as it is."""
        reading = replace(reading, metrics=dict(reading.metrics), impossible=list(reading.impossible))
        if reading.family == "phases":
            self._take_phases(reading)
        else:
            self._take(reading)
        for each in reading.impossible:
            self._tell(self.news.refusal(each, self._moment))

    def _take(self, reading: Reading) -> None:
        stretch = bars.span_of(reading) if reading.family == "bar" and not bars.counts_epochs(reading) else None
        if stretch is not None:
            self._take_stretch(stretch, reading)
        elif self.counters.main is not None or self._clear(reading):
            self._follow(reading)

    def _clear(self, reading: Reading) -> bool:
        """Whether it is clear what a reading is about; else it is held back until another one shows it."""
        in_epochs = self.counters.epoch is not None or self.counters.epochs is not None
        verdict = self._doubts.judge(reading, in_epochs)
        if verdict == doubt.HOLD:
            now = self.clock.at(reading, 0)
            bar = self._doubts.hold(now, reading)
            if bar is not None:
                bar.span = self._stretches.take(doubt.UNKNOWN, reading, now) or bar.span
            return False
        if verdict != doubt.PASS:
            self._settle(verdict)
        return True

    def _settle(self, first: int) -> None:
        """Of the bars that were held back, those from `first` on are the training's, the others were preparation."""
        doubts, self._doubts = self._doubts, doubt.Doubts()
        for bar in doubts.bars[:first]:
            span = bar.span or self._stretches.close(bar.key)
            if span is not None:
                span.name = doubt.PREPARATION
                self._spent(span.own or 0.0)
                self._out.append(span)
        for bar in doubts.bars[first:]:
            self._stretches.forget(bar.key)
        clock = self.clock
        for now, place, reading in doubts.frames:
            if place >= first:
                self.clock = Arrival(now)
                self._follow(reading)
        self.clock = clock
        self._spent(doubts.spent)

    def _follow(self, reading: Reading) -> None:
        position = self.counters.take(reading)
        now = self.clock.at(reading, position.advance if position is not None else 0)
        self._close(now)
        moved = position is not None and position.advance > 0
        tokens, samples = self._tokens.take(reading, moved), self._samples.take(reading, moved)
        self._tell_total(now)
        if position is None:
            if self.counters.inner:
                self._stretches.inner(reading, now)
                return
            if any(name.startswith("eval_") for name in reading.metrics):
                self._end_evaluation(now)
            if reading.family == "epoch" and self.counters.main is None and reading.metrics and self._mark is None:
                self._mark = now  # should epochs turn out to be all that is numbered, the next one runs from here
            self._tell_metrics(reading, self.counters.at(reading), now)
            return
        if reading.family == "bar" and self._mark is None and reading.elapsed is not None:
            self._mark, self._busy = now - reading.elapsed, 0.0
        if position.begins and (self._mark is None or now > self._mark):
            self._begin(now, reading)
        if position.advance:
            self._advance(position, reading, now, tokens, samples)
            return
        news = self._tell_metrics(reading, self.counters.at(reading), now)
        if reading.family == "bar" and reading.step == reading.total and any(name.startswith("val_") for name in news):
            self._end_validation(now)
        self._complete(position.index, reading, tokens, samples)

    def _begin(self, now: float, reading: Reading) -> None:
        """A bar was drawn at its begin: what went before belongs to no step."""
        self._close(float("inf"))
        self._mark = max(now - (reading.elapsed or 0.0), self._mark or 0.0)
        self._busy = 0.0

    # Steps

    def _advance(self, position: Position, reading: Reading, now: float, tokens: Amount, samples: Amount) -> None:
        if self.counters.by_epochs:
            self._note("the program numbers its epochs and nothing finer: a step here is an epoch")
        if position.skipped_over:
            self._start(position.skipped_over, now)
        if position.backfill:
            self._backfill(position, now)
        for span in self._stretches.end_quiet(now, 0.0):
            self._spent(span.own or 0.0)
            self._out.append(span)
        draft = _Draft(position.index, position.advance, reading, tokens, samples)
        if self._waiting is not None:
            draft.phases, self._waiting = self._waiting, None
        self._drafts.append(draft)
        self._moment, self._last_advance = now, position.advance
        self._role = reading.role or self._role
        if len(self._drafts) >= MAX_GROUP:
            self._close(float("inf"))

    def _complete(self, index: int, told: Reading, tokens: Amount, samples: Amount) -> None:
        """A second line about the newest step: a bar had moved on, and now its figures come."""
        if self._drafts and self._drafts[-1].index == index:
            draft = self._drafts[-1]
            draft.tokens = tokens if draft.tokens == Amount() else draft.tokens
            draft.samples = samples if draft.samples == Amount() else draft.samples
            if not draft.reading.phases and draft.reading.seconds is None:
                draft.reading.phases, draft.reading.seconds = told.phases, told.seconds
        elif self._held and self._held[-1].index == index:
            step = self._held[-1]
            step.tokens = tokens.each if step.tokens is None else step.tokens
            step.samples = samples.each if step.samples is None else step.samples
            if told.phases and not step.phases:
                self._lay(step, told)

    def _start(self, steps: int, now: float) -> None:
        self._start_step = steps
        self._out.append(Facts("", 0, now, start_step=steps))

    def _backfill(self, position: Position, now: float) -> None:
        """The second position shows that the steps before the first belong to this run: it tells each so many."""
        steps = position.backfill
        if steps > self.most:
            return
        self._start(max(0, self._start_step - steps), now)
        for index in range(self._start_step + 1, self._start_step + steps + 1):
            self._held.append(Step("", 0, self._mark or now, index, self._mark or now))

    def _close(self, now: float) -> None:
        """Give the steps of the last moment their times, now that it is past."""
        if not self._drafts or now <= self._moment:
            return
        begin = self._mark
        gap = max(0.0, self._moment - begin - self._busy) if begin is not None else 0.0
        if gap == 0.0 and begin is not None and now != float("inf"):
            self._moment = now  # a clock of whole seconds: these steps share the time to the next one
            return
        drafts, self._drafts = self._drafts, []
        count = sum(draft.count for draft in drafts)
        at = self._moment - gap
        each = gap / count
        for draft in drafts:
            self._make(draft, at, each)
            at += draft.count * each
        self._mark, self._busy = self._moment, 0.0
        self._stretches.claimed = max(self._stretches.claimed, self._moment)

    def _make(self, draft: _Draft, at: float, each: float) -> None:
        """The steps of one draft, from `at` on, `each` so long."""
        count = draft.count
        if count > self.most:
            self._note("steps come faster than they can be listed: their number is right, the speed shown is too low")
            self._start(self._start_step + count - self.most, self._moment)
            at += (count - self.most) * each
            count = self.most
        reading = draft.reading
        for number in range(count):
            end = at + (number + 1) * each if each else self._moment
            step = Step("", 0, self._moment, draft.index - count + 1 + number, end - each, each)
            step.tokens = draft.tokens.share(draft.count, each * draft.count)
            step.samples = draft.samples.share(draft.count, each * draft.count)
            step.role, step.epoch = reading.role, _epoch(reading)
            self._held.append(step)
        last = self._held[-1]
        if reading.reason is not None:
            last.status, last.reason = "skipped", reading.reason
        own = reading.seconds
        if own is not None and count == 1 and own <= (each * ROUNDED if each else self._moment - self._ended):
            last.duration = min(own, each) if each else own
            last.start = self._moment - last.duration if not each else end - last.duration
        last.metrics = self.news.metrics(reading.metrics, last.index)
        if reading.phases:
            self._lay(last, reading)
        if draft.phases is not None:
            self._lay(last, draft.phases)
        if last.duration:
            self._ended = max(self._ended, last.start + last.duration)

    # Phases

    def _take_phases(self, told: Reading) -> None:
        """Where the time of a step went: of the step just told, or of the next one, whichever the program means."""
        now = self.clock.at(told, 0)
        if self._phases_first is None:
            self._phases_first = self.counters.index == 0
        if self._drafts and told.block:
            self._moment = max(self._moment, now)  # the clock of a log may have moved by this block's own seconds
        self._close(now)
        last = self._held[-1] if self._held else None
        if told.shares > MORE_THAN_ALL:
            self._note(
                f"the program's own breakdown of its time adds up to {told.shares:.0f} %", "inconsistent-console"
            )
            self._tell_seconds(told, now)
        elif self._drafts and self._drafts[-1].phases is None and not (self._phases_first and told.block):
            self._drafts[-1].phases = told
        elif not self._drafts and last is not None and not last.phases and not (self._phases_first and told.block):
            self._lay(last, told, now)
        elif told.block:
            self._waiting = told
        else:
            self._tell_seconds(told, now)

    def _lay(self, step: Step, told: Reading, now: float | None = None) -> None:
        """Give a step its phases, where they fit into it."""
        if told.block and told.seconds is not None:
            end = max(step.t, now or step.t)
            if step.duration == 0.0 and told.seconds <= end - self._ended:
                step.t, step.start, step.duration = end, end - told.seconds, told.seconds
                self._mark = max(self._mark or 0.0, end)
                self._ended = max(self._ended, end)
            elif step.duration > 0.0 and told.seconds <= step.duration * ROUNDED:
                shorter = min(told.seconds, step.duration)
                step.start, step.duration = step.start + step.duration - shorter, shorter
        whole = sum(told.phases.values())
        if step.duration and whole <= step.duration * ROUNDED:
            phases: list[Phase] = [(name, seconds, "host", 1) for name, seconds in told.phases.items()]
            step.phases = step.phases + phases
        elif step.duration and told.block:
            text = f"the phases of step {step.index} add up to {whole:.1f} s, and it took {step.duration:.1f} s"
            self._note(text, "inconsistent-console")
        else:
            self._tell_seconds(told, now or step.t)

    def _tell_seconds(self, told: Reading, now: float) -> None:
        """Times that fit no step are shown as the program gives them."""
        told.metrics = {f"{name}_seconds": seconds for name, seconds in told.phases.items()}
        self._tell_metrics(told, self.counters.index or None, now)

    # What lies beside the steps

    def _take_stretch(self, name: str, bar: Reading) -> None:
        now = self.clock.at(bar, 0)
        self._close(now)
        span = self._stretches.take(name, bar, now)
        if span is not None:
            self._spent(span.own or 0.0)
            self._doubts.spent += span.own or 0.0
            self._out.append(span)

    def _end_evaluation(self, now: float) -> None:
        """Results of an evaluation: the bar without a name that ran beside the training's just now was that."""
        self._close(now)
        span = self._stretches.evaluation(self._mark)
        if span is not None:
            self._spent(span.own or 0.0)
            self._out.append(span)

    def _end_validation(self, now: float) -> None:
        """A full bar was drawn once more with results, as Keras does: it has validated since its last batch."""
        if self._mark is None or not self._ended or self._ended < self._mark - INSTANT:
            return  # when its last batch ended is not known
        span = self._stretches.since(self._mark, now)
        if span is not None:
            self._spent(span.own or 0.0)
            self._out.append(span)

    def _spent(self, seconds: float) -> None:
        self._busy += seconds

    def _tell_total(self, now: float) -> None:
        total = self.counters.total()
        if total is not None and total != self._told_total:
            self._told_total = total
            self._out.append(Facts("", 0, now, total_steps=total))

    def _tell_metrics(self, reading: Reading, at: int | None, now: float) -> dict[str, Number]:
        """Metrics without a step of their own: to the newest step, if it has not been given out; what is news."""
        values = reading.metrics
        if reading.role and reading.role != self._role_of_newest():
            values = {f"{reading.role}/{name}": value for name, value in values.items()}
        if self._drafts and self._drafts[-1].index == at:
            self._drafts[-1].reading.metrics.update(values)
            return {}
        values = self.news.metrics(values, at or 0)
        if values and self._held and self._held[-1].index == at:
            self._held[-1].metrics.update(values)
        elif values:
            self._out.append(Metrics("", 0, now, values, at))
        return values

    def _role_of_newest(self) -> str | None:
        if self._drafts:
            return self._drafts[-1].reading.role
        return self._held[-1].role if self._held else None

    def _note(self, text: str, code: str | None = None) -> None:
        self._tell(self.news.note(text, self._moment, code))

    def _tell(self, note: Note | None) -> None:
        if note is not None:
            self._out.append(note)

    # What comes out

    def drain(self, now: float | None = None, last: bool = False) -> list[Event]:
        """The events that are ready.

        Args:
            now: the moment, where the output is alive; what was read by then has its times.
            last: nothing more will come.
        """
        if self._doubts.bars and (last or (now is not None and self._doubts.overdue(now))):
            self._settle(self._doubts.likely())
        if now is not None or last:
            self._close(float("inf"))
            for span in self._stretches.end_quiet(now or 0.0, 0.0 if last else 60.0):
                self._spent(span.own or 0.0)
                self._out.append(span)
        keep = 0 if last or (self._held and now is not None and now - self._held[-1].t > HOLD) else 1
        ready = self._held[: len(self._held) - keep]
        del self._held[: len(self._held) - keep]
        self.steps += len(ready)
        if ready:
            self._emitted = ready[-1].index
        out, self._out = [*self._out, *ready], []
        return out

    # What a successor has to know

    def memory(self) -> dict[str, Any]:
        """Where the counting stands by the steps given out, for whoever reads on after this process."""
        return memory.remember(self.counters, self._emitted)

    def recall(self, known: dict[str, Any]) -> None:
        """Go on counting where another process came to; the first step from here on has no known duration."""
        if memory.recall(self.counters, known):
            self._told_total = self.counters.total()
            self._emitted = self.counters.index

    def pulse(self, now: float) -> Pulse | None:
        """What is open now, as far as the output tells; None where it tells nothing."""
        spans = self._stretches.open(now)
        if self._mark is None or self._last_advance != 1 or self.counters.finished:
            return Pulse("", 0, now, spans=spans) if spans else None
        return Pulse("", 0, now, self.counters.index + 1, max(0.0, now - self._mark - self._busy), spans=spans)


def _epoch(reading: Reading) -> Number | None:
    if reading.epoch is None:
        return None
    return int(reading.epoch) if reading.epoch == int(reading.epoch) else reading.epoch
