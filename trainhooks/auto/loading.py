"""The wait for data: torch's DataLoader, at its mouth."""

from __future__ import annotations

import sys
from threading import get_ident
from typing import Any

from trainhooks.auto import boundaries, compiling, loaders, sections
from trainhooks.auto.batches import Batches
from trainhooks.auto.steps import Steps


def install(dataloader: Any) -> None:
    """Called after `torch.utils.data.dataloader` and `torch` have been imported."""
    watched, torch = boundaries.current, sys.modules["torch"]
    if watched is not None:
        _wrap(dataloader, watched, Batches(torch))
        compiling.keep_out(torch, sys.modules[__name__])


def _wrap(dataloader: Any, watched: Steps, counter: Batches) -> None:
    fetch = dataloader._BaseDataLoaderIter.__next__
    make = dataloader.DataLoader.__iter__
    counts = counter.counts
    inside = False  # a dataset may itself go through a loader

    def __next__(self: Any) -> Any:
        nonlocal inside
        if inside or watched.silent or get_ident() != watched.thread:
            return fetch(self)
        source = id(self)
        inside = True
        try:
            watched.fetch_begins(source)
            batch = fetch(self)
        except BaseException:
            watched.fetch_fails(source)
            raise
        finally:
            inside = False
        try:
            watched.fetch_ends(source, counts(batch))
        except Exception:  # a batch may be of any class, with any faults
            watched.fail()
        return batch

    def __iter__(self: Any) -> Any:
        if inside or watched.silent or get_ident() != watched.thread:
            return make(self)
        watched.fetch_begins(id(self))
        if watched.optimizers.none_stepped:
            sections.harmless(loaders.tell, self)
        try:
            return make(self)
        finally:
            watched.iterator_made()

    boundaries.put_in_place(dataloader._BaseDataLoaderIter, "__next__", __next__)
    boundaries.put_in_place(dataloader.DataLoader, "__iter__", __iter__)
