"""The wait for data: torch's DataLoader, at its mouth."""

from __future__ import annotations

import sys
from threading import get_ident
from typing import Any, Callable

from trainhooks.auto import boundaries, graphs, loaders, sections
from trainhooks.auto.batches import Batches
from trainhooks.auto.op_transfers import BatchLook
from trainhooks.auto.steps import Steps
from trainhooks.auto.usual import FETCHED, FETCHING, READY, STEPPED
from trainhooks.clocks import host_clock


def install(dataloader: Any) -> None:
    """Called after `torch.utils.data.dataloader` and `torch` have been imported."""
    watched, torch = boundaries.current, sys.modules["torch"]
    if watched is not None:
        _wrap(dataloader, watched, Batches(torch), BatchLook(torch).look)
        graphs.keep_out(torch, sys.modules[__name__])


def _wrap(dataloader: Any, watched: Steps, counter: Batches, look: Callable[[Any], None]) -> None:
    fetch = dataloader._BaseDataLoaderIter.__next__
    make = dataloader.DataLoader.__iter__
    counts, usual, grads_wanted = counter.counts, watched.usual, watched.grads_wanted
    inside = False  # a dataset may itself go through a loader

    def __next__(self: Any) -> Any:
        if usual.stage < STEPPED or get_ident() != usual.thread or not grads_wanted():
            return unusual(self)
        if usual.stage == READY:
            usual.began = host_clock()
            usual.source = id(self)
            usual.stage = FETCHING
        elif not usual.fetch_begins(id(self), host_clock()):
            return unusual(self)
        try:
            batch = fetch(self)
        except BaseException:
            fails(self)
            raise
        fetched(self, batch)
        return batch

    def fetched(self: Any, batch: Any) -> None:
        try:
            if usual.stage != FETCHING:
                watched.fetch_ends(id(self), counts(batch), host_clock())
                look(batch)  # the first ones come this way
                return
            usual.fetched = usual.called = host_clock()  # where no model is seen, forward begins here
            usual.counts = found = counts(batch)
            usual.stage = FETCHED
            if found is None:  # the model's inputs are to be counted
                usual.hand_over()
        except Exception:  # a batch may be of any class, with any faults
            watched.fail()

    def unusual(self: Any) -> Any:
        nonlocal inside
        if inside or usual.stage == FETCHING or watched.silent or get_ident() != watched.thread:
            return fetch(self)
        inside = True
        try:
            if usual.stage:
                usual.hand_over()
            watched.fetch_begins(id(self), host_clock())
            batch = fetch(self)
        except BaseException:
            fails(self)
            raise
        finally:
            inside = False
        fetched(self, batch)
        return batch

    def fails(self: Any) -> None:
        if usual.stage:
            usual.hand_over()
        watched.fetch_fails(id(self))

    def __iter__(self: Any) -> Any:
        if inside or usual.stage == FETCHING or watched.silent or get_ident() != watched.thread:
            return make(self)
        if usual.stage:
            usual.hand_over()
        watched.fetch_begins(id(self), host_clock())
        if usual.stage:
            usual.hand_over()
        if watched.optimizers.none_stepped:
            sections.harmless(loaders.tell, self)
        try:
            return make(self)
        finally:
            watched.iterator_made()

    boundaries.put_in_place(dataloader._BaseDataLoaderIter, "__next__", __next__)
    boundaries.put_in_place(dataloader.DataLoader, "__iter__", __iter__)
