"""How long a program's loops run, by their headers: what is certain is claimed, and the rest is unknown."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from threading import Thread

import pytest

from tests.auto.watched import watched
from trainhooks.auto.steps.loop_bounds import LoopWatch
from trainhooks.recording import sources

CERTAIN = {
    "a number": ("for i in range(7): step()", {"updates": 7}),
    "of two loops": ("for i in range(2, 5):\n    for j in range(0, 10, 3): step()", {"updates": 12}),
    "a variable": ("n = 6\nfor i in tqdm(range(n + 1), desc='x'): step()", {"updates": 7}),
    "a bar's range": ("for i in trange(4):\n    with guard():\n        step()", {"updates": 4}),
    "a bar in a variable": ("bar = tqdm(range(3))\nfor i in bar: step()", {"updates": 3}),
    "a local bar": ("def main():\n    bar = trange(2 * 2)\n    for i in bar: step()\nmain()", {"updates": 4}),
    "a bar that is opened": (
        "import contextlib\n@contextlib.contextmanager\ndef tqdm(x): yield x\n"
        "with tqdm(range(3)) as bar:\n    for i in bar: step()",
        {"updates": 3},
    ),
    "a range in a variable": ("steps = range(5)\nfor i in enumerate(steps): step()", {"updates": 5}),
    "passes": ("for epoch in range(3):\n    for batch in [1, 2]:\n        step()", {"epochs": 3}),
    "some batches only": (
        "for epoch in range(3):\n    for i, batch in enumerate('ab'):\n        if i % 2: step()",
        {"epochs": 3},
    ),
    "a class's attribute": ("class C: epochs = 3\nfor _ in range(C.epochs):\n    for b in 'ab': step()", {"epochs": 3}),
    "an object's": ("args = Bag(epochs=3)\nfor _ in range(args.epochs):\n    for b in 'ab': step()", {"epochs": 3}),
    "a parsed argument": (
        "def main(args):\n    for _ in range(args.rounds):\n        for b in 'ab': step()\nmain(Bag(rounds=5))",
        {"epochs": 5},
    ),
    "a local variable": ("def main():\n    n = 2 * 3\n    for _ in range(n): step()\nmain()", {"updates": 6}),
    "functions": (
        "class T:\n    def fit(self):\n        for b in 'abc':\n            self.one(b)\n"
        "    def one(self, b):\n        step()\nfor epoch in range(4): T().fit()",
        {"epochs": 4},
    ),
    "training and validation": (
        "for epoch in range(4):\n    for phase in ['train', 'val']:\n        for b in 'ab':\n"
        "            if phase == 'train': step()",
        {"epochs": 4},
    ),
    "a setting, the same in all passes": (
        "amp = False\nfor i in range(3):\n    if amp: pass\n    else: step()",
        {"updates": 3},
    ),
    "a while that counts": ("n = 0\nwhile n < 4:\n    step()\n    n += 1", {"updates": 4}),
    "a while that has counted": ("n = 0\nwhile n <= 4:\n    n += 1\n    step()", {"updates": 5}),
    "a while that goes on from a number": (
        "n = 2\nwhile n != 6:\n    with guard(): step()\n    n += 1",
        {"updates": 4},
    ),
    "a break at a bound": ("n = 0\nwhile True:\n    step()\n    n += 1\n    if n > 3: break", {"updates": 4}),
    "a break before the count": ("n = 0\nwhile 1:\n    step()\n    if n == 3: break\n    n += 1", {"updates": 4}),
    "a break before the step": ("n = 0\nwhile 1:\n    n += 1\n    if n == 3: break\n    step()", {"updates": 2}),
    "a break at the top": ("n = 0\nwhile 1:\n    if n >= 3: break\n    step()\n    n += 1", {"updates": 3}),
    "passes until a bound": (
        "n = 0\nwhile n < 5:\n    for batch in 'ab':\n        step()\n        n += 1\n        if n >= 5: break",
        {"updates": 5},
    ),
    "a function that returns at a bound": (
        "def main():\n    n = 0\n    while True:\n        for batch in 'abc':\n            step()\n            n += 1\n"
        "            if n == 4: return\nmain()",
        {"updates": 4},
    ),
    "a count of updates": (
        "n = 0\nwhile n < 3:\n    for i in range(4):\n        if i % 2:\n            step()\n            n += 1\n"
        "        if n >= 3: break",
        {"updates": 3},
    ),
    "a while that calls": (
        "class T:\n    def one(self): step()\nn = 0\nwhile n < 3:\n    T().one()\n    n += 1",
        {"updates": 3},
    ),
    "two optimizers": ("for i in range(3):\n    step()\n    step()", {"updates": 3}),
}
UNCERTAIN = {
    "a bar that is made anew": "bar = tqdm(range(3))\nbar = tqdm(range(4))\nfor i in bar: step()",
    "an iterator that has begun": "ids = iter(range(3))\nnext(ids)\nfor i in ids: step()",
    "while": "n = 0\nwhile n < 3:\n    n += 1\n    for i in range(3): step()",
    "within a while": "for i in range(2):\n    n = 0\n    while n < 3:\n        n += 1\n        step()",
    "a while until a result": "n = 0\nloss = 9\nwhile loss > 3:\n    loss -= 2\n    n += 1\n    step()",
    "a count now and then": "n = 0\nwhile n < 3:\n    step()\n    if id(n) % 2 or True: n += 1",
    "a count set back": "n = 0\nwhile n < 3:\n    step()\n    n += 1\n    if n == 9: n = 0",
    "whole passes until a bound": "n = 0\nwhile n < 3:\n    for batch in 'ab':\n        step()\n        n += 1",
    "a break of the passes alone": (
        "n = m = 0\nwhile m < 2:\n    m += 1\n    for b in 'abc':\n        step()\n        n += 1\n"
        "        if n == 2: break"
    ),
    "a local count that is given": ("def main(n):\n    while n < 3:\n        step()\n        n += 1\nmain(1)"),
    "now and then": "for i in range(8):\n    if i % 2 == 0: step()",
    "by what was computed": "for i in range(8):\n    loss = i\n    if loss > 3: step()",
    "by a parameter": "def one(i):\n    if i > 3: step()\nfor i in range(8): one(i)",
    "left out": "for i in range(8):\n    if i % 2: continue\n    step()",
    "a length": "data = [1, 2]\nfor i in range(len(data)): step()",
    "a parameter": "def main(n):\n    for i in range(n): step()\nmain(4)",
    "assigned twice": "def main():\n    n = 3\n    n = 4\n    for i in range(n): step()\nmain()",
    "a comprehension": "for i in range(2):\n    [step() for _ in range(3)]",
    "map": "for i in range(2):\n    list(map(lambda _: step(), 'abc'))",
    "a generator": "def run():\n    for i in range(3):\n        step()\n        yield i\nfor loss in run(): pass",
    "an own range": "def range(n): return [1, 2]\nfor i in range(9): step()",
    "two stages that count alike": 2 * "n = 0\nwhile n < 3:\n    step()\n    n += 1\n",
    "two trainings of one function": "def fit():\n    for i in range(3): step()\nfit()\nfit()",
    "two stages": "for i in range(3): step()\nfor i in range(5): step()",
    "an inner stage": ("for i in range(3):\n    for j in range(5): step()\n    for j in range(2): step()"),
    "several settings": "for rate in [0.1, 0.2]:\n    for i in range(3):\n        for b in 'ab': step()",
    "epochs that may be left out": "for e in range(6):\n    if e % 2: continue\n    for b in 'ab': step()",
    "after the loop": "for i in range(3): pass\nelse: step()",
    "no loop": "step()",
}


def plan_of(tmp_path: Path, text: str) -> dict[str, int]:
    """What is claimed after the last step of a script."""
    (tmp_path / "script.py").write_text(text)
    os.utime(tmp_path / "script.py", (0, 0))  # it was there when the program began
    claimed: dict[str, int] = {}
    watch = LoopWatch()
    sources._known.clear()

    def step() -> None:
        sources.read(str(tmp_path / "script.py"))  # as a thread of ours does
        found = watch.look(sys._getframe(1), {"rounds": 5})
        if found is not None:
            claimed.clear()
            claimed.update(found)

    class Bag:
        def __init__(self, **values: int) -> None:
            self.__dict__.update(values)

    class Guard:
        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

    names = {"step": step, "Bag": Bag, "guard": Guard, "tqdm": lambda x, **_: x, "trange": range}
    # In a thread: the loops of who runs the tests are not around it.
    thread = Thread(target=runpy.run_path, args=(str(tmp_path / "script.py"),), kwargs={"init_globals": names})
    thread.start()
    thread.join()
    return claimed


@pytest.mark.parametrize(("text", "plan"), CERTAIN.values(), ids=CERTAIN.keys())
def test_bounds_that_are_certain_are_known(tmp_path: Path, text: str, plan: dict[str, int]) -> None:
    assert plan_of(tmp_path, text) == plan


@pytest.mark.parametrize("text", UNCERTAIN.values(), ids=UNCERTAIN.keys())
def test_bounds_that_are_not_certain_are_unknown(tmp_path: Path, text: str) -> None:
    assert plan_of(tmp_path, text) == {}


def test_a_file_that_was_edited_tells_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "script.py")
    assert plan_of(tmp_path, f"open({path!r}, 'w').write('# nothing')\nfor i in range(3): step()") == {}


SCRIPT = """
import torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def train(epochs_of_another_meaning=100):
    rounds = 2
    for round_number in range(rounds):
        for x in DataLoader(torch.randn(24, 4), batch_size=4):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

train()
{more}
"""


@pytest.mark.parametrize(
    ("more", "done", "total", "epochs"),
    [
        ("", 12, 12, 2),
        ("for i in range(3):\n    model(torch.randn(4, 4)).sum().backward(); optimizer.step()", 15, None, None),
    ],
)
@pytest.mark.long
def test_the_total_of_a_training(tmp_path: Path, more: str, done: int, total: int | None, epochs: int | None) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.format(more=more))
    progress = watched(tmp_path / "state", str(tmp_path / "train.py")).report.progress
    assert (progress.steps_done, progress.steps_total, progress.epochs_total) == (done, total, epochs)
