"""The pages that explain findings: complete, in step with the rules' own thresholds, true to the libraries, shown."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pexpect
import pytest

from monitor import xids
from monitor.diagnosis import explain, waiting
from monitor.diagnosis.explain import CODES, HEADINGS, NOT_YET
from monitor.reports.pages import page_text

ROOT = Path(__file__).resolve().parents[1]
RULES = ROOT / "monitor" / "diagnosis"
PAGES = RULES / "pages"
VERDICT = "none"  # made by the registry itself where no rule speaks


# Rules, as their source has them


def modules_of_rules() -> dict[str, ast.Module]:
    """The modules of `monitor.diagnosis` that the registry reaches: those whose rules are run."""
    found: dict[str, ast.Module] = {}
    waiting_for = ["registry"]
    while waiting_for:
        name = waiting_for.pop()
        if name in found or not (RULES / f"{name}.py").exists():
            continue
        found[name] = ast.parse((RULES / f"{name}.py").read_text(encoding="utf-8"))
        for node in ast.walk(found[name]):
            if isinstance(node, ast.ImportFrom) and node.module == "monitor.diagnosis":
                waiting_for += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("monitor.diagnosis."):
                waiting_for.append(str(node.module).removeprefix("monitor.diagnosis."))
    return found


def rules() -> Iterator[tuple[str, str, ast.FunctionDef]]:
    """Every rule that is run, by its code: a rule is named after it."""
    for name, module in modules_of_rules().items():
        for node in module.body:
            if isinstance(node, ast.FunctionDef) and (code := node.name.replace("_", "-")) in CODES:
                yield code, name, node


def detected() -> set[str]:
    return {code for code, _, _ in rules()} | {VERDICT}


def codes_told() -> set[str]:
    """Every code that stands in the source where a finding is made."""
    calls = [node for module in modules_of_rules().values() for node in ast.walk(module) if isinstance(node, ast.Call)]
    made = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Finding"]
    return {call.args[0].value for call in made if isinstance(call.args[0], ast.Constant)}


def section(code: str, heading: str, text: str | None = None) -> str:
    sections = dict(explain.parsed(text).sections if text is not None else explain.page(code).sections)
    return sections[heading]


def as_written(code: str) -> str:
    return section(code, "How it is detected", explain.source(code))


def test_every_code_has_a_page_and_every_page_a_code() -> None:
    assert len(set(CODES)) == len(CODES)
    assert {path.stem for path in PAGES.iterdir()} == set(CODES)
    assert {path.suffix for path in PAGES.iterdir()} == {".md"}


def test_every_finding_that_is_made_has_a_page() -> None:
    told = codes_told()
    assert "input-bound" in told
    assert told <= set(CODES), "write a page in monitor/diagnosis/pages and name it in explain.FAMILIES"


def test_every_rule_of_the_registry_is_named_after_its_code() -> None:
    from monitor.diagnosis.registry import RULES as registered

    assert {rule.__name__.replace("_", "-") for rule in registered} <= detected()


@pytest.mark.parametrize("code", CODES)
def test_a_page_has_its_parts_in_order(code: str) -> None:
    text = explain.source(code)
    page = explain.parsed(text)
    headings = tuple(heading for heading, _ in page.sections)
    assert (page.code, text.partition(":")[0]) == (code, f"# {code}")
    assert headings in (HEADINGS, HEADINGS[:4])
    assert all(body for _, body in page.sections)
    assert 0 < len(page.line) <= 52  # beside the longest code on 80 columns
    assert len(text.splitlines()) <= 26
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("code", CODES)
def test_thresholds_are_those_of_the_code(code: str) -> None:
    """Each number in how it is detected comes from a constant, and each constant that the rule uses is told."""
    raw = as_written(code)
    plain = re.sub(r"\{[^}]*\}|`[^`]*`", "", raw)
    plain = re.sub(r"\d+th percentile", "", plain)
    assert not re.search(r"(?<![A-Za-z0-9])\d", plain), "quote the constant: {diagnosis.module.NAME}"
    assert "{" not in page_text(explain.page(code), 100)
    told = set(explain.quotes(raw))
    for rule, module, function in rules():
        if rule == code:
            names = {
                node.id
                for node in ast.walk(function)
                if isinstance(node, ast.Name) and node.id.isupper() and node.id != "SHOWN"
            }
            used = {(f"diagnosis.{module}", name) for name in names if _is_number(module, name)}
            assert used <= told, f"{code}.md does not tell {sorted(used - told)}"


def _is_number(module: str, name: str) -> bool:
    try:
        explain.quoted(f"diagnosis.{module}", name)
    except (AttributeError, TypeError, ValueError):
        return False
    return True


@pytest.mark.parametrize("code", CODES)
def test_a_page_says_that_there_is_no_rule_exactly_where_there_is_none(code: str) -> None:
    has_rule = code in detected()
    assert explain.page(code).detected == has_rule, (
        f"{code} has a rule now: tell its thresholds, and take `{NOT_YET}` out" if has_rule else f"say: {NOT_YET}"
    )


def test_quotes_are_filled_in_from_their_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "at least 15 % of step time" in section("input-bound", "How it is detected")
    monkeypatch.setattr(waiting, "INPUT_WORTH", 0.125)
    assert "at least 12.5 % of step time" in section("input-bound", "How it is detected")
    assert explain.filled("{diagnosis.drift.SLOWER:+%} {diagnosis.drift.LEAST_SECONDS:ms}") == "20 % 5"
    assert explain.filled("{diagnosis.settings.SWAP_GROWTH:MiB} {model.episodes.LONGER_HOLD[low clocks]}") == "256 30"


# What the pages say


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("fp32-matmul", "TF32 does nothing for bf16"),
        ("checkpointing-unneeded", "trades time for memory"),
        ("input-bound", "`pin_memory` helps only copies to a GPU"),
        ("input-bound", "More workers than usable cores hurt"),
        ("steps-skipped", "skipped steps now run is progress"),
        ("gpu-starved", "High utilisation is not high efficiency"),
        ("power-capped", "A power cap is not a fault"),
        ("below-expected", "A bigger model is supposed to be slower: compare FLOPs"),
        ("below-expected", "the output projection does"),
        ("sequential-batching", "changes with accumulation"),
        ("duplicate-forward", "costs at most half of the step"),
        ("padding-waste", "`max_length` changes nothing"),
    ],
)
def test_where_the_folklore_is_wrong(code: str, says: str) -> None:
    text = " ".join(page_text(explain.page(code), 100).split())
    assert says in text


def test_the_error_codes_are_those_that_findings_tell_apart() -> None:
    rows = {row for row in section("gpu-error", "What to do").split("\n- ") if row[:2].isdigit()}
    (program,) = (row for row in rows if "the program" in row)
    assert set(map(int, re.findall(r"(?<![=\w])\d+", program))) == xids.OF_THE_PROGRAM
    (hardware,) = rows - {program}
    assert set(map(int, re.findall(r"(?<![=\w])\d+", hardware))) >= xids.GRAVE


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
    "trl": ["trainer/sft_config.py", "trainer/grpo_config.py"],
    "lightning": ["pytorch/trainer/trainer.py", "pytorch/callbacks/model_checkpoint.py"],
    "accelerate": ["accelerator.py"],
    "datasets": ["arrow_dataset.py"],
    "numpy": ["lib/_npyio_impl.py"],
}  # fmt: skip
# Python's own, the journal's, a shell's, an environment variable's, and an older version's, which is called so.
OTHERS = frozenset(("cores", "expandable_segments", "group_by_length", "perf_counter", "save_checkpoint"))


def test_recommended_arguments_exist() -> None:
    known: set[str] = set()
    for library, files in LIBRARIES.items():
        spec = find_spec(library)
        assert spec is not None
        assert spec.origin is not None
        for file in files:
            known |= set(re.findall(r"\w+", (Path(spec.origin).parent / file).read_text(encoding="utf-8")))
    spans = [span for code in CODES for span in re.findall(r"`([^`]*)`", explain.source(code))]
    named = {
        name for span in spans for name in re.findall(r"\b([a-z]+(?:_[a-z0-9]+)*)=|\b([a-z]+(?:_[a-z]+)+)\b", span)
    }
    words = {word for pair in named for word in pair if word}
    assert {"dataloader_num_workers", "val_check_interval", "packing", "num_generations"} <= words
    assert sorted(words - known - OTHERS) == []


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
        line = explain.page(code).line
        assert rows[code] == (line if code in detected() else f"{line} *")
    assert max(map(len, told.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("inputbound", "did you mean input-bound?"),
        ("Power_Brake", "did you mean power-brake?"),
        ("oom", "did you mean oom-risk?"),
        ("thermal", "did you mean thermal-throttle?"),
        ("../../cli", "`trainmon explain` lists them all"),
        ("{model.pace.X}", "lists them all"),
        ("\x1b[31mred\x1b]52;c;aGk=\a\nsecond line\u202e", "no finding called '[31mred ]52;c;aGk= second line'"),
        ("x" * 100_000, "lists them all"),
        ("", "lists them all"),
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
    assert "\x1b[1mWhat it means\x1b[0m" in text
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
