"""What is generated to learn from is rollout, and counted; what the learner never sees is an evaluation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.auto.watched import Watched, phases, watched
from trainhooks.auto.rl import generations
from trainhooks.auto.rl.generations import MAX_PLACES, MIN_PARTIAL, Generations
from trainhooks.auto.rl.id_windows import MIN_LENGTH, GeneratedRows, input_hashes, padded_rows, split
from trainhooks.auto.rl.instances import EVALUATES, TRAINS
from trainhooks.lane_entries import AGGREGATE

PROMPT, NEW = 6, 24


def ids(rows: int = 4, columns: int = PROMPT + NEW, seed: int = 0) -> torch.Tensor:
    return torch.randint(100, 5000, (rows, columns), generator=torch.Generator().manual_seed(seed))


def back(generated: torch.Tensor, learned: torch.Tensor) -> tuple[int, int, int]:
    rows = GeneratedRows(generated[:, PROMPT:])
    return split(int(rows.found_in(input_hashes(learned, rows.width))))


TEXT = ids()


@pytest.mark.parametrize(
    ("learned", "rows"),
    [
        (TEXT, 4),
        (TEXT[:, :-1], 4),
        (TEXT[[3, 1]], 2),
        (torch.cat((ids(4, 9, seed=1), TEXT, torch.zeros(4, 5, dtype=torch.long)), 1), 4),  # padded at both ends
        (TEXT.reshape(1, -1), 4),  # in one row
        (TEXT.reshape(-1), 4),
        (TEXT[:, PROMPT:].int(), 4),  # without the prompt
        (TEXT[:, :-4], 4),
        (torch.cat((TEXT[:, :-NEW], ids(4, NEW, seed=2)), 1), 0),  # other answers to the same prompts
        (ids(8, seed=3), 0),
        (TEXT.flip(1), 0),
    ],
)
def test_rows_that_come_back(learned: torch.Tensor, rows: int) -> None:
    assert back(TEXT, learned)[0] == rows


@pytest.mark.parametrize("columns", [MIN_LENGTH, 13, 31, 64, 700])
def test_rows_of_any_length(columns: int) -> None:
    text = ids(3, PROMPT + columns)
    assert back(text, text) == (3, 3, 3) and back(text, ids(3, PROMPT + columns, seed=1)) == (0, 0, 3)
    assert back(text, text[:, :-1]) == (3, 3, 3), "as the input of a prediction"


def test_the_same_begin_is_a_habit() -> None:
    other = torch.cat((TEXT[:, : PROMPT + 9], ids(4, NEW - 9, seed=1)), 1)
    assert back(TEXT, other) == (0, 4, 4)


def test_padding_and_repeated_ids_tell_nothing() -> None:
    short = TEXT.clone()
    short[:, PROMPT + 5 :] = 0
    assert back(short, short) == (0, 0, 0)
    short[0] = TEXT[0]
    assert back(short, short)[::2] == (1, 1), "the row that goes on"
    stuck = torch.tensor([[7, 8]]).repeat(4, 20)
    assert back(stuck, stuck) == (0, 0, 0)


def test_what_was_learned_before_it_was_written_is_not_new() -> None:
    rows = GeneratedRows(TEXT[:, PROMPT:])
    rows.forget(input_hashes(TEXT[:3], rows.width))
    assert split(int(rows.found_in(input_hashes(TEXT, rows.width)))) == (1, 1, 1)


def test_lists_of_ids() -> None:
    rows = [list(range(100 * n, 100 * n + 20 + n)) for n in range(3)]
    assert padded_rows(rows).tolist()[0][20:] == [-1, -1]
    assert split(int(GeneratedRows(padded_rows(rows)).found_in(input_hashes(torch.tensor([rows[1]]), 8))))[0] == 1
    assert not padded_rows([]).numel()


class Program:
    """A loop that generates and learns, seen by `Generations` alone."""

    def __init__(self) -> None:
        self.put: list[tuple[Any, ...]] = []
        self.seed = 0
        path = SimpleNamespace(steps=0)
        self.tracker = SimpleNamespace(fast_path=path, stepped=set(), put=self.put.append, generates=lambda: None)
        self.watch = Generations(self.tracker)

    def generate(self, text: torch.Tensor) -> int:
        """Generate at one place. Return what that is taken for."""
        place = self.watch.begins()
        assert place is not None
        self.watch.ends(place, lambda: text[:, PROMPT:], ({"completions": len(text)}, {"generate_batch": 1.0}))
        return place.use

    def evaluate(self, text: torch.Tensor) -> int:
        return self.generate(text)  # another place

    def learn(self, *texts: torch.Tensor) -> None:
        for text in texts:
            if self.watch.looks:
                self.watch.learns((), {"input_ids": text, "attention_mask": torch.ones_like(text)})
        self.tracker.fast_path.steps += 1

    def text(self) -> torch.Tensor:
        self.seed += 1
        return ids(seed=self.seed)

    @property
    def completions(self) -> int:
        assert all(entry[0] == AGGREGATE and entry[2] == {"generate_batch": 1.0} for entry in self.put)
        return sum(entry[1]["completions"] for entry in self.put)


def test_what_is_learned_from_is_counted_at_once() -> None:
    program = Program()
    for n in range(6):
        text = program.text()
        assert program.generate(text) == TRAINS
        program.learn(text)
        assert program.completions == 4 * (n + 1)
    assert not program.watch.looks


def test_what_the_learner_never_sees_is_an_evaluation() -> None:
    program = Program()
    assert program.evaluate(program.text()) == TRAINS, "presumed: nothing has been learned"
    for n in range(9):
        text = program.text()
        assert program.generate(text) == TRAINS
        program.learn(text)
        assert program.evaluate(program.text()) == EVALUATES
        assert program.evaluate(program.text()) == EVALUATES, "at another place"
        assert program.completions == 4 * (n + 1)
    program.watch.finish()
    assert program.completions == 36


def test_samples_of_a_training_on_other_data_are_no_rollouts() -> None:
    program = Program()
    uses = []
    for _ in range(9):
        uses.append(program.generate(program.text()))
        program.learn(program.text(), program.text())
    program.watch.finish()
    assert uses == [TRAINS, *[EVALUATES] * 8] and not program.put


def test_samples_that_are_known_by_heart_are_no_rollouts() -> None:
    program, text = Program(), ids()
    program.learn(text)
    for _ in range(20):
        assert program.generate(text if program.seed > 2 else program.text()) == EVALUATES
        program.learn(text)
    assert not program.put


def test_two_evaluations_before_each_update_are_no_rollout() -> None:
    program = Program()
    for n in range(6):
        uses = [program.evaluate(program.text()), program.generate(program.text())]
        assert uses == [EVALUATES if n else TRAINS] * 2
        program.learn(program.text())
    assert not program.put


def test_a_profiler_of_the_program_sees_nothing_of_it() -> None:
    program, text = Program(), ids()
    program.generate(text)
    assert program.watch.looks
    with torch.autograd.profiler.profile() as profile:
        program.evaluate(text)
        program.watch.learns((), {"input_ids": text})
    assert not profile.function_events


def test_what_is_learned_from_an_update_later() -> None:
    program = Program()
    texts = [program.text() for _ in range(8)]
    for n, text in enumerate(texts):
        assert program.generate(text) == TRAINS
        if n:
            program.learn(texts[n - 1])
    assert program.completions == 32


def test_what_comes_back_after_all_is_counted_from_the_start() -> None:
    program = Program()
    program.learn(program.text())
    uses = []
    for n in range(8):
        text = program.text()
        uses.append(program.generate(text))
        program.learn(program.text() if n < 3 else text)
    assert uses == [*[EVALUATES] * 5, *[TRAINS] * 3] and program.completions == 32


def test_parts_that_are_compared_may_miss_what_comes_back() -> None:
    program, text = Program(), ids(640)
    for n in range(12):
        assert program.generate(ids(640, seed=n + 1)) == (TRAINS if n < MIN_PARTIAL else EVALUATES)
        program.learn(text)
    program = Program()
    for n in range(6):
        text = ids(640, seed=n)
        assert program.generate(text) == TRAINS
        program.learn(text[:10] if n == 5 else text[1:10])
    assert program.completions == 3840


def test_what_comes_back_many_updates_later_is_learned_from() -> None:
    program = Program()
    texts = [program.text() for _ in range(24)]
    uses = []
    for n, text in enumerate(texts):
        uses.append(program.generate(text))
        program.learn(texts[n - 6] if n > 6 else program.text())
    assert uses[0] == uses[-1] == TRAINS and program.completions == 96


def test_begins_that_come_back_alone_decide_nothing() -> None:
    program = Program()
    for _ in range(6):
        text = program.text()
        assert program.generate(text) == TRAINS
        program.learn(text[:, : PROMPT + 9])
    program.watch.finish()
    assert program.completions == 24


@pytest.mark.parametrize("learned", [torch.zeros(4, 30), torch.zeros(4, 3, dtype=torch.long)])
def test_a_learner_that_is_given_no_ids_decides_nothing(learned: torch.Tensor) -> None:
    program = Program()
    for _ in range(6):
        assert program.generate(program.text()) == TRAINS
        program.learn(learned)
    assert program.generate(program.text()) == EVALUATES, "at another place, until that is known"
    program.learn(learned)
    program.watch.finish()
    assert program.completions == 28


@pytest.mark.parametrize("has_learned", [False, True])
def test_answers_of_a_few_ids_decide_nothing(has_learned: bool) -> None:
    program = Program()
    if has_learned:
        program.learn(program.text())
    for n in range(6):
        use = program.generate(program.text()[:, : PROMPT + 4])
        assert use == TRAINS or (has_learned and not n)
        assert program.completions == 4 * (n + 1)
        program.learn(program.text())


def test_depths_of_a_recursion_are_one_place() -> None:
    program = Program()

    def search(depth: int) -> None:
        if depth:
            search(depth - 1)
        else:
            program.generate(program.text())

    for depth in range(1, 2 * MAX_PLACES):
        search(depth)
    assert len(program.watch._places) == 1


def test_numbers_of_a_device_arrive_later(monkeypatch: pytest.MonkeyPatch) -> None:
    class Number:
        is_cpu = False

        def __init__(self, value: int) -> None:
            self.value = value

        def __add__(self, other: Number) -> Number:
            return Number(self.value + other.value)

    class Rows(GeneratedRows):
        def found_in(self, seen: Any) -> Any:
            return Number(int(super().found_in(seen)))

    copies: list[tuple[SimpleNamespace, Number]] = []

    def start_copy(name: str, number: Number) -> Any:
        if len(copies) % 2:  # one of them is too soon
            return copies.append((SimpleNamespace(reader=lambda _: None), number))
        copies.append((SimpleNamespace(wanted=True), number))
        return copies[-1][0]

    def arrive() -> None:
        for copy, number in copies:
            copy.reader(number.value)
        copies.clear()

    monkeypatch.setattr(generations, "GeneratedRows", Rows)
    monkeypatch.setattr(generations.deferred, "start_copy", start_copy)
    program = Program()
    for n in range(6):
        text = program.text()
        assert program.generate(text) == TRAINS
        program.learn(text[:2], text[2:])
        assert program.completions == (4 * (n + 1) if n else 0), "nothing waits for it"
        assert program.evaluate(program.text()) == EVALUATES
        arrive()
    program.watch.finish()
    assert program.completions == 24


SCRIPT = """
import random
import sys
import torch
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
torch.set_num_threads(1)
model = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=512, n_embd=32, n_layer=1, n_head=2, eos_token_id=127))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
form, completions = sys.argv[1], 0
prompts = torch.randint(0, 120, (8, 6))

def generate(given, **options):
    return model.generate(given, max_new_tokens=20, min_new_tokens=20, do_sample=True, pad_token_id=0, **options)

def collect(given):
    global completions
    completions += len(given)
    return generate(given)

def evaluate():
    model.eval()
    generate(torch.randint(0, 120, (8, 6)))
    model.train()

def learn(text):
    optimizer.zero_grad()
    model(input_ids=text, labels=text).loss.backward()
    optimizer.step()

buffer = []
for iteration in range(10):
    if form == "evaluated first" and iteration % 2 == 0:
        evaluate()
    if form in ("evaluated", "evaluated first"):
        learn(collect(prompts))
        if form == "evaluated":
            evaluate()
    if form == "in loaders":
        texts = []
        for given in DataLoader(prompts, batch_size=4, shuffle=True):
            texts.append(collect(given))
            with torch.no_grad():
                model(input_ids=texts[-1])
        for given in DataLoader(torch.cat(texts), batch_size=4, shuffle=True):
            learn(torch.nn.functional.pad(given, (3, 2)))
    if form == "without gradients":
        with torch.no_grad():
            texts = [collect(given) for given in DataLoader(prompts, batch_size=4)]
        learn(torch.cat(texts).reshape(1, -1))
    if form == "from a buffer":
        buffer += collect(prompts)
        learn(torch.stack(random.sample(buffer, 8)))
    if form == "one by one":
        learn(torch.cat([collect(given[None]) for given in prompts]))
    if form == "samples":
        for given in DataLoader(torch.randint(0, 120, (16, 26)), batch_size=4):
            learn(given)
        evaluate()
    if form == "samples first":
        evaluate()
        for _ in range(3):
            learn(torch.randint(0, 120, (4, 26)))
print("completions", completions)
"""
# Texts, which a tokenizer of words' parts splits otherwise than a model without knowledge has written them.
TEXTS = """
import subprocess, sys
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

form, = sys.argv[1:]
torch.manual_seed(0)
torch.set_num_threads(1)
bpe = Tokenizer(models.BPE())
bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
alphabet = pre_tokenizers.ByteLevel.alphabet()
trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=["</s>"], initial_alphabet=alphabet)
bpe.train([__file__, torch.__file__], trainer)
tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="</s>", pad_token="</s>")
size = dict(vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=2, n_positions=512, eos_token_id=0, pad_token_id=0)
writer, tester = (GPT2LMHeadModel(GPT2Config(**size)) for _ in range(2))
optimizer = torch.optim.AdamW(writer.parameters(), lr=1e-4)
lines = [line for line in open(torch.__file__) if len(line) > 40]

def write(model, prompt, whole=False):
    model.eval()
    given = tokenizer(prompt, return_tensors="pt")
    with torch.no_grad():
        ids = model.generate(**given, do_sample=True, min_new_tokens=32, max_new_tokens=32, top_k=0)
    if whole:
        return tokenizer.batch_decode(ids, skip_special_tokens=True)[0][len(prompt):]
    return tokenizer.decode(ids[0, given.input_ids.shape[1]:], skip_special_tokens=True)

def score(model, text):
    given = tokenizer(text, return_tensors="pt", truncation=True, max_length=400)
    return model(**given, labels=given.input_ids).loss

for step in range(8):
    if form == "rollouts":
        code = write(writer, lines[step % 4], whole=step % 2).strip()
        tests = write(tester, "test of " + code)
        loss = score(writer, lines[step % 4] + code)  # before the programs are tried, as log-probabilities are
        subprocess.run(["sleep", "0.05"], capture_output=True)
    if form == "answers":  # the tests are learned from, of the code nothing but the prompt
        code = write(tester, lines[step % 4])
        more = write(tester, code)
        tests = write(writer, "test of " + code)
        loss = score(writer, "test of " + code + tests)
    if form == "judged":
        loss = score(writer, lines[step])
    writer.train()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    if form == "judged":
        with torch.no_grad():
            score(tester, write(writer, lines[0], whole=True))
"""
Script = Callable[..., Watched]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    def run(form: str, text: str = SCRIPT) -> Watched:
        (tmp_path / "loop.py").write_text(text)
        found = watched(tmp_path / "state", str(tmp_path / "loop.py"), form)
        assert found.code == 0, found.err  # TRAINMON_DEBUG is set in tests: what a hook raises ends the program
        return found

    return run


def times(run: Watched, name: str) -> int:
    """Return how often a phase was entered, in steps and outside of them."""
    inside = sum(count for step in run.steps() for phase, _, _, count in step.get("phases", ()) if phase == name)
    return inside + sum(span.get("step") is None for span in run.spans(name))


@pytest.mark.long
@pytest.mark.parametrize(
    ("form", "generations", "evaluations"),
    [
        ("evaluated", 10, 10),
        ("evaluated first", 11, 4),  # the first one comes before all learning
        ("in loaders", 20, 0),
        ("without gradients", 20, 0),
        ("from a buffer", 10, 0),
        ("one by one", 80, 0),
    ],
)
def test_completions_are_those_that_are_learned_from(
    script: Script, form: str, generations: int, evaluations: int
) -> None:
    run = script(form)
    row = run.report.metrics["completions"]
    assert (row.mean or 0.0) * row.count == pytest.approx(int(run.out.split()[-1]))
    assert (times(run, "generation"), times(run, "eval")) == (generations, evaluations)
    assert run.report.cycle is not None and run.report.throughput.collected.completions_per_second


@pytest.mark.long
@pytest.mark.parametrize("form", ["samples", "samples first"])
def test_samples_to_look_at_are_no_rollouts(script: Script, form: str) -> None:
    run = script(form)
    assert "completions" not in run.report.metrics
    assert run.report.cycle is None and not run.report.throughput.collected.is_any
    assert times(run, "eval") == (10 if form == "samples" else 9)
    assert not any("generation" in phases(step) for step in run.steps())


@pytest.mark.long
@pytest.mark.parametrize(
    ("form", "generations", "evaluations"), [("rollouts", 16, 0), ("answers", 24, 0), ("judged", 0, 8)]
)
def test_texts_that_are_tokenized_again(script: Script, form: str, generations: int, evaluations: int) -> None:
    """What is written between a text that is learned from and the learning belongs to the rollout, too."""
    run = script(form, TEXTS)
    assert (times(run, "generation"), times(run, "eval")) == (generations, evaluations)
    if form == "rollouts":
        assert [phases(step).get("execution", 0.0) > 0.0 for step in run.steps()[1:]] == [True] * 7
