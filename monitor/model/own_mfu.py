"""An MFU that the program prints of itself, against which peak it is. Pure.

nanoGPT divides by an A100's 312 TFLOPS, whatever it runs on, and so do its heirs. On another card such a share looks
right and is off by a factor: by three on an H100.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from monitor.model.peaks import PEAKS
from monitor.model.series import Column
from monitor.units import share

A100 = PEAKS["a100"].bf16 or 0.0
# Beyond this the two are not the same peak: formulas of the work differ by a tenth, and pauses are counted or not.
SAME = 1.25
FITS = 0.15  # how far off the ratio of two peaks may be, for the same reasons; peaks that are told apart lie further
ENOUGH = 5  # figures of the program
# What nanoGPT and its heirs print before they have measured it, as the reader of the console notes it.
MARKS = ("mfu -100.0", "mfu -1.0")


def mfu_of_program(
    metrics: Mapping[str, Column],
    notes: Collection[str],
    ours: float | None,
    peak: float | None,
    name: str | None,
) -> str | None:
    """What the program's own MFU is of, in words; None where it prints none, or one of this card.

    Args:
        metrics: what the program logs or prints.
        notes: what the reader of its output noted.
        ours: the share of the peak as it is known here; None: not known.
        peak: TFLOPS of one of its GPUs in the format of its products; None: not known.
        name: of that GPU.
    """
    printed = _printed(metrics)
    if printed is None or not peak or _alike(peak, A100):
        return None
    like_nanogpt = any(note.endswith(MARKS) for note in notes)
    if ours is not None and ours > 0:
        return _by_ratio(printed, ours, peak, name, like_nanogpt)
    if not like_nanogpt:
        return None
    told = printed / 100.0  # nanoGPT and its heirs print percent
    return (
        f"the program prints an MFU of {share(told)} as nanoGPT does, which divides by an A100's {A100:,g} TFLOPS;"
        f" {name} has {peak:,g}: if so, it is {share(told * A100 / peak)}"
    )


def _by_ratio(printed: float, ours: float, peak: float, name: str | None, like_nanogpt: bool) -> str | None:
    """By how many times it is what is known here: that tells the peak that it was divided by."""
    for told in (printed, printed / 100.0):  # a share, or percent
        times = told / ours
        # Less than what is known here can come of other things, too: the peak of two GPUs, say.
        if abs(times * A100 / peak - 1.0) <= FITS and (like_nanogpt or times > SAME):
            return (
                f"the program prints an MFU of {share(told)}: that fits an A100's {A100:,g} TFLOPS, and not the"
                f" {peak:,g} of {name}, of which it is {share(told * A100 / peak)}"
            )
    return None


def _alike(one: float, other: float) -> bool:
    return max(one, other) <= SAME * min(one, other)


def _printed(metrics: Mapping[str, Column]) -> float | None:
    """The mean: nanoGPT's own is a running one, and leaves the first steps out."""
    for name, column in metrics.items():
        if name.rpartition("/")[2].lower() == "mfu":
            told = column.digested()
            if told.count >= ENOUGH:
                mean = told.sum / told.count
                return mean if mean > 0 else None
    return None
