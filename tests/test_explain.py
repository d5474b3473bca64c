"""The pages that explain findings: one for each rule, with the rules' own thresholds, true to the libraries."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pexpect
import pytest

from monitor import gpu_lines
from monitor.diagnosis import explain
from monitor.diagnosis.diagnose import BY_CODE, RULES
from monitor.diagnosis.explain import CODES, HEADINGS
from monitor.diagnosis.rule import Family, Rule, rule
from monitor.diagnosis.rules import waiting
from monitor.diagnosis.verdict import NO_FINDING
from monitor.reports.finding_pages import page_text
from tests import findings_list
from trainhooks.protocol import calls

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "monitor" / "diagnosis" / "pages"
MAX_LINES, MAX_TITLE = 30, 52  # of a page as it is written; beside the longest code on 80 columns
DISPLAY = re.compile(
    r"MAX_EVENTS|MAX_TESTS|MAX_NOTE_LINES|MAX_\w*ROWS|MAX_SHAPES|MAX_\w+_REASONS|MAX_STEPS|MOST_CHANGES|MAX_GROWN_PHASES"
)


def section(code: str, heading: str, text: str | None = None) -> str:
    sections = dict(explain.parse_page(text).sections if text is not None else explain.read_page(code).sections)
    return sections[heading]


# Rules and pages


def test_each_rule_has_a_page_and_each_page_a_rule() -> None:
    assert {path.name for path in PAGES.iterdir()} == {f"{code}.md" for code in (*BY_CODE, NO_FINDING)}
    assert sorted(CODES) == sorted((*BY_CODE, NO_FINDING))


def test_two_rules_with_one_code_are_refused() -> None:
    with pytest.raises(ValueError, match="input-bound"):
        rule("input-bound", Family.WAITING)(lambda evidence: None)


def test_rules_refer_to_codes_that_exist() -> None:
    for known in RULES:
        codes = {code for row in known.suppresses for code in row.codes} | set(known.softens)
        assert codes <= set(BY_CODE) - {known.code}, known.code


def test_findings_carry_the_code_of_a_rule() -> None:
    """Each literal code in a module of rules is that of a rule in the same module."""
    for path in (ROOT / "monitor" / "diagnosis" / "rules").glob("*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
        made = {
            word.value.value
            for call in calls
            if isinstance(call.func, ast.Name) and call.func.id == "Finding"
            for word in call.keywords
            if word.arg == "code" and isinstance(word.value, ast.Constant)
        }
        assert made <= {known.code for known in RULES if known.check.__module__.endswith(f".{path.stem}")}, path.name


def test_the_list_of_findings_in_the_docs_is_current() -> None:
    shown = findings_list.PATH.read_text(encoding="utf-8")
    assert shown == findings_list.text(), "renew it: python -m tests.findings_list"


@pytest.mark.parametrize("code", CODES)
def test_a_page_has_its_sections_in_order(code: str) -> None:
    text = explain.read_page_source(code)
    page = explain.parse_page(text)
    headings = tuple(heading for heading, _ in page.sections)
    assert (page.code, text.partition(":")[0]) == (code, f"# {code}")
    assert headings in (HEADINGS, HEADINGS[:4])
    assert all(body for _, body in page.sections)
    assert 0 < len(page.line) <= MAX_TITLE
    assert len(text.splitlines()) <= MAX_LINES
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("known", RULES, ids=lambda known: known.code)
def test_a_page_quotes_the_thresholds_of_its_rule(known: Rule) -> None:
    """Each number in `Detection` comes from a constant, and each constant that the rule's function uses is quoted."""
    raw = section(known.code, "Detection", explain.read_page_source(known.code))
    plain = re.sub(r"\{[^}]*\}|`[^`]*`|\d+th percentile|16 bits", "", raw)
    assert not re.search(r"(?<![A-Za-z0-9])\d", plain), "quote the constant: {diagnosis.rules.module.NAME}"
    assert "{" not in page_text(explain.read_page(known.code), 100)
    module = known.check.__module__.removeprefix("monitor.")
    names = {node.id for node in ast.walk(ast.parse(inspect.getsource(known.check))) if isinstance(node, ast.Name)}
    used = {name for name in names if name.isupper() and not DISPLAY.fullmatch(name) and is_number(module, name)}
    used = {name for name in used if not hasattr(calls, name)}  # what a call does is no threshold
    missing = used - {name for _, name in explain.quoted_constants(raw)}
    assert not missing, f"{known.code}.md does not quote {sorted(missing)}"


def is_number(module: str, name: str) -> bool:
    try:
        explain.constant_value(module, name)
    except (AttributeError, TypeError, ValueError):
        return False
    return True


def test_quotes_are_filled_in_from_their_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "At least 20% of the time" in section("unaccounted-time", "Detection")
    monkeypatch.setattr(waiting, "USUAL_UNNAMED", 0.125)
    assert "At least 12.5% of the time" in section("unaccounted-time", "Detection")
    text = "{diagnosis.rules.slowdown.MIN_DRIFT:+%} {diagnosis.rules.slowdown.MIN_DRIFT_SECONDS:ms}"
    assert explain.fill_constants(text) == "20% 1"
    text = "{diagnosis.rules.host_limits.MIN_SWAP_GROWTH:MiB}"
    text += " {model.device.throttle_events.LONGER_HOLD_SECONDS[low clocks]}"
    assert explain.fill_constants(text) == "256 30"


# What the pages say


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("fp32-matmul", "TF32 does nothing for bf16"),
        ("checkpointing-unneeded", "trades time for memory"),
        ("input-bound", "`pin_memory` helps only copies to a GPU"),
        ("input-bound", "More workers than usable cores hurt"),
        ("steps-skipped", "skipped steps now run is progress"),
        ("gpu-starved", "High utilization is not high efficiency"),
        ("power-capped", "A power cap is not a fault"),
        ("below-expected", "A bigger model is supposed to be slower: compare FLOPs"),
        ("below-expected", "the output projection does"),
        ("sequential-batching", "changes with accumulation"),
        ("duplicate-forward", "costs at most half of the step"),
        ("padding-waste", "`max_length` changes nothing"),
    ],
)
def test_pages_correct_misconceptions(code: str, says: str) -> None:
    text = " ".join(page_text(explain.read_page(code), 100).split())
    assert says in text


def test_the_gpu_error_page_sorts_the_codes_as_the_rule_does() -> None:
    rows = {row for row in section("gpu-error", "Fix").split("\n- ") if row[:2].isdigit()}
    (program,) = (row for row in rows if "the program" in row)
    assert set(map(int, re.findall(r"(?<![=\w])\d+", program))) == gpu_lines.OF_THE_PROGRAM
    (hardware,) = rows - {program}
    assert set(map(int, re.findall(r"(?<![=\w])\d+", hardware))) >= gpu_lines.GRAVE


# Where an argument that a page recommends has to be known.
LIBRARIES = {
    "torch": [
        "utils/data/dataloader.py", "optim/adamw.py", "nn/functional.py", "nn/utils/clip_grad.py",
        "_dynamo/config.py", "_dynamo/decorators.py", "__init__.py", "cuda/memory.py", "nn/modules/module.py",
        "autograd/anomaly_mode.py", "_tensor.py", "amp/autocast_mode.py", "distributed/checkpoint/state_dict_saver.py",
        "cuda/__init__.py", "backends/cuda/__init__.py", "autograd/grad_mode.py", "profiler/profiler.py",
        "_logging/_registrations.py",
    ],
    "transformers": [
        "training_args.py", "trainer.py", "modeling_utils.py", "tokenization_utils_base.py",
        "generation/configuration_utils.py", "data/data_collator.py",
    ],
    "trl": ["trainer/sft_config.py", "trainer/grpo_config.py", "trainer/grpo_trainer.py"],
    "lightning": ["pytorch/trainer/trainer.py", "pytorch/callbacks/model_checkpoint.py"],
    "accelerate": ["accelerator.py"],
    "gymnasium": ["envs/registration.py"],
    "datasets": ["arrow_dataset.py"],
    "numpy": ["lib/_npyio_impl.py"],
}  # fmt: skip
# Python's own, the journal's, a shell's, an environment variable's, and an older version's, which is called so.
OTHERS = frozenset((
    "cores", "expandable_segments", "group_by_length", "perf_counter", "save_checkpoint", "weight_sync",
))  # fmt: skip
# Of metrics: verl's, and those that a program may log.
METRICS = frozenset(
    ("clip_ratio", "kl_loss", "parse_fail", "parse_rate", "response_length", "zero_advantage", "zero_std")
)


def test_recommended_arguments_exist() -> None:
    known: set[str] = set()
    for library, files in LIBRARIES.items():
        spec = find_spec(library)
        assert spec is not None
        assert spec.origin is not None
        for file in files:
            known |= set(re.findall(r"\w+", (Path(spec.origin).parent / file).read_text(encoding="utf-8")))
    spans = [span for code in CODES for span in re.findall(r"`([^`]*)`", explain.read_page_source(code))]
    named = {
        name for span in spans for name in re.findall(r"\b([a-z]+(?:_[a-z0-9]+)*)=|\b([a-z]+(?:_[a-z]+)+)\b", span)
    }
    words = {word for pair in named for word in pair if word}
    assert {"dataloader_num_workers", "val_check_interval", "packing", "num_generations"} <= words
    assert sorted(words - known - OTHERS - METRICS) == []


# The command line


def trainmon(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "monitor", "explain", *words],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_page_through_a_pipe_is_plain_markdown() -> None:
    told = trainmon("input-bound", TERM="xterm-256color")
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.startswith("# input-bound: ")
    assert [line[3:] for line in told.stdout.splitlines() if line.startswith("## ")] == list(HEADINGS)
    assert "\x1b" not in told.stdout


def test_without_a_code_all_are_listed_with_their_lines() -> None:
    told = trainmon()
    assert told.returncode == 0
    rows = {row[0]: row[1] for line in told.stdout.splitlines() if (row := line.split(maxsplit=1))[1:]}
    for code in CODES:
        assert rows[code] == explain.read_page(code).line
    assert max(map(len, told.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("inputbound", "did you mean input-bound?"),
        ("Power_Brake", "did you mean power-brake?"),
        ("oom", "did you mean oom-risk?"),
        ("thermal", "did you mean thermal-throttle?"),
        ("../../cli", "`trainmon explain` lists"),
        ("{model.steps.pace.X}", "`trainmon explain` lists"),
        ("\x1b[31mred\x1b]52;c;aGk=\a\nsecond line\u202e", "no finding called '[31mred ]52;c;aGk= second line'"),
        ("x" * 100_000, "`trainmon explain` lists"),
        ("", "`trainmon explain` lists"),
    ],
)
def test_an_unknown_code_is_one_line(word: str, says: str) -> None:
    told = trainmon(word)
    (line,) = told.stderr.splitlines()
    assert (told.returncode, told.stdout) == (2, "")
    assert says in line
    assert line.isprintable()
    assert len(line) < 200


@pytest.mark.parametrize("columns", [60, 200])
def test_a_page_on_a_terminal_fits_it(columns: int) -> None:
    environment = {**os.environ, "TERM": "xterm-256color"}
    environment.pop("COLUMNS", None)
    shown = pexpect.spawn(
        sys.executable,
        ["-m", "monitor", "explain", "slow-steps"],
        cwd=str(ROOT),
        env=environment,
        timeout=60,
        dimensions=(40, columns),
        encoding="utf-8",
    )
    text = shown.read()
    shown.close()
    assert shown.exitstatus == 0
    assert "\x1b[1mMeaning\x1b[0m" in text
    assert "#" not in text
    widest = max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in text.splitlines())
    assert 50 < widest <= min(columns, 100)


def test_the_wheel_holds_the_pages(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        check=True,
        timeout=100,
    )
    (wheel,) = tmp_path.glob("*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("monitor/diagnosis/pages/")}
    assert held == {f"monitor/diagnosis/pages/{code}.md" for code in CODES}
