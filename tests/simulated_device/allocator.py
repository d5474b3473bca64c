"""The allocator of torch on the device, as far as it counts: segments, blocks that are split and merged, retries.

Blocks of more than a MiB come from segments of their own size, or of 20 MiB where they are small; the best fit is
taken and what is left of it stays a block. Where nothing fits and the card has no room for one segment more, all
segments that are wholly free go back to the driver and it is tried again. Smaller blocks are added up alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

MIB = 2**20
SMALL, MIDDLE = MIB, 10 * MIB  # up to which blocks share a pool, and segments of 20 MiB
GRAIN, SEGMENT = 2 * MIB, 20 * MIB
ROUND = 512


class OutOfMemory(RuntimeError):
    """torch.OutOfMemoryError."""


@dataclass(eq=False)
class Block:
    """A piece of a segment, in its order there."""

    segment: Segment
    size: int
    used: bool = False


@dataclass(eq=False)
class Segment:
    """What the driver has given at once."""

    size: int
    blocks: list[Block] = field(default_factory=list)

    @property
    def is_free(self) -> bool:
        return len(self.blocks) == 1 and not self.blocks[0].used


class Allocator:
    """One device's.

    Args:
        total: bytes that the card has for this process.
        expandable: whether segments grow (expandable_segments:True): then nothing is ever split apart.
        driver: called with "malloc" or "free" for each call to the driver, which takes time.
    """

    def __init__(self, total: int, expandable: bool = False, driver: Callable[[str], None] = lambda _: None) -> None:
        self.total, self.expandable, self._driver = total, expandable, driver
        self.allocated = self.peak_allocated = self.reserved = self.peak_reserved = 0
        self.retries = self.ooms = 0
        self._segments: list[Segment] = []

    def take(self, size: int, swept: Callable[[], None] = lambda: None) -> Block | int:
        """Memory for a tensor. `swept` gives back what nobody holds any more; asked before the driver is."""
        size = -(-max(1, size) // ROUND) * ROUND
        found: Block | int = size
        if size > SMALL and not self.expandable:
            found = self._fit(size) or self._swept_fit(size, swept)
        self.allocated += size
        if self.expandable:
            self._grow_to(self.allocated, swept)
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return found

    def give_back(self, block: Block | int) -> None:
        """A tensor is gone."""
        if isinstance(block, int):
            self.allocated -= block
            return
        self.allocated -= block.size
        block.used = False
        blocks = block.segment.blocks
        at = blocks.index(block)
        for other in (at + 1, at - 1):
            if 0 <= other < len(blocks) and not blocks[other].used and blocks[other] is not block:
                block.size += blocks[other].size
                del blocks[other]
                at -= other < at

    def empty_cache(self) -> None:
        """All segments that are wholly free go back."""
        kept = []
        for segment in self._segments:
            if segment.is_free:
                self._driver("free")
                self.reserved -= segment.size
            else:
                kept.append(segment)
        self._segments = kept

    def _fit(self, size: int) -> Block | None:
        found: Block | None = None
        for segment in self._segments:
            for block in segment.blocks:
                if not block.used and block.size >= size and (found is None or block.size < found.size):
                    found = block
        if found is not None:
            self._use(found, size)
        return found

    @staticmethod
    def _use(block: Block, size: int) -> None:
        if block.size - size > SMALL:
            blocks = block.segment.blocks
            blocks.insert(blocks.index(block) + 1, Block(block.segment, block.size - size))
            block.size = size
        block.used = True

    def _swept_fit(self, size: int, swept: Callable[[], None]) -> Block:
        swept()
        found = self._fit(size)
        if found is not None:
            return found
        whole = SEGMENT if size < MIDDLE else -(-size // GRAIN) * GRAIN
        if self.reserved + whole > self.total:
            self.retries += 1
            self.empty_cache()
            if self.reserved + whole > self.total:
                self.ooms += 1
                raise OutOfMemory(f"CUDA out of memory. Tried to allocate {whole / 2**20:.2f} MiB")
        self._driver("malloc")
        self.reserved += whole
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        segment = Segment(whole)
        segment.blocks.append(Block(segment, whole))
        self._segments.append(segment)
        self._use(segment.blocks[0], size)
        return segment.blocks[0]

    def _grow_to(self, size: int, swept: Callable[[], None]) -> None:
        if size <= self.reserved:
            return
        swept()
        size = self.allocated
        if size > self.total:
            self.ooms += 1
            raise OutOfMemory("CUDA out of memory.")
        if size > self.reserved:
            self.reserved = -(-size // GRAIN) * GRAIN
            self.peak_reserved = max(self.peak_reserved, self.reserved)
