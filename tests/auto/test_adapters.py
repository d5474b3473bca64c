"""The framework adapters by themselves: what they make of calls, without the frameworks where a stand-in will do."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.journal_lines import events_in
from trainhooks import session
from trainhooks.auto import instrumentation
from trainhooks.auto.adapters import huggingface_hub_adapter, lightning_adapter, transformers_adapter, trl_adapter
from trainhooks.auto.instrumentation import framework
from trainhooks.lane_entries import AGGREGATE, COUNT, END, FACTS, SPAN, STEP, Loop
from trainhooks.protocol.vocabulary import PHASES, phase_name
from trainhooks.recording.assembler import Assembler
from trainhooks.recording.step_annotations import ProcessState
from trainhooks.recording.step_blocks import PlainStep

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Any, ...]]]:
    """What is put into this thread's lane."""
    entries: list[tuple[Any, ...]] = []
    monkeypatch.setattr(session, "quiet_put", lambda: entries.append)
    monkeypatch.setattr(session, "has_explicit_steps", lambda: False)
    yield entries
    assert (framework.open_evaluations, framework.open_phases) == (0, 0)


def names(entries: list[tuple[Any, ...]]) -> list[Any]:
    """Names of what was entered, None for what was left."""
    return [
        entry[2] if entry[0] == SPAN else entry[0] for entry in entries if entry[0] in (SPAN, None) or len(entry) == 2
    ]


def test_every_alias_is_one_of_the_fields_names() -> None:
    field = {
        *("data", "h2d", "forward", "backward", "optimizer", "generation", "log_probs", "reward", "advantage"),
        *("training", "weight_sync", "checkpoint", "eval"),
    }
    assert set(PHASES.values()) <= field
    assert phase_name("transformers.generate") == "generation"
    assert phase_name("a reward function of a user's") is None


def test_sections_nest_and_the_same_name_is_told_once(put: list[tuple[Any, ...]]) -> None:
    with instrumentation.phase("reward"), instrumentation.phase("generation"), instrumentation.phase("reward"):
        assert instrumentation.is_open("generation")
        assert framework.open_phases == 3
    assert names(put) == ["reward", "generation", None, None]


def test_an_evaluation_counts_as_a_whole(put: list[tuple[Any, ...]]) -> None:
    with instrumentation.span("eval"), instrumentation.phase("generation"), instrumentation.span("checkpoint"):
        assert framework.open_evaluations == 1
    assert names(put) == ["eval", None]


def test_a_program_that_tells_its_steps_is_told_no_phases(
    put: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "has_explicit_steps", lambda: True)
    with instrumentation.phase("reward"), instrumentation.span("checkpoint"):
        pass
    assert put == []


def test_a_section_that_an_exception_leaves_is_closed(put: list[tuple[Any, ...]]) -> None:
    with contextlib.suppress(ValueError), instrumentation.phase("reward"):
        raise ValueError
    assert names(put) == ["reward", None]


def test_a_batch_is_counted_in_the_step_that_uses_it(
    put: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers 4 fetches for a whole step, accelerate one more; an epoch's odd end makes a step of one batch."""
    from trainhooks.auto.steps.step_tracker import StepTracker

    class Optimizer:
        param_groups: tuple[Any, ...] = ()

    monkeypatch.setattr(framework, "counts_batches", False)
    tracker = StepTracker(lambda: True)
    tracker.announced = True
    tracker.put = put.append
    optimizer = Optimizer()
    tracker.optimizers.add(optimizer)
    for batch in (1, 2, 3):
        tracker.fetch_begins(7, batch)
        tracker.fetch_ends(7, (batch, None, None), batch)
    for t in (4, 5, 6):
        tracker.batch_used()
        tracker.backward_begins(None, t)
        tracker.backward_ends(t)
        tracker.optimizer_begins(id(optimizer), t)
        tracker.optimizer_ends(id(optimizer), optimizer, t)
    counted = [entry[1] if entry[0] == COUNT else "end" for entry in put if entry[0] in (COUNT, END)]
    assert counted == [1, "end", 2, "end", 3, "end"]


def test_functions_methods_and_class_methods_are_replaced_once() -> None:
    class Theirs:
        def plain(self, x: int) -> int:
            return x

        @classmethod
        def of_class(cls, x: int) -> tuple[type, int]:
            return cls, x

        @staticmethod
        def static(x: int) -> int:
            return x

    class Child(Theirs):
        pass

    calls = []

    def make(original: Any) -> Any:
        def ours(*args: Any) -> Any:
            calls.append(original.__name__)
            return original(*args)

        return ours

    for name in ("plain", "of_class", "static"):
        assert instrumentation.wrap(Theirs, name, make)
        assert instrumentation.wrap(Theirs, name, make)  # as two packages of the same framework would
    assert not instrumentation.wrap(Theirs, "of_another_version", make)
    assert (Child().plain(1), Child.of_class(2), Child.static(3), Theirs.static(4)) == (1, (Child, 2), 3, 4)
    assert calls == ["plain", "of_class", "static", "static"]


def shaped(*shape: int) -> Any:
    return SimpleNamespace(shape=shape)


CALL = {"generate_calls": 1}
DECODER = SimpleNamespace(config=SimpleNamespace(is_encoder_decoder=False))
BOTH = SimpleNamespace(config=SimpleNamespace(is_encoder_decoder=True))


@pytest.mark.parametrize(
    ("model", "args", "kwargs", "output", "sums", "batch"),
    [
        (DECODER, (shaped(4, 7),), {}, shaped(4, 12), {"prompt_tokens": 28, "new_tokens": 20}, 4.0),
        (DECODER, (), {"input_ids": shaped(2, 5)}, shaped(6, 8), {"prompt_tokens": 10, "new_tokens": 18}, 2.0),
        (
            DECODER,
            (),
            {"inputs": shaped(1, 5)},
            SimpleNamespace(sequences=shaped(1, 6)),
            {"prompt_tokens": 5, "new_tokens": 1},
            1.0,
        ),
        (DECODER, (), {"inputs_embeds": shaped(3, 5, 64)}, shaped(3, 9), {"new_tokens": 27}, 3.0),
        (BOTH, (shaped(2, 30),), {}, shaped(2, 11), {"prompt_tokens": 60, "new_tokens": 20}, 2.0),
        (BOTH, (), {"input_features": shaped(2, 80, 3000)}, shaped(2, 11), {"new_tokens": 20}, 2.0),
        (DECODER, (), {}, "something of a user's own", {}, None),
    ],
)
def test_what_a_call_of_generate_did(
    model: Any, args: Any, kwargs: Any, output: Any, sums: dict[str, int], batch: float | None
) -> None:
    told, means = transformers_adapter.generate_figures(model, args, kwargs, output)
    shape = getattr(getattr(output, "sequences", output), "shape", None)
    assert told == {"generate_calls": 1, **({"completions": shape[0]} if shape else {}), **sums}
    assert means == ({} if batch is None else {"generate_batch": batch})


def test_a_call_of_generate_inside_another_is_a_part_of_it(put: list[tuple[Any, ...]]) -> None:
    class GenerationMixin:
        def generate(self, ids: Any, depth: int = 1) -> Any:
            return self.generate(ids, depth=depth - 1) if depth else shaped(2, 9)

    transformers_adapter.wrap_generate(SimpleNamespace(GenerationMixin=GenerationMixin))  # type: ignore[arg-type]
    assert GenerationMixin().generate(shaped(2, 4)).shape == (2, 9)
    assert names(put[:2]) == ["generation", None]
    assert put[2:] == [
        (AGGREGATE, {**CALL, "prompt_tokens": 8, "completions": 2, "new_tokens": 10}, {"generate_batch": 2.0})
    ]


def test_the_calls_of_one_step_are_one_figure() -> None:
    assembler = Assembler(ProcessState(), "MainThread", is_main=True)
    loop = Loop(None, None, None)
    for batches in ((8, 2, 2), (4,)):
        assembler.add_entry((STEP, 0, loop))
        for batch in batches:
            assembler.add_entry(
                (AGGREGATE, {"generate_calls": 1, "new_tokens": 5 * batch}, {"generate_batch": float(batch)})
            )
            assembler.add_entry((AGGREGATE, {"reward_seconds/a": 0.5}, {}))
        assembler.add_entry((END, 1, loop))
    assembler.add_entry((AGGREGATE, {"generate_calls": 1}, {"generate_batch": 3.0}))  # between steps
    first, second, between = assembler.events
    assert isinstance(first, PlainStep) and isinstance(second, PlainStep) and isinstance(between, dict)
    assert first.metrics == {
        "generate_calls": 3,
        "new_tokens": 60,
        "generate_batch": pytest.approx(4.0),
        "reward_seconds/a": 1.5,
    }
    assert second.metrics is not None and second.metrics["generate_batch"] == 4.0
    assert between["values"] == {"generate_calls": 1, "generate_batch": 3.0}


class Trainer:
    """Stands for a GRPOTrainer."""


@pytest.fixture(params=["class", "generator"])
def profiling(request: pytest.FixtureRequest) -> Any:
    """`trl.extras.profiling` as TRL has it now, and as it had it at first."""
    module = ModuleType("trl.extras.profiling")
    if request.param == "class":

        class ProfilingContext:
            def __init__(self, name: str) -> None:
                self.name = name

            def __enter__(self) -> ProfilingContext:
                return self

            def __exit__(self, *error: object) -> bool:
                return False

        module.ProfilingContext = ProfilingContext  # type: ignore[attr-defined]
        trl_adapter.wrap_profiling(module)
        return lambda name: ProfilingContext(f"GRPOTrainer.{name}")

    @contextlib.contextmanager
    def profiling_context(trainer: Any, name: str) -> Iterator[None]:
        yield

    module.profiling_context = profiling_context  # type: ignore[attr-defined]
    trl_adapter.wrap_profiling(module)
    return lambda name: module.profiling_context(Trainer(), name)


def test_trls_sections_are_phases_and_reward_functions_are_told_apart(
    profiling: Any, put: list[tuple[Any, ...]]
) -> None:
    with profiling("_prepare_inputs"):
        with profiling("transformers.generate"):
            pass
        with profiling("_get_per_token_logps_and_entropies"):
            pass
        with profiling("_calculate_rewards"), profiling("of.a\x1b[31muser"):
            pass
    with profiling("compute_loss"), profiling("_get_per_token_logps_and_entropies"):
        assert framework.open_phases == 0  # the policy's own forward pass
    with profiling("something new"):
        pass
    entered = [entry for entry in put if entry[0] != AGGREGATE]
    assert names(entered) == [
        *("advantage", "generation", None, "log_probs", None, "reward", None, None),
    ]
    (tally,) = [entry for entry in put if entry[0] == AGGREGATE]
    assert list(tally[1]) == ["reward_seconds/of.a [31muser"]
    assert tally[1]["reward_seconds/of.a [31muser"] >= 0


def fit(**settings: Any) -> Any:
    defaults = {"max_steps": -1, "max_epochs": None, "num_training_batches": 9, "accumulate_grad_batches": 2}
    module = SimpleNamespace(automatic_optimization=settings.pop("automatic", True))
    return SimpleNamespace(**{**defaults, **settings}, lightning_module=module)


@pytest.mark.parametrize(
    ("trainer", "steps"),
    [
        (fit(max_epochs=2), 10),
        (fit(max_epochs=2, max_steps=7), 7),
        (fit(max_epochs=2, max_steps=70), 10),
        (fit(max_epochs=-1), None),
        (fit(max_epochs=-1, max_steps=5), 5),
        (fit(max_epochs=2, num_training_batches=float("inf")), None),
        (fit(max_epochs=2, automatic=False), None),
    ],
)
def test_lightnings_steps_are_told_where_they_are_known(trainer: Any, steps: int | None) -> None:
    assert lightning_adapter.total_steps(trainer) == steps


def test_a_shards_place_is_read_from_its_name() -> None:
    assert transformers_adapter.shard_name((None, "/models/x/model-00003-of-00004.safetensors", {})) == "load shard 3/4"
    assert transformers_adapter.shard_name((None, "/models/x/model.safetensors")) is None


def test_downloads_are_told_with_their_bytes(put: list[tuple[Any, ...]]) -> None:
    module = ModuleType("huggingface_hub.file_download")

    def http_get(url: str, temp_file: Any, *, retries: int = 1, **_: Any) -> None:
        temp_file.write(b"x" * 500)
        if retries:  # as after a connection that broke
            module.http_get(url, temp_file, retries=0)

    module.http_get = http_get  # type: ignore[attr-defined]
    huggingface_hub_adapter.wrap_downloads(module)
    before = huggingface_hub_adapter.downloads.bytes
    module.http_get("https://example.org/x", io.BytesIO(b""))
    assert names(put[:2]) == ["download", None]
    ((kind, known),) = put[2:]
    assert kind == FACTS
    assert known["facts"]["download"]["bytes"] == before + 1000


@pytest.mark.long
def test_the_callback_can_be_had_by_hand_without_a_launcher(tmp_path: Path) -> None:
    script = """
import sys, tempfile
sys.path.insert(0, "tests/auto/scripts")
import hf_tiny
from transformers import Trainer, TrainingArguments
from trainhooks.auto.transformers import TrainmonCallback
with tempfile.TemporaryDirectory() as directory:
    arguments = TrainingArguments(directory, max_steps=4, logging_steps=1, report_to=[], use_cpu=True)
    rows, model = hf_tiny.encoded(16), hf_tiny.model()
    callbacks = [TrainmonCallback()]
    Trainer(model, arguments, data_collator=hf_tiny.padded, train_dataset=rows, callbacks=callbacks).train()
"""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    environment["TRAINMON_DIR"] = str(tmp_path)
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100
    )
    assert ended.returncode == 0, ended.stderr
    assert "already one" not in ended.stderr
    (run,) = (tmp_path / "runs").iterdir()
    (journal,) = run.glob("rank-0-*.jsonl")
    assert journal.read_text().count('"total_steps":4') == 1
    events = events_in(journal)
    assert [event["index"] for event in events if event["kind"] == "step"] == [1, 2, 3, 4]
    logged = [event.get("metrics", event.get("values", {})) for event in events]
    assert sum("grad_norm" in metrics for metrics in logged) == 4
