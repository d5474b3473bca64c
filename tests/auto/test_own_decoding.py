"""A loop of the program's own that writes sequences is generation; what looks like one is not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.auto.watched import phases, watched
from trainhooks.auto.rl.decoding import can_cache
from trainhooks.auto.rl.own_decoding import OwnDecoding


class Ids:
    """Whole numbers in this shape."""

    def __init__(self, *shape: int, is_float: bool = False) -> None:
        self.shape, self._is_float = shape, is_float

    def is_floating_point(self) -> bool:
        return self._is_float


COUNTED = ("generate_calls", "completions", "new_tokens", "uncached_calls")
GROWING = [(4, length) for length in range(3, 12)]
CACHED = [(4, 8), *[(4, 1)] * 8]


@pytest.mark.parametrize(
    ("shapes", "decodes"),
    [
        (GROWING, True),
        (CACHED, True),
        ([(4, 1), *GROWING[:6]], True),
        (GROWING[:4], False),  # too few
        ([(32, 24)] * 9, False),  # an evaluation
        ([(32, 1)] * 9, False),  # likewise, of a model with one number a sample
        ([(rows, 5 + rows) for rows in range(9)], False),
        ([(8, length) for length in (5, 5, 6, 6, 7, 7, 8, 8)], False),  # sorted by length
        ([(4, 3, 8)] * 9, False),
    ],
)
def test_calls_that_decode(shapes: Sequence[tuple[int, ...]], decodes: bool) -> None:
    watch = OwnDecoding()
    found = [watch.is_decoding(Ids(*shape), t) for t, shape in enumerate(shapes)]
    assert any(found) is decodes
    if decodes:
        assert watch.began == (1 if shapes[0] == (4, 1) and shapes[1] != (4, 1) and shapes[1][1] != 2 else 0)


def rows(*shapes: tuple[int, int], calls: int = 1) -> OwnDecoding:
    watch = OwnDecoding()
    for t, shape in enumerate(shapes * calls):
        watch.is_decoding(Ids(*shape), t)
    return watch


@pytest.mark.parametrize(("length", "known"), [(1, False), (20, True), (21, True), (40, False)])
def test_what_is_learned_tells_single_positions_from_an_evaluation(length: int, known: bool) -> None:
    """A policy learns from sequences as long as what it wrote; what has one number a sample learns from single ones."""
    watch = rows((4, 1), calls=20)
    assert not watch.goes_on()
    newly, written = watch.learns(Ids(4, length))
    assert (newly is not None, bool(written)) == (known, known)
    assert any(watch.is_decoding(Ids(4, 1), t) for t in range(9)) is known


@pytest.mark.parametrize(
    ("watch", "length", "written"),
    [
        (rows(*GROWING), 12, (1, 4, 36, 1)),
        (rows(*CACHED), 16, (1, 4, 36, 0)),
        (rows(*CACHED, *CACHED), 17, (2, 8, 72, 0)),
        (rows((4, 1), calls=20), 10, (2, 8, 80, 0)),  # one after another
        (rows((1, 6), *[(3, length) for length in range(7, 13)]), 13, (1, 3, 19, 1)),  # beams
        (rows(*CACHED[:5], *[(2, 1)] * 4), 16, (1, 4, 28, 0)),  # two have ended
        (rows(*CACHED), 64, None),  # samples to look at: it learns from something else
        (rows(*CACHED), 4, None),
        (rows((4, 8), calls=9), 8, None),
    ],
)
def test_what_was_written_is_counted_as_it_is_learned_from(
    watch: OwnDecoding, length: int, written: tuple[int, ...] | None
) -> None:
    _, found = watch.learns(Ids(4, length))
    assert [tuple(sums.get(name, 0) for name in COUNTED) for _, (sums, _) in found] == ([written] if written else [])
    assert watch.learns(Ids(4, length)) == (None, [])  # once


def test_numbers_that_are_no_tokens_are_no_sequences() -> None:
    watch = OwnDecoding()
    assert not any(watch.is_decoding(Ids(4, length, is_float=True), length) for length in range(3, 12))


SCRIPT = """
import sys, time, torch
from torch import nn
torch.set_num_threads(1)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.places, self.table = nn.Embedding(64, 16), nn.Embedding(20, 16)
        self.cell, self.head = nn.GRU(16, 16, batch_first=True), nn.Linear(16, 20)
    def forward(self, ids):
        return self.head(self.cell(self.table(ids) + self.places(torch.arange(ids.shape[1])[None]))[0])
    def inference(self, ids, at, state):
        time.sleep(0.001)
        out, state = self.cell(self.table(ids) + self.places(torch.tensor([[at]])), state)
        return self.head(out[:, -1]), state

model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
prompts = torch.randint(20, (48, {prompt}))
batches = torch.utils.data.DataLoader(prompts, batch_size=4) if {loads} else prompts.split(4)

def chosen(logits):
    return logits.softmax(-1).multinomial(1)

def by_forward(ids, count):
    for _ in range(count):
        ids = torch.cat((ids, chosen(model(ids)[:, -1])), 1)
    return ids

def by_state(ids, count):
    at, state, new = 0, None, ids
    for _ in range(count):
        logits, state = model.inference(new, at, state)
        new, at = chosen(logits), at + 1
        ids = torch.cat((ids, new), 1)
    return ids

for iteration, ids in enumerate(batches):
    model.eval()
    with torch.no_grad():
        ids = {write}(ids, 10)
        for _ in range(3 * ({evaluates} and iteration % 4 == 3)):  # now and then
            model(torch.randint(20, (8, 15)))
    model.train()
    optimizer.zero_grad()
    model({learns}).sum().backward()
    optimizer.step()
"""
FORMS = {
    "forward": {"evaluates": True},
    "state": {"write": "by_state"},
    "state, no prompt": {"write": "by_state", "prompt": 1},
    "state, prompts loaded": {"write": "by_state", "loads": True},
    "forward, prompts loaded": {"loads": True},
    "samples to look at": {"learns": "torch.randint(20, (8, 40))"},
}


@pytest.mark.long
@pytest.mark.parametrize("form", list(FORMS))
def test_a_program_s_own_sampling_is_generation(tmp_path: Path, form: str) -> None:
    options = {"write": "by_forward", "prompt": 5, "loads": False, "evaluates": False, "learns": "ids[:, :-1]"}
    (tmp_path / "script.py").write_text(SCRIPT.format(**{**options, **FORMS[form]}))
    run = watched(tmp_path, str(tmp_path / "script.py"))
    assert run.code == 0, run.err
    inside = sum("generation" in phases(step) for step in run.steps())
    assert (len(run.spans("generation")) + inside, len(run.steps())) == (12, 12)
    assert inside == (12 if "loaded" in form else 0)
    metrics = run.report.metrics
    told = tuple(round((metrics[name].mean or 0) * metrics[name].count) if name in metrics else 0 for name in COUNTED)
    assert told == ((0,) * 4 if "look" in form else (12, 48, 480, 12 * ("forward" in form)))


SAMPLES = """
import sys
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.mixer, self.head = nn.Embedding(90, 16), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 90)
    def forward(self, ids, state=None):
        hidden, state = self.mixer(self.table(ids), state)
        return self.head(hidden), state

model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
use, is_cached = sys.argv[1], sys.argv[2] != "whole"
prompt, count = (1, 29) if sys.argv[2] == "single" else (5, 25)

@torch.no_grad()
def sample(ids, count):
    given, state = ids, None
    for _ in range(count):
        logits, state = model(given, state if is_cached else None)
        new = torch.distributions.Categorical(logits=logits[:, -1]).sample()[:, None]
        ids = torch.cat((ids, new), 1)
        given = new if is_cached else ids
    return ids

def learn(ids):
    optimizer.zero_grad()
    logits, _ = model(ids[:, :-1])
    nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
    optimizer.step()

for iteration in range(12):
    if use == "learn":
        learn(sample(torch.randint(90, (4, prompt)), count)[:, 3:])
    else:
        learn(torch.randint(90, (4, 30)))
    if use == "look" or iteration % 3 == 0:
        sample(torch.randint(90, (4, prompt)), count)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("use", "way"),
    [("learn", "cached"), ("learn", "whole"), ("look", "cached"), ("look", "whole"), ("look", "single")],
)
def test_samples_are_no_rollouts(tmp_path: Path, use: str, way: str) -> None:
    (tmp_path / "script.py").write_text(SAMPLES)
    run = watched(tmp_path, str(tmp_path / "script.py"), use, way)
    assert run.code == 0, run.err
    assert (len(run.spans("generation")), len(run.spans("eval"))) == ((12, 4) if use == "learn" else (0, 12))
    assert (run.report.cycle is not None) is (use == "learn")
    metrics = run.report.metrics
    written = metrics.get("completions")
    assert (written and round((written.mean or 0) * written.count)) == (48 if use == "learn" else None)


GENERATES = """
import subprocess
import torch
import transformers

config = transformers.LlamaConfig(
    vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, pad_token_id=0
)
model = transformers.LlamaForCausalLM(config)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for iteration in range(6):
    model.eval()
    with torch.no_grad():
        ids = model.generate(torch.randint(1, 32, (4, 5)), max_new_tokens=10, min_new_tokens=10, do_sample=True)
    for _ in range(10):
        subprocess.run(["sleep", "0.05"])
    model.train()
    optimizer.zero_grad()
    model(ids, labels=ids).loss.backward()
    optimizer.step()
"""


@pytest.mark.long
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_a_framework_s_generation_is_recorded_once_and_ends(tmp_path: Path, mode: str) -> None:
    (tmp_path / "script.py").write_text(GENERATES.replace("model.train()", f"model.{mode}()"))
    run = watched(tmp_path, str(tmp_path / "script.py"))
    assert run.code == 0, run.err
    assert (len(run.spans("generation")), len(run.steps())) == (6, 6)
    assert all("forward" in phases(step) for step in run.steps()[1:])
    rows = [row for event in run.events("frames") for row in event["rows"] if "subprocess.run" in row[1]]
    assert rows and {where for where, _, _ in rows} <= {"", "execution", "between steps"}


class Newer:
    def forward(self, input_ids: object, cache: object = None) -> None: ...


class Uncached:
    def forward(self, input_ids: object) -> None: ...


def test_a_model_can_cache_whatever_its_argument_is_called() -> None:
    assert (can_cache(Newer()), can_cache(Uncached())) == (True, False)
