"""No output, however odd, crashes or stalls the reader; and how its bytes were cut makes no difference."""

from __future__ import annotations

import json
import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.console.log_parser import LogParser
from monitor.sources.decode import decode
from tests.console.conftest import FIXTURES, Live, readings
from trainhooks.protocol import encoding, events

PIECES = [
    *(
        b"\r",
        b"\n",
        b"\r\n",
        b"\b",
        b"\t",
        b"\x1b[A",
        b"\x1b[2K",
        b"\x1b[31m",
        b"\x1b]0;x\x07",
        b"\x1b",
        b"\xe2\x96\x88",
    ),
    *(
        b"step ",
        b"Step 3/10",
        b"iter 120: ",
        b"Epoch 2/3",
        b"loss",
        b": ",
        b"=",
        b"nan",
        b"-5",
        b"1e400",
        b"0.41",
        b" | ",
    ),
    *(
        b"150/3558 [00:05<02:15, 3.50it/s]",
        b" 45%|###  |",
        b"[====>   ]",
        b"{'loss': ",
        b"}",
        b'{"step": 3, "loss": 1}',
    ),
    *(b"Slow step (65.3s):\n", b"  reward: 3s\n", b"Skipping step 1/10: why", b"Timing breakdown - a: 1s (99%)"),
    *(
        b"| a | 5 |",
        b"+---+",
        b"[rank1]: ",
        b"2: ",
        b"2024-05-01 12:00:00 ",
        b"12:00:00 ",
        b"429 tok/s",
        b"1m16s",
        b"46:47",
    ),
    *(
        b"4/4 \xe2\x94\x81\xe2\x94\x81\xe2\x94\x81\xe2\x94\x81\xe2\x94\x81 2s 500ms/step",
        b"99999999999999999999",
        b"\xff",
    ),
]

logs = st.lists(st.sampled_from(PIECES) | st.binary(max_size=12), max_size=60).map(b"".join)


def sound(batch: list[events.Event]) -> None:
    """Every event passes the gate through which readers take it, as it was."""
    encode = encoding.encoder()
    for seq, event in enumerate(batch, 1):
        event.producer, event.seq = "console-x", seq
        line = encode(encoding.to_dict(event))
        json.loads(line)
        assert decode(line) == event


@given(logs)
def test_any_output_makes_valid_events(data: bytes) -> None:
    parser = LogParser()
    sound(parser.feed(data)[1] + parser.finish()[1])


@given(st.lists(st.tuples(st.floats(0.0, 30.0), logs), max_size=8))
def test_steps_of_a_live_log_do_not_overlap(arrivals: list[tuple[float, bytes]]) -> None:
    live, now = Live(), 100.0
    for pause, data in arrivals:
        now += pause
        live.at(now, data.decode("utf-8", "replace"))
    log = live.end()
    sound(log.events)
    timed = sorted((step for step in log.steps if step.duration > 0), key=lambda step: step.start)
    ends = [step.start + step.duration for step in timed]
    assert all(step.start >= end - 1e-6 for step, end in zip(timed[1:], ends, strict=False))
    assert all(step.start + step.duration <= now + 1e-6 for step in timed)
    assert all(sum(seconds for _, seconds, *_ in step.phases) <= step.duration * 1.06 for step in timed)


@given(logs, st.lists(st.integers(1, 9), min_size=1, max_size=400))
def test_chunk_boundaries_change_no_reading(data: bytes, cuts: list[int]) -> None:
    parser = LogParser()
    found, at = [], 0
    for cut in cuts:
        found += parser.feed(data[at : at + cut])[0]
        at += cut
    found += parser.feed(data[at:])[0] + parser.finish()[0]
    assert found == readings(data)


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.log")), ids=lambda path: path.stem)
def test_single_bytes_read_the_same(path: object) -> None:
    data = path.read_bytes()  # type: ignore[attr-defined]
    parser = LogParser()
    found = [reading for at in range(len(data)) for reading in parser.feed(data[at : at + 1])[0]]
    assert found + parser.finish()[0] == readings(data)


def noises(size: int) -> dict[str, bytes]:
    """Return input that is easy to stall on: no line ends, no sense, and what the patterns look for, many times."""
    dice = random.Random(7)
    return {
        "bytes": dice.randbytes(size),
        "signs": bytes(dice.choices(b"0123456789:=/|%[]{}<>., \n\r\x1b[A\b-ste#='\"(e", k=size)),
        "digits": b"1" * size,
        "back": b"x" * 900 + b"5\b" * (size // 2),
        "pairs": (b"a:1, " * 800 + b"\n") * (size // 4001),
        "bars": b"[====>   " * (size // 9),
        "braces": b"{'a':1" * (size // 6),
        "deep": (b'{"loss":' * 6000 + b"1}\n") * (size // 48000 + 1),
        "titles": b"\x1b]0;" * (size // 4),
        "spaces": (b" " * 4000 + b"1/1 loss\n") * (size // 4009),
        "words": (b"loss aaaa bbbb cccc dddd " * 160 + b"1\n") * (size // 4002),
        "rules": ("━" * (size // 3)).encode(),
    }


@pytest.mark.long
@pytest.mark.parametrize("name", noises(0))
def test_noise_is_not_kept_in_memory(name: str) -> None:
    data = noises(150_000)[name]
    parser = LogParser()
    parser.feed(data)
    tracemalloc.start()
    for _ in range(3):
        parser.feed(data)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    parser.finish()
    assert kept < 300_000  # of 450,000 bytes: nothing is kept for good
