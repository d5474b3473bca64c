"""NVIDIA's error codes (XIDs) in words: the common ones of its "XID Errors" catalogue."""

from __future__ import annotations

WORDS = {
    13: "a kernel failed: an illegal instruction or address in the program",
    31: "a kernel touched memory that is not mapped: most often a fault of the program",
    43: "the GPU stopped a faulty program",
    45: "the driver cleaned up after a program that was ended",
    48: "an uncorrectable memory error (double bit ECC)",
    61: "the GPU's own micro-controller failed",
    62: "the GPU's own micro-controller halted",
    63: "a row of memory is to be replaced by a spare one at the next reset",
    64: "a bad row of memory could not be replaced: the card needs service",
    74: "an NVLink error",
    79: "the GPU has fallen off the bus: hardware, power or heat; the machine needs a reboot",
    92: "a high rate of memory errors",
    94: "an uncorrectable memory error that hit one program",
    95: "an uncorrectable memory error that may have hit all programs: the GPU needs a reset",
    119: "the GPU's system processor does not answer: the GPU needs a reset",
    120: "the GPU's system processor failed: the GPU needs a reset",
}

OF_THE_PROGRAM = frozenset((13, 31, 43, 45))  # usually a fault in what ran, and none of the hardware
GRAVE = frozenset((48, 61, 62, 64, 74, 79, 95, 119, 120))  # what was computed since may be wrong, or nothing will be


def in_words(xid: int) -> str:
    return f"XID {xid}: {WORDS[xid]}" if xid in WORDS else f"XID {xid}"
