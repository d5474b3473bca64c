"""Turn readings into events: steps, metrics, spans, totals.

How long a step took is known from the time between two positions, and from nothing else. Where a program prints its
position every ten steps, each of the ten gets a tenth of the time between: their sum is right, their spread unknown.
The duration of the first step that is reported is unknown, and of every step in a log without times.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from monitor.console import bar_roles, bar_spans
from monitor.console.amounts import Amount, AmountTracker
from monitor.console.bar_roles import Pending, UnlabeledBars
from monitor.console.bar_spans import BarSpans
from monitor.console.configuration import only_arguments
from monitor.console.counters import Counters, Position
from monitor.console.drafts import Draft, HeldStep, durations, epoch_of, phases_together
from monitor.console.epoch_steps import EpochSteps, set_first_time
from monitor.console.line_times import ArrivalClock, Clock
from monitor.console.reading import MAX_PERCENT_SUM, Reading
from monitor.console.reported import BY_EPOCHS, Reported
from trainhooks.protocol.events import Event, Facts, Metrics, Note, Pulse, Span, Step
from trainhooks.protocol.limits import Number
from trainhooks.protocol.vocabulary import SCALER_OVERFLOW

EMITTED_AT = "emitted_at"  # in what is saved: when the last step was printed
MAX_GROUP = 4096  # readings of one moment
POSITION_SECONDS = 1.0  # between two reports of the printed position
HOLD_SECONDS = 0.3  # seconds that the newest step waits for its phases and metrics
SAME_MOMENT_SECONDS = 1e-6  # seconds; computed moments that are equal differ by less
_OF_EVALUATION = ("val_", "eval_", "test_")  # begins of names
MAX_ROUNDED_RATIO = 1.05  # a program's own times are rounded: phases may exceed their step by this ratio


@dataclass(slots=True)
class Tracker:
    """Take readings in their order; `drain` returns the events that they make."""

    clock: Clock
    counters: Counters = field(default_factory=Counters)
    steps: int = 0  # events of steps returned so far
    most: int = 10_000  # steps reported one by one for one reading; beyond that only their number
    reported: Reported = field(default_factory=Reported)
    _out: list[Event] = field(default_factory=list)
    _held: list[HeldStep] = field(default_factory=list)
    _newest: int = 1  # of these, the last ones that came with one line
    _drafts: list[Draft] = field(default_factory=list)  # of one moment
    _moment: float = 0.0
    _ended: float = 0.0  # the end of the newest step whose time is known
    _mark: float | None = None  # time up to here is attributed
    _spans: BarSpans = field(default_factory=BarSpans)
    _unlabeled: UnlabeledBars = field(default_factory=UnlabeledBars)
    _busy: float = 0.0  # seconds of spans since the mark
    _tokens: AmountTracker = field(default_factory=lambda: AmountTracker("tokens"))
    _samples: AmountTracker = field(default_factory=lambda: AmountTracker("samples"))
    _skipped: int = 0  # steps that a line told of without a number; they are the next ones
    _epochs: EpochSteps = field(default_factory=EpochSteps)
    _waiting: Reading | None = None  # phases that were printed before their step
    _phases_first: bool | None = None
    _reported_total: int | None = None
    _start_step: int = 0
    _before: int = 0  # steps before the first one of this run; `_start_step` has those that were not listed, too
    _last_advance: int = 0
    _emitted: int = 0  # index of the last step that was returned
    _emitted_at: float | None = None  # and the moment of its line
    _placed: float | None = None  # when the position was last reported
    _place: dict[str, int] = field(default_factory=dict)  # as it was reported
    _reached: float = 0.0  # when the newest position was read

    def add_reading(self, reading: Reading) -> None:
        """Take one reading without changing it."""
        reading = replace(reading, metrics=dict(reading.metrics), impossible=list(reading.impossible))
        if reading.family == "phases":
            self._add_printed_phases(reading)
        elif reading.family == "span":
            now = self.clock.at(reading, 0)
            self._close(now)
            self._append_span(self._spans.timed(reading.key or "", reading.seconds or 0.0, now))
        else:
            self._add_reading(reading)
        for value in reading.impossible:
            self._append_note(self.reported.refusal(value, self._moment))

    def _add_reading(self, reading: Reading) -> None:
        is_bar = reading.family == "bar" and not bar_roles.counts_epochs(reading)
        span_name = bar_roles.span_of(reading) if is_bar else None
        if span_name is not None:
            self._add_bar_frame(span_name, reading)
        elif self.counters.main is not None or self._is_clear(reading):
            self._follow(reading)

    def _is_clear(self, reading: Reading) -> bool:
        """Return whether the meaning of a reading is clear; else hold it back until another one shows it."""
        in_epochs = self.counters.epoch is not None or self.counters.epochs is not None
        verdict = self._unlabeled.judge(reading, in_epochs)
        if verdict is Pending.HELD:
            now = self.clock.at(reading, 0)
            bar = self._unlabeled.hold(now, reading)
            if bar is not None:
                bar.span = self._spans.add_frame(bar_roles.UNLABELED_NAME, reading, now) or bar.span
            return False
        if verdict is not Pending.UNRELATED:
            self._settle(verdict)
        return True

    def _settle(self, first: int) -> None:
        """Follow the bars that were held back from the index `first` on; those before it were preparation."""
        unlabeled, self._unlabeled = self._unlabeled, UnlabeledBars()
        for bar in unlabeled.bars[:first]:
            span = bar.span or self._spans.close(bar.key)
            if span is not None:
                span.name = bar_roles.PREPARATION
            self._append_span(span)
        for bar in unlabeled.bars[first:]:
            self._spans.forget(bar.key)
        clock = self.clock
        for frame in unlabeled.frames:
            if frame.bar is None or frame.bar >= first:
                self.clock = ArrivalClock(frame.moment)
                self._follow(frame.reading)
                self._append_place(frame.moment, False)
        self.clock = clock
        self._busy += unlabeled.spent

    def _follow(self, reading: Reading) -> None:
        if reading.family == "skip" and reading.step is None:
            self._skipped += reading.skipped
            return
        position = self.counters.add_reading(reading)
        self._epochs.set_own_time(reading)
        is_first_epoch = position is None and self.counters.in_first_epoch and bool(reading.metrics)
        now = self.clock.at(reading, position.advance if position is not None else int(is_first_epoch))
        self._close(now)
        moved = position is not None and position.advance > 0
        tokens, samples = self._tokens.add_reading(reading, moved), self._samples.add_reading(reading, moved)
        self._append_total(now)
        if position is None:
            if is_first_epoch and self._mark is None:
                self._mark = now  # if only epochs are numbered, the next one runs from here
                self._epochs.hold(reading, tokens, samples)
            self._add_other_reading(reading, now)
            return
        if reading.family == "bar" and self._mark is None and reading.elapsed is not None:
            self._mark, self._busy = now - reading.elapsed, 0.0
        if position.begins and (self._mark is None or now > self._mark):
            self._begin(now, reading)
        if position.advance:
            self._reached = now
            self._advance(position, reading, now, tokens, samples)
            return
        new = self._append_metrics(reading, self.counters.at(reading), now)
        if reading.family == "bar" and reading.step == reading.total and any(name.startswith("val_") for name in new):
            self._end_validation(now)
        self._complete(position.index, reading, tokens, samples)

    def _add_other_reading(self, reading: Reading, now: float) -> None:
        """Take a reading that is not about the training's position."""
        if self.counters.inner:
            self._spans.add_inner_frame(reading, now)
            return
        if any(name.startswith("eval_") for name in reading.metrics):
            self._end_evaluation(now)
        if self.counters.round_done and any(name.startswith(_OF_EVALUATION) for name in reading.metrics):
            self._close(now)
            self._end_validation(now)
        if self.counters.missing_at_start and only_arguments(reading):
            return
        self._append_metrics(reading, self.counters.at(reading), now)

    def _begin(self, now: float, reading: Reading) -> None:
        """Record that a bar was drawn at its start: earlier time belongs to no step."""
        self._close(float("inf"))
        self._mark = max(now - (reading.elapsed or 0.0), self._mark or 0.0)
        self._busy = 0.0

    # Steps

    def _advance(self, position: Position, reading: Reading, now: float, tokens: Amount, samples: Amount) -> None:
        if self.counters.by_epochs:
            self._note(BY_EPOCHS)
        else:
            self._drop_first_epoch(now)
        if position.skipped_over:
            self._before = position.skipped_over
            self._append_start(position.skipped_over, now)
        if position.backfill:
            self._backfill(position.backfill, now)
        for span in self._spans.end_quiet(now, 0.0):
            self._append_span(span)
        phases, self._waiting = self._waiting, None
        if self._skipped:
            reading.skipped, reading.reason = max(reading.skipped, self._skipped), reading.reason or SCALER_OVERFLOW
            self._skipped = 0
        self._drafts.append(Draft(position.index, position.advance, reading, tokens, samples, phases))
        self._moment, self._last_advance = now, position.advance
        if len(self._drafts) >= MAX_GROUP:
            self._close(float("inf"))

    def _complete(self, index: int, reading: Reading, tokens: Amount, samples: Amount) -> None:
        """Take a second line about the newest step: its values came after the bar moved."""
        if self._drafts and self._drafts[-1].index == index:
            draft = self._drafts[-1]
            draft.tokens = tokens if draft.tokens == Amount() else draft.tokens
            draft.samples = samples if draft.samples == Amount() else draft.samples
            if not draft.reading.phases and draft.reading.seconds is None:
                draft.reading.phases, draft.reading.seconds = reading.phases, reading.seconds
        elif self._held and self._held[-1].step.index == index:
            newest = self._held[-self._newest :]
            for held in newest:
                step = held.step
                step.tokens = tokens.share(len(newest), held.seconds) if step.tokens is None else step.tokens
                step.samples = samples.share(len(newest), held.seconds) if step.samples is None else step.samples
            if reading.phases and not newest[-1].step.phases:
                self._add_phases(newest, reading)

    def _append_start(self, steps: int, now: float) -> None:
        self._start_step = steps
        self._out.append(Facts(producer="", seq=0, t=now, start_step=steps))

    def _backfill(self, steps: int, now: float) -> None:
        """Add the steps before the first position: the second shows that they belong to this run."""
        self._before = max(0, self._before - steps)
        if steps > self.most:
            return
        self._append_start(max(0, self._start_step - steps), now)
        begin = self._mark or now
        for index in range(self._start_step + 1, self._start_step + steps + 1):
            self._held.append(HeldStep(Step(producer="", seq=0, t=begin, index=index, start=begin)))
        first = self._epochs.take()
        if first is not None and self.counters.by_epochs:
            began = self.clock.began if isinstance(self.clock, ArrivalClock) else 0.0
            set_first_time(self._held[-1], first, now - begin, began)
            if first.phases is not None:
                self._add_phases(self._held[-1:], first.phases)

    def _drop_first_epoch(self, now: float) -> None:
        """Report the phases of a first epoch that is no step."""
        first = self._epochs.take()
        if first is not None and first.phases is not None:
            self._append_phase_metrics(first.phases, now)

    def _close(self, now: float) -> None:
        """Set the times of the steps of the last moment, now that it is past."""
        if not self._drafts or now <= self._moment:
            return
        begin = self._mark
        gap = max(0.0, self._moment - begin - self._busy) if begin is not None else 0.0
        if gap == 0.0 and begin is not None and now != float("inf"):
            self._moment = now  # a clock of whole seconds: these steps share the time to the next one
            return
        shares = self._shares(gap)
        drafts, self._drafts = self._drafts, []
        begin = self._moment - sum(shares)
        for draft, share in zip(drafts, shares, strict=True):
            self._hold(draft, begin, share / draft.count or None)
            begin += share
        self._mark, self._busy = self._moment, 0.0
        self._spans.claimed = max(self._spans.claimed, self._moment)

    def _shares(self, gap: float) -> list[float]:
        """Return what each draft gets of the time since the moment before; 0: unknown.

        That is by the times that they tell, if all do, else equally. A program whose output is held in a buffer prints
        many steps at once: its first ones took what they tell.
        """
        stated = [draft.reading.seconds or 0.0 for draft in self._drafts]
        whole, counts = sum(stated), [draft.count for draft in self._drafts]
        if all(stated) and max(counts) == 1:
            began = self.clock.began if isinstance(self.clock, ArrivalClock) else self._moment
            if self._mark is None and whole <= self._moment - began:
                return stated
            if whole <= gap * MAX_ROUNDED_RATIO:
                return [own * gap / whole for own in stated]
        return [count * gap / sum(counts) for count in counts]

    def _hold(self, draft: Draft, begin: float, seconds: float | None) -> None:
        """Make the steps of one draft, which begin at `begin` and take `seconds` per step."""
        count, reading = draft.count, draft.reading
        if count > self.most:
            self._note("too many steps to list one by one: the step count is right, the speed shown is too low")
            self._append_start(self._start_step + count - self.most, self._moment)
            begin += (count - self.most) * (seconds or 0.0)
            count = self.most
        # A printed rate is over the time of the step that is printed beside it, without what came in between.
        rated = min(reading.seconds, seconds) if reading.seconds and seconds else seconds
        tokens, samples = (amount.share(draft.count, rated) for amount in (draft.tokens, draft.samples))
        end, epoch, place = begin, epoch_of(reading), self._owner(draft, count)
        for number, spent in enumerate(durations(draft, count, place, seconds)):
            end = end + spent if spent is not None else self._moment
            step = Step(
                producer="", seq=0, t=self._moment, index=draft.index - count + 1 + number, start=end - (spent or 0.0)
            )
            step.tokens, step.samples, step.role, step.epoch = tokens, samples, reading.role, epoch
            self._held.append(HeldStep(step, spent))
        last, own = self._held[-1], reading.seconds
        if reading.reason is not None:
            for held in self._held[-min(count, max(1, reading.skipped)) :]:  # which of them is not told
                held.step.status, held.step.reason = "skipped", reading.reason
        longest = seconds * MAX_ROUNDED_RATIO if seconds is not None else self._moment - self._ended
        if own is not None and count == 1 and own <= longest:
            last.set_duration(end, own if seconds is None else min(own, seconds))
        last.step.metrics = self.reported.new_metrics(reading.metrics, last.step.index)
        self._newest = count
        if reading.phases:
            self._add_phases(self._held[-count:], reading)
        if draft.phases is not None:
            steps = [self._held[place - count]] if draft.phases.block else self._held[-count:]
            self._add_phases(steps, draft.phases)
        if last.seconds is not None:
            self._ended = max(self._ended, last.step.start + last.seconds)

    def _owner(self, draft: Draft, count: int) -> int:
        """Return which of a draft's last `count` steps its phases belong to: the one they name, else the last."""
        named = self.counters.index_of(draft.phases) if draft.phases is not None else None
        place = count - 1 if named is None else named - (draft.index - count + 1)
        return place if 0 <= place < count else count - 1

    # Phases

    def _add_printed_phases(self, reading: Reading) -> None:
        """Take the phases of a step: the one just reported or the next, whichever the program means."""
        now = self.clock.at(reading, 0)
        if self.counters.main is None and self._epochs.add_phases(reading):
            return
        if self._phases_first is None:
            self._phases_first = self.counters.index == 0
        if self._drafts and reading.block:
            self._moment = max(self._moment, now)  # the clock of a log may have moved by this block's own seconds
        self._close(now)
        last = self._held[-1] if self._held else None
        newest = self._drafts[-1].index if self._drafts else last.step.index if last is not None else 0
        named = self.counters.index_of(reading)
        of_next = reading.block and (self._phases_first if named is None else named > newest)
        whole = sum(reading.phases.values())
        if reading.shares is not None and reading.shares > MAX_PERCENT_SUM:
            text = f"the program's own breakdown of its time adds up to {reading.shares:.0f}%"
            self._note(text, "inconsistent-console")
            self._append_phase_metrics(reading, now)
        elif reading.block and reading.seconds and whole > reading.seconds * MAX_ROUNDED_RATIO:
            text = f"the phases of a step add up to {whole:.1f} s, but the program says it took {reading.seconds:.1f} s"
            self._note(text, "inconsistent-console")
            self._append_phase_metrics(reading, now)
        elif self._drafts and not of_next and (parts := phases_together(self._drafts[-1].phases, reading)) is not None:
            self._drafts[-1].phases = parts
        elif not self._drafts and last is not None and not last.step.phases and not of_next:
            self._add_phases([last] if reading.block else self._held[-self._newest :], reading, now)
        elif reading.block:
            self._waiting = reading
        else:
            self._append_phase_metrics(reading, now)

    def _add_phases(self, steps: list[HeldStep], reading: Reading, now: float | None = None) -> None:
        """Add phases to the steps of a line where they fit: those of a typical step, else the sum over all of them."""
        held = steps[-1]
        step, own = held.step, reading.seconds if reading.block else None
        if own is not None and held.seconds is None:
            end = max(step.t, now or step.t)
            if own <= end - self._ended:
                step.t = end
                held.set_duration(end, own)
                self._mark = max(self._mark or 0.0, end)
                self._ended = max(self._ended, end)
        elif own is not None and held.seconds is not None and own <= held.seconds * MAX_ROUNDED_RATIO:
            held.set_duration(step.start + held.seconds, min(own, held.seconds))
        whole = sum(reading.phases.values())
        longest = (held.seconds or 0.0) * MAX_ROUNDED_RATIO
        if held.seconds is None or whole > longest * len(steps):
            self._append_phase_metrics(reading, now or step.t)
            return
        parts = 1 if whole <= longest else len(steps)
        for each in steps:
            each.step.phases = each.step.phases + [
                (name, seconds / parts, "host", 1) for name, seconds in reading.phases.items()
            ]

    def _append_phase_metrics(self, reading: Reading, now: float) -> None:
        """Report times that fit no step as metrics."""
        reading.metrics = {f"{name}_seconds": seconds for name, seconds in reading.phases.items()}
        self._append_metrics(reading, self.counters.index or None, now)

    # Spans and metrics beside the steps

    def _add_bar_frame(self, name: str, bar: Reading) -> None:
        now = self.clock.at(bar, 0)
        self._close(now)
        span = self._spans.add_frame(name, bar, now)
        if span is not None:
            self._unlabeled.spent += span.own or 0.0
        self._append_span(span)

    def _end_evaluation(self, now: float) -> None:
        """Take the results of an evaluation: the unnamed bar beside the training's was its bar."""
        self._close(now)
        self._append_span(self._spans.inner_evaluation(self._mark))

    def _end_validation(self, now: float) -> None:
        """Take results behind a full count, or on a full bar that is drawn again: it has validated since then."""
        if self._drafts or self._mark is None or not self._ended or self._ended < self._mark - SAME_MOMENT_SECONDS:
            return  # the end of its last batch is unknown, or the same moment
        self._append_span(self._spans.evaluation(self._mark, now))

    def _append_span(self, span: Span | None) -> None:
        if span is not None:
            self._busy += span.own or 0.0
            self._out.append(span)

    def _append_total(self, now: float) -> None:
        total = self.counters.total()
        if total is not None and total != self._reported_total:
            self._reported_total = total
            self._out.append(Facts(producer="", seq=0, t=now, total_steps=total))

    def _append_metrics(self, reading: Reading, at: int | None, now: float) -> dict[str, Number]:
        """Add metrics to the newest step if they are its own, else by themselves; return those that are new."""
        values = reading.metrics
        if reading.role and reading.role != self._role_of_newest():
            values = {f"{reading.role}/{name}": value for name, value in values.items()}
        if self._drafts and self._drafts[-1].index == at:
            self._drafts[-1].reading.metrics.update(values)
            return {}
        place = -reading.number if at is None and reading.family != "bar" else at  # a line is not drawn again
        values = self.reported.new_metrics(values, place)
        if values and self._held and self._held[-1].step.index == at:
            self._held[-1].step.metrics.update(values)
        elif values:
            self._out.append(Metrics(producer="", seq=0, t=now, values=values, step=at))
        return values

    def _role_of_newest(self) -> str | None:
        if self._drafts:
            return self._drafts[-1].reading.role
        return self._held[-1].step.role if self._held else None

    def _note(self, text: str, code: str | None = None) -> None:
        self._append_note(self.reported.note(text, self._moment, code))

    def _append_note(self, note: Note | None) -> None:
        if note is not None:
            self._out.append(note)

    # Output

    def drain(self, now: float | None = None, last: bool = False) -> list[Event]:
        """Return the events that are ready.

        Args:
            now: the moment, where the output is live; what was read by then has its times.
            last: nothing more will come.
        """
        if self._unlabeled.bars and (last or (now is not None and self._unlabeled.overdue(now))):
            self._settle(self._unlabeled.likely())
        if last:
            self._drop_first_epoch(self._moment)
        if now is not None or last:
            self._close(float("inf"))
            for span in self._spans.end_quiet(now or 0.0, 0.0 if last else bar_spans.MAX_QUIET_SECONDS):
                self._append_span(span)
        is_over = last or (self._held and now is not None and now - self._held[-1].step.t > HOLD_SECONDS)
        keep = 0 if is_over else self._newest
        ready = [step.event() for step in self._held[: max(0, len(self._held) - keep)]]
        del self._held[: len(ready)]
        self.steps += len(ready)
        if ready:
            self._emitted, self._emitted_at = ready[-1].index, ready[-1].t
        self._append_place(now, last)
        out, self._out = [*self._out, *ready], []
        return sorted(out, key=lambda event: event.t)  # a log may be drained once: spans lie between its steps

    def _append_place(self, now: float | None, last: bool) -> None:
        """Report where the program is by what it prints, if that has changed."""
        if not last and (now is None or (self._placed is not None and now - self._placed < POSITION_SECONDS)):
            return
        place = self.counters.place(self._before)
        if "step" in place and place != self._place:
            self._place, self._placed = place, now
            self._out.append(Facts(producer="", seq=0, t=self._reached, facts={"printed": dict(place)}))

    def saved_state(self) -> dict[str, Any]:
        """Return the count by the steps returned, and their end, for the process that reads on after this one."""
        count = self.counters.saved_state(self._emitted)
        return {**count, EMITTED_AT: self._emitted_at, "advance": self._last_advance}

    def restore_state(self, known: dict[str, Any]) -> None:
        """Continue where another process stopped: the next steps take the time since its last one."""
        if self.counters.restore_state(known):
            moment, advance = known.get(EMITTED_AT), known.get("advance")
            self._mark = float(moment) if isinstance(moment, int | float) else None
            self._last_advance = advance if type(advance) is int else 0
            self._reported_total = self.counters.total()
            self._emitted = self.counters.index

    def pulse(self, now: float) -> Pulse | None:
        """Return a pulse with what is open now; None where unknown."""
        spans = self._spans.open(now)
        is_single = self._last_advance == 1 or self.counters.begun  # a bar at its start: the first step is open
        if self._mark is None or not is_single or self.counters.finished:
            return Pulse(producer="", seq=0, t=now, spans=spans) if spans else None
        return Pulse(
            producer="",
            seq=0,
            t=now,
            step=self.counters.index + 1,
            step_open=max(0.0, now - self._mark - self._busy),
            spans=spans,
        )
