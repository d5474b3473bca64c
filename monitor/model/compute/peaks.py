"""Peaks of GPUs: dense TFLOPS by name and number format, and the ceiling at a given clock. Pure.

Without sparsity: the doubled figures of a data sheet are for sparse matrices, which training does not use.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peak:
    """The peak of one card in TFLOPS; None where it lacks the format. `flop_...` are FLOP a clock and SM."""

    fp32: float | None
    tf32: float | None  # None: fp32 matrix products run as fp32, whatever is allowed
    bf16: float | None
    fp16: float | None
    sms: int | None = None  # None: the ceiling at a clock is unknown
    flop_fp32: int = 0
    flop_tf32: int = 0
    flop_half: int = 0
    note: str = ""

    def tflops(self, dtype: str) -> float | None:
        """Return the peak in `fp32`, `tf32`, `bf16` or `fp16`; None where the card lacks the format."""
        if dtype == "tf32":
            return self.tf32 if self.tf32 is not None else self.fp32
        return {"fp32": self.fp32, "bf16": self.bf16, "fp16": self.fp16}.get(dtype)

    def flop_a_clock(self, dtype: str) -> int | None:
        """Return the FLOP of one SM in one clock in this format; None: unknown."""
        if self.sms is None or self.tflops(dtype) is None:
            return None
        if dtype in ("bf16", "fp16"):
            return self.flop_half
        return self.flop_tf32 if dtype == "tf32" and self.tf32 is not None else self.flop_fp32


_H100_SXM = Peak(67.0, 495.0, 989.0, 989.0, 132, 256, 2048, 4096)
_HOPPER_NVL = Peak(60.0, 417.5, 835.5, 835.5, 132, 256, 2048, 4096)
_LAPTOP = "its peak depends on how much power the laptop allows: 66 to 79 TFLOPS in bf16; the higher one is taken"
_ROUNDED = "its data sheet gives rounded figures: 1 PFLOPS with sparsity in bf16"

PEAKS: dict[str, Peak] = {
    "v100 sxm": Peak(15.7, None, None, 125.0, 80, 128, 0, 1024),
    "v100 pcie": Peak(14.0, None, None, 112.0, 80, 128, 0, 1024),
    "v100s": Peak(16.4, None, None, 130.0, 80, 128, 0, 1024),
    "t4": Peak(8.1, None, None, 65.0, 40, 128, 0, 1024),
    "a10": Peak(31.2, 62.5, 125.0, 125.0, 72, 256, 512, 1024),
    "a30": Peak(10.3, 82.0, 165.0, 165.0, 56, 128, 1024, 2048),
    "a40": Peak(37.4, 74.8, 149.7, 149.7, 84, 256, 512, 1024),
    "a100": Peak(19.5, 156.0, 312.0, 312.0, 108, 128, 1024, 2048),
    "l4": Peak(30.3, 60.0, 121.0, 121.0, 58, 256, 512, 1024),
    "l40s": Peak(91.6, 183.0, 362.0, 362.0, 142, 256, 512, 1024),
    "rtx a6000": Peak(38.7, 77.4, 154.8, 154.8, 84, 256, 512, 1024),
    "rtx 6000 ada": Peak(91.1, 182.1, 364.2, 364.2, 142, 256, 512, 1024),
    "rtx pro 6000 blackwell workstation edition": Peak(126.0, 251.9, 503.8, 503.8, 188, 256, 512, 1024),
    "rtx pro 6000 blackwell max q workstation edition": Peak(109.7, 219.5, 438.9, 438.9, 188, 256, 512, 1024),
    "rtx pro 6000 blackwell server edition": Peak(120.0, 250.0, 500.0, 500.0, 188, 256, 512, 1024, _ROUNDED),
    "rtx 3090": Peak(35.6, 35.6, 71.0, 71.0, 82, 256, 256, 512),
    "rtx 4090": Peak(82.6, 82.6, 165.0, 165.0, 128, 256, 256, 512),
    "rtx 4090 laptop": Peak(40.0, 40.0, 79.0, 79.0, 76, 256, 256, 512, _LAPTOP),
    "rtx 5090": Peak(104.8, 104.8, 209.5, 209.5, 170, 256, 256, 512),
    "h100 sxm": _H100_SXM,
    "h100 pcie": Peak(51.0, 378.0, 756.0, 756.0, 114, 256, 2048, 4096),
    "h100 nvl": _HOPPER_NVL,
    "h200": _H100_SXM,
    "h200 nvl": _HOPPER_NVL,
    "gh200": _H100_SXM,
    "b200": Peak(75.0, 1125.0, 2250.0, 2250.0),
    "mi300x": Peak(163.4, 654.0, 1307.0, 1307.0),
}

_SAYS_NOTHING = frozenset((
    "nvidia", "amd", "tesla", "geforce", "instinct", "graphics", "gpu", "oam", "generation", "simulated",
))  # fmt: skip
_MEMORY = re.compile(r"\d+(?:g|gb|gib)|hbm\d+[a-z]?")
_SXM = re.compile(r"sxm\d*")


def kind_of(name: str) -> str:
    """Return a name without vendor and memory: `a100` for `NVIDIA A100-SXM4-80GB` and `NVIDIA A100 80GB PCIe`.

    The result must equal a name of the table: an A10G is no A10, a 3090 Ti no 3090, and a MIG instance is not listed.
    """
    words = [word for word in re.split(r"[\s\-_/()]+", name.lower()) if word and word not in _SAYS_NOTHING]
    core = " ".join(word for word in words if not (_MEMORY.fullmatch(word) or _SXM.fullmatch(word) or word == "pcie"))
    if core == "h100":
        return "h100 pcie" if "pcie" in words else "h100 sxm" if _on_sxm(words) or "hbm3" in words else core
    if core == "v100":
        return "v100 sxm" if _on_sxm(words) else "v100 pcie" if "pcie" in words else core
    return core


def _on_sxm(words: list[str]) -> bool:
    return any(_SXM.fullmatch(word) for word in words)


def peak_of(name: str | None) -> Peak | None:
    """Return the peak of this card; None: not listed."""
    return None if name is None else PEAKS.get(kind_of(name))


def ceiling(name: str | None, dtype: str, clock: int | None) -> float | None:
    """Return the TFLOPS reachable at this SM clock (MHz), at most the peak; None: unknown."""
    peak = peak_of(name)
    per_clock = peak.flop_a_clock(dtype) if peak is not None else None
    most = peak.tflops(dtype) if peak is not None else None
    if peak is None or peak.sms is None or not per_clock or most is None or not clock or clock <= 0:
        return None
    return min(most, peak.sms * per_clock * clock / 1e6)
