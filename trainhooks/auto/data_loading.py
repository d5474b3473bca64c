"""torch's DataLoader: the wait for each batch, the contents of a batch, and the loader's settings."""

from __future__ import annotations

import sys
from threading import get_ident
from typing import Any, Dict, List, Optional

from trainhooks.auto import batch_parts, unseen
from trainhooks.auto.instrumentation import call_safely, framework, put_facts, replace_function
from trainhooks.auto.padded_rows import PaddedRows
from trainhooks.auto.steps.plan import passes
from trainhooks.auto.steps.step_order import Counts
from trainhooks.auto.steps.step_tracker import StepTracker
from trainhooks.device import cuda
from trainhooks.lane_entries import host_clock
from trainhooks.program_errors import pass_on

# Facts of the loader and its attributes; the facts are named like Hugging Face's arguments.
SETTINGS = (
    ("dataloader_num_workers", "num_workers"),
    ("dataloader_pin_memory", "pin_memory"),
    ("dataloader_prefetch_factor", "prefetch_factor"),
    ("dataloader_persistent_workers", "persistent_workers"),
    ("batch_size", "batch_size"),
)

SEQUENCES = frozenset((list, tuple))
MAX_ITEMS = 16  # items of a batch that are searched for its samples
MAX_BATCHES = 3  # batches whose bytes are counted
MAX_DEPTH, MAX_TENSORS = 3, 64  # within a batch whose bytes are counted

_last_settings: Dict[str, Any] = {}


def watch_loaders(dataloader: Any, torch: Any, tracker: StepTracker) -> None:
    """Follow the fetches of all loaders; `dataloader` is the module `torch.utils.data.dataloader`."""
    fetch = dataloader._BaseDataLoaderIter.__next__
    make = dataloader.DataLoader.__iter__
    fast_path, guard = tracker.fast_path, tracker.guard
    inside = False  # a dataset may itself use a loader

    def is_ours() -> bool:
        return not (inside or fast_path.in_fetch or tracker.silent or get_ident() != tracker.thread)

    def slow_next(iterator: Any) -> Any:
        nonlocal inside
        if not is_ours():
            try:
                return fetch(iterator)
            except BaseException as error:
                unseen.drop_own_frames(error)
                raise
        inside = True
        try:
            with guard:
                fast_path.leave()
                tracker.fetch_begins(id(iterator), host_clock())
            batch = fetch(iterator)
        except BaseException as error:
            fetch_fails(iterator)
            unseen.drop_own_frames(error)
            raise
        finally:
            inside = False
        fetched(iterator, batch)
        return batch

    def fetch_fails(iterator: Any) -> None:
        with guard:
            fast_path.leave()
            tracker.fetch_fails(id(iterator))

    def __iter__(self: Any) -> Any:
        if not is_ours():
            return make(self)
        with guard:
            fast_path.leave()
            tracker.forget_unused()
            tracker.fetch_begins(id(self), host_clock())
            fast_path.leave()
            if tracker.optimizers.none_stepped:
                call_safely(_put_settings, self)
            if tracker.grads_wanted() and not framework.open_evaluations:
                call_safely(passes.begins, self)
        try:
            return make(self)
        except BaseException as error:
            unseen.drop_own_frames(error)
            raise
        finally:
            with guard:
                tracker.iterator_made()

    counts, count_bytes = LoaderCounter(torch).counts, BatchBytes(torch).add
    __next__, fetched = fast_path.loader_next(fetch, counts, slow_next, fetch_fails, count_bytes)
    replace_function(dataloader._BaseDataLoaderIter, "__next__", __next__)
    replace_function(dataloader.DataLoader, "__iter__", __iter__)


def _put_settings(loader: Any) -> None:
    """Record the settings of a loader whose iterator is made before the first step; the last one is the training's."""
    global _last_settings
    if framework.logs_loss:
        return  # the framework records its own settings
    settings = {name: getattr(loader, attribute, None) for name, attribute in SETTINGS}
    settings = {name: value for name, value in settings.items() if isinstance(value, (bool, int))}
    if settings and settings != _last_settings:
        _last_settings = settings
        put_facts(loader=settings)


class BatchCounter:
    """Count a batch's tokens and samples, as far as possible without waiting for a device."""

    def __init__(self, torch: Any) -> None:
        self._tensor = torch.Tensor
        self._last: Counts = (None, None, 0)
        self._padded_rows = PaddedRows()
        self._ids = frozenset((torch.int64, torch.int32))
        self._masks = frozenset((torch.int64, torch.int32, torch.bool, torch.uint8, torch.int8))

    def counts(self, batch: Any) -> Optional[Counts]:
        """Return the counts of a batch (a tensor, a tuple or list, a mapping); None if unknown."""
        if cuda.modes_active():  # the program's mode would see each reading of a shape
            return None
        tensor = self._tensor
        item = batch if type(batch) is tensor else batch[0] if type(batch) in SEQUENCES and batch else batch
        if type(item) is tensor and item.dtype not in self._ids:  # the frequent cases first
            shape = item.shape
            if shape:
                if shape[0] != self._last[2]:
                    self._last = (None, None, shape[0])
                return self._last
        if self._is_readable(batch):
            return self._of_tensor(batch)
        items = batch_parts.first_items(batch, MAX_ITEMS)
        if items is not None:
            for item in items:
                if self._is_readable(item):
                    return self._of_tensor(item)
                if issubclass(type(item), dict):
                    return self.counts(item)
            return None
        table = batch_parts.as_mapping(batch)
        return None if table is None else self._of_mapping(table)

    def _is_readable(self, item: Any) -> bool:
        return batch_parts.is_readable(type(item), self._tensor)

    def model_inputs(self, inputs: Any) -> Optional[Counts]:
        """Return the counts of a model's inputs; None for a row of numbers, which may be one sample or many."""
        first = inputs[0] if isinstance(inputs, tuple) and inputs else None
        if cuda.modes_active():
            return None
        if first is not None and self._is_readable(first) and first.dim() == 1 and first.is_floating_point():
            return None
        return self.counts(inputs)

    def _of_tensor(self, tensor: Any) -> Optional[Counts]:
        shape = tensor.shape
        if len(shape) == 2 and not tensor.is_floating_point() and tensor.dtype in self._ids:
            return self._of_ids(tensor)
        return (None, None, shape[0]) if shape else None

    def _of_ids(self, ids: Any) -> Counts:
        rows, columns = ids.shape
        tokens = self._padded_rows.tokens(ids) if ids.is_cpu and ids.dtype in self._ids else None
        return (rows * columns, None, rows) if tokens is None else (tokens, rows * columns, rows)

    def _of_mapping(self, batch: Any) -> Optional[Counts]:
        ids = batch.get("input_ids")
        if self._is_readable(ids) and len(ids.shape) == 2:
            rows, columns = ids.shape
            mask = batch.get("attention_mask")
            if self._is_readable(mask) and mask.shape == ids.shape and mask.dtype in self._masks:
                if mask.is_cpu:
                    return int(mask.count_nonzero()), rows * columns, rows
                return None, rows * columns, rows  # the padding is known only on the device
            return self._of_ids(ids)
        for name in list(batch.keys())[:MAX_ITEMS]:
            item = batch.get(name)
            if self._is_readable(item) and item.shape:
                return None, None, item.shape[0]
        return None


class LoaderCounter:
    """Count a fetched batch: its samples are what the loader puts together, whatever the first dimension holds."""

    def __init__(self, torch: Any) -> None:
        self._counts = BatchCounter(torch).counts
        self._batches = sys.modules["torch.utils.data.sampler"].BatchSampler

    def counts(self, iterator: Any, batch: Any) -> Optional[Counts]:
        """Return the counts of a batch that this iterator has returned; None if unknown."""
        found = self._counts(batch)
        indices: Any = getattr(iterator, "_index_sampler", None)
        if type(indices) is not self._batches:  # the program's own, or none: each item is a batch
            return found
        size = indices.batch_size
        if found is None:
            # Of rows of text the model's inputs tell more; of a class of the program's own they tell nothing.
            return None if type(batch) in (list, tuple, dict) else (None, None, self._samples(iterator, indices, size))
        return found if found[2] == size else (found[0], found[1], self._samples(iterator, indices, size))

    def _samples(self, iterator: Any, indices: Any, size: int) -> int:
        """Return the samples of the batch: fewer than its size at most at the end of the data."""
        before = (iterator._num_yielded - 1) * size
        try:
            samples: int = max(1, min(size, len(indices.sampler) - before))
        except Exception as error:  # a sampler of the program's own may have no length
            pass_on(error)
            return size
        return samples


class BatchBytes:
    """Record the bytes of the first batches, and whether they are in pinned memory."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._left = MAX_BATCHES

    def add(self, batch: Any) -> None:
        if self._left and not cuda.modes_active():
            self._left -= 1
            call_safely(self._put, batch)

    def _put(self, batch: Any) -> None:
        tensors: List[Any] = []
        self._collect(batch, tensors, MAX_DEPTH)
        if not tensors:
            return
        sizes = [int(tensor.numel()) * int(tensor.element_size()) for tensor in tensors]
        facts: Dict[str, Any] = {"bytes": sum(sizes)}
        if cuda.started_cuda() is not None:
            if not cuda.is_quiet():
                return
            facts["pinned"] = bool(tensors[sizes.index(max(sizes))].is_pinned())
            self._left = 0
        elif self._left < MAX_BATCHES - 1:  # recorded already; whether it is pinned may be known later
            return
        put_facts(batch=facts)

    def _collect(self, value: Any, found: List[Any], depth: int) -> None:
        """Collect the host tensors among the first items of a batch into `found`."""
        if batch_parts.is_readable(type(value), self._torch.Tensor):
            if not value.is_cuda and value.device.type == "cpu":
                found.append(value)
            return
        items, table = batch_parts.first_items(value, MAX_TENSORS), batch_parts.as_mapping(value)
        if depth and items is not None:
            for item in items:
                self._collect(item, found, depth - 1)
        elif depth and table is not None:
            for name in list(table.keys())[:MAX_TENSORS]:
                self._collect(table.get(name), found, depth - 1)
        elif depth and _has_plain_attributes(type(value)):
            self._collect(list(vars(value).values()), found, depth - 1)


def _has_plain_attributes(kind: Any) -> bool:
    """Return whether the attributes of a class are read without a call of the program's."""
    return kind.__dictoffset__ != 0 and kind.__getattribute__ is object.__getattribute__
