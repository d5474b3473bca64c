"""A loop of the program's own that writes sequences is generation; what looks like one is not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.auto.watched import watched
from trainhooks.auto.rl.own_decoding import OwnDecoding


class Ids:
    """Whole numbers in this shape."""

    def __init__(self, *shape: int, is_float: bool = False) -> None:
        self.shape, self._is_float = shape, is_float

    def is_floating_point(self) -> bool:
        return self._is_float


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


def test_a_cache_that_is_given_tells_one_position_from_an_evaluation() -> None:
    for has_cache in (True, False):
        watch = OwnDecoding()
        assert any(watch.is_decoding(Ids(4, 1), t, has_cache and t > 0) for t in range(9)) is has_cache


def test_numbers_that_are_no_tokens_are_no_sequences() -> None:
    watch = OwnDecoding()
    assert not any(watch.is_decoding(Ids(4, length, is_float=True), length) for length in range(3, 12))


SCRIPT = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(20, 16), nn.Linear(16, 20)
    def forward(self, ids):
        return self.head(self.table(ids))

model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

@torch.no_grad()
def sample(ids, count):
    for _ in range(count):
        ids = torch.cat((ids, model(ids)[:, -1].argmax(-1, keepdim=True)), 1)
    return ids

for iteration in range(12):
    model.eval()
    ids = sample(torch.randint(20, (4, 5)), 10)
    for _ in range(iteration % 4 == 3):  # an evaluation now and then
        with torch.no_grad():
            for _ in range(3):
                model(torch.randint(20, (8, 15)))
    model.train()
    optimizer.zero_grad()
    model(ids).sum().backward()
    optimizer.step()
"""


@pytest.mark.long
def test_a_program_s_own_sampling_is_generation(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    run = watched(tmp_path, str(tmp_path / "script.py"))
    assert run.code == 0, run.err
    assert (len(run.spans("generation")), len(run.steps())) == (12, 12)


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
def test_a_framework_s_generation_is_recorded_once_and_ends(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(GENERATES)
    run = watched(tmp_path, str(tmp_path / "script.py"))
    assert run.code == 0, run.err
    assert (len(run.spans("generation")), len(run.steps())) == (6, 6)
    rows = [row for event in run.events("frames") for row in event["rows"] if "subprocess.run" in row[1]]
    assert rows and {where for where, _, _ in rows} <= {"", "other", "between steps"}
