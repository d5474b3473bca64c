"""What README.md and the pages in docs/ say holds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from dataclasses import fields
from pathlib import Path

import pytest

from monitor import settings
from monitor.cli import cli
from monitor.commands import progress
from monitor.console import reading
from monitor.console.user_patterns import compile_pattern, read_pattern
from monitor.diagnosis.rules import regression
from monitor.keymap import DEFAULT_KEYS, SCREENS
from monitor.model.report import Report, Throughput
from monitor.model.steps import baseline, pace
from monitor.reports import card
from monitor.running import stopping
from monitor.runs import retention
from monitor.runs.follow import load
from monitor.tui import refresh_rate
from tests.zoo.cases import CASES
from trainhooks import tracing
from trainhooks.auto.operations import op_inspection
from trainhooks.device import deferred, device_lane, device_sampling
from trainhooks.protocol import control, rundir
from trainhooks.recording import frames

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))}
DOCS = "\n".join([README, *PAGES.values()])
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
DECISIONS = {
    path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs" / "decisions").glob("0*.md"))
}
SECURITY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def block(after: str, text: str = README) -> str:
    """Return the first code block after a text."""
    found = re.search(r"```\w*\n(.*?)```", text[text.index(after) :], re.DOTALL)
    assert found
    return found.group(1)


def lines_of(name: str) -> int:
    return len((ROOT / name).read_text(encoding="utf-8").splitlines())


def test_the_lines_shown_do_what_they_say(tmp_path: Path) -> None:
    given = "problems, write, run_tests = range(12), str, bool\n"
    (tmp_path / "train.py").write_text(given + block("## Add detail"), encoding="utf-8")
    environment = {**os.environ, rundir.STATE_VARIABLE: str(tmp_path / "state")}

    def trainmon(*words: str) -> str:
        command = [sys.executable, "-m", "monitor", *words]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout

    trainmon("run", "--no-tui", "--", sys.executable, str(tmp_path / "train.py"))
    told = json.loads(trainmon("report", "last", "--json"))
    assert (told["progress"]["steps_done"], told["progress"]["steps_total"]) == (12, 12)
    assert {"generation", "execution"} <= {row["name"] for row in told["phases"]}
    assert told["metrics"]["reward"]["count"] == 12


def test_the_card_shown_is_that_of_a_recorded_run(tmp_path: Path) -> None:
    with tarfile.open(ROOT / "tests" / "gpu_check" / "recorded" / "h100.tar.xz") as archive:
        members = [each for each in archive.getmembers() if each.name.startswith("sick_lora_sft/")]
        archive.extractall(tmp_path, members, filter="data")
    (run,) = tmp_path.glob("sick_lora_sft/runs/*")
    assert block("card follows on stderr") == card.text(load(run))


ROWS = {
    found[1]: line for line in PAGES["commands.md"].splitlines() if (found := re.match(r"\| `trainmon (\w+)", line))
}


@pytest.mark.parametrize("verb", sorted(ROWS))
def test_every_option_in_the_table_exists(verb: str) -> None:
    command = cli.commands[verb]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    assert set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", ROWS[verb])) <= known


def test_every_command_is_documented() -> None:
    assert {name for name in cli.commands if f"trainmon {name}" not in PAGES["commands.md"]} == set()


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) < 130
    assert max(map(len, README.splitlines())) <= 100


@pytest.mark.parametrize("option", ["--on-alert", "--bell", "--low-bandwidth"])
def test_run_and_attach_share_their_options(option: str) -> None:
    assert option in PAGES["commands.md"]
    for verb in ("run", "attach"):
        assert any(option in parameter.opts for parameter in cli.commands[verb].params), verb


# The configuration


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(rundir.STATE_VARIABLE, str(tmp_path))
    page = PAGES["configuration.md"]
    shown = block("may not repeat a repetition", page) + block("TRAINMON_SCREEN_THEME", page)
    (tmp_path / settings.FILE_NAME).write_text(shown, encoding="utf-8")


def test_the_configuration_shown_is_accepted(configured: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (settings.amount("run", "price"), settings.amount("run", "expect_tps")) == (2.49, 12000.0)
    assert (settings.theme(), settings.saves_bandwidth(False)) == ("paper", True)
    assert settings.bounds() == settings.Bounds(0.5, 2.0)
    assert settings.table("alerts") == {"bell": True, "command": "notify-me"}
    documented = dict(re.findall(r"`(TRAINMON_\w+)=(\w+)`", DOCS))
    for switch in (frames.FRAMES_VARIABLE, device_lane.CLOCK_VARIABLE, op_inspection.OPS_VARIABLE):
        assert documented.pop(switch) == "0"
    assert documented.pop(tracing.VARIABLE) == documented.pop(control.VARIABLE) == "0"
    ((name, value),) = documented.items()
    (Path(settings.path())).write_text("")
    monkeypatch.setenv(name, value)
    assert settings.theme() == "paper"


def test_the_pattern_shown_reads_its_line(configured: None) -> None:
    reading = read_pattern("round 3 of 10: energy -1.5", settings.patterns())
    assert reading is not None
    assert (reading.step, reading.total, reading.metrics) == (3, 10, {"energy": -1.5})


@pytest.mark.parametrize(
    "group", ["step", "total", "epoch", "seconds", "elapsed", "role", "reason", "tokens_per_second"]
)
def test_the_groups_of_a_pattern(group: str) -> None:
    assert f"`{group}`" in PAGES["configuration.md"]
    reading = read_pattern("it says 7", (compile_pattern(rf"says (?P<{group}>\S+)"),))
    assert reading is not None
    field = {"tokens_per_second": "tokens_rate"}.get(group, group)
    assert getattr(reading, field) in (7, 7.0, "7")
    assert not reading.metrics


# The screens, the keys, the report


def test_the_letters_of_the_screens() -> None:
    (sentence,) = re.findall(r"A letter opens a screen: (.*?)\. ", DOCS, re.DOTALL)
    documented = dict(re.findall(r"`(\w)`\s+(\w+)", sentence))
    assert documented == {action.keys[0]: action.footer or action.setting for action in SCREENS.values()}


@pytest.mark.parametrize(("key", "does"), [("q", "detach"), ("?", "help"), (":", "palette")])
def test_the_other_keys(key: str, does: str) -> None:
    assert f"`{key}`" in DOCS
    assert key in DEFAULT_KEYS[does]


def test_the_keys_of_the_report() -> None:
    known = {field.name for field in fields(Report)} | {f"throughput.{field.name}" for field in fields(Throughput)}
    documented = set(re.findall(r"`(throughput\.\w+|to_try)`", DOCS))
    assert len(documented) == 9
    assert documented <= known


# The numbers


@pytest.mark.parametrize(
    ("sentence", "holds"),
    [
        ("after 30 seconds SIGTERM, after 30 more SIGKILL", stopping.STOP_WAITS[:2] == (30, 30)),
        ("took longer than 0.25 s", refresh_rate.SLOW_SECONDS == 0.25),
        ("as long again, at most 0.75 s", refresh_rate.MAX_HEADER_PAUSE == 0.75),
        (
            "the header once a second, the panels every five seconds",
            (refresh_rate.LOW_HEADER_SECONDS, refresh_rate.LOW_PANELS_SECONDS) == (1, 5),
        ),
        ("`--json` a report a second", progress.OBJECT_SECONDS == 1),
        ("beyond 400 runs or 20 GiB", (retention.KEEP_RUNS, retention.KEEP_BYTES) == (400, 20 << 30)),
        ("touched within a day", retention.MIN_AGE == 24 * 3600),
        ("runs 150 sick and healthy trainings", len(CASES) == 150),
        ("the last half minute, or ten steps", (pace.RECENT_SECONDS, pace.RECENT_STEPS) == (30, 10)),
        ("by six robust standard deviations", baseline.SIGMAS == 6),
        ("half as long again", baseline.MIN_SLOW_RATIO == 1.5),
        ("by 20 ms", baseline.MIN_EXCESS_SECONDS == 0.02),
        ("above what one step in sixteen takes anyway", round(1 / baseline.HABIT_SHARE) in (16, 17)),
        ("among the last 128 steps", baseline.WINDOW == 128),
        ("run that is a quarter slower", regression.MIN_REGRESSION == 1.25),
        ("sees the first 4 KiB of a line", reading.MAX_LINE_CHARACTERS == 4096),
        ("as many as cost at most 0.5% of the time", device_sampling.BUDGET == 0.005),
        ("the first three always", device_sampling.FIRST_STEPS == 3),
        ("is read ten times a second at most", deferred.MIN_COPY_INTERVAL_NS == 10**8),
        ("C++ has [a header](demo/cpp/trainmon.hpp)", lines_of("demo/cpp/trainmon.hpp") <= 200),
    ],
)
def test_numbers_are_those_of_the_code(sentence: str, holds: bool) -> None:
    assert sentence in " ".join(DOCS.split())
    assert holds


def test_each_safety_claim_of_the_readme_is_in_security_md() -> None:
    """README says it in few words and refers to SECURITY.md, where `tests/security/test_claims.py` finds each test."""
    claims = " ".join(SECURITY.split())
    survives = README[README.index("[Costs and accuracy]") :]
    assert "](SECURITY.md)" in survives
    for word in (
        "closed terminal",
        "killed dashboard",
        "recorder",
        "full disk",
        "read-only",
        "stopped viewer",
        "exit code",
    ):
        assert word in claims, word


# The rest


def test_a_demo_waits_for_nothing_that_only_tests_need(tmp_path: Path) -> None:
    words = ["make", "--dry-run", "demo", f"VENV={tmp_path}"]
    said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "'.[demo]'" in said and "run --name demo" in said
    assert "dev" not in said.replace(str(tmp_path), "")


def test_the_command_that_passes_the_tests_is_the_first_that_runs_on_a_clean_clone() -> None:
    shown = [line.partition("#")[0].strip() for line in block("## Install").splitlines()]
    assert {"make demo", "make test"} <= set(shown)
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    commands = [line for line in script if line and not line.startswith(("#", "set ", "cd "))]
    assert commands[0] == "make test"


def test_the_way_to_the_demo_is_read_in_a_minute() -> None:
    beginning = README.partition("## Use it")[0]
    assert "make demo" in beginning
    assert len(beginning.split()) < 250  # what people read in a minute


PLACE = re.compile(r"`([\w/]+(?:\.py|/))`")


@pytest.mark.parametrize("package", ["monitor", "trainhooks"])
def test_every_room_of_the_house_is_in_the_architecture(package: str) -> None:
    rows = [line for line in ARCHITECTURE.splitlines() if line.startswith("| `")]
    places = [place for row in rows for place in PLACE.findall(row.split("|")[1])]
    assert len(places) == len(set(places)), "a place is listed twice"
    home = ROOT / package
    known = {path.name for path in home.iterdir() if path.suffix == ".py" and "__" not in path.name}
    known |= {f"{path.parent.relative_to(home)}/" for path in home.glob("*/**/__init__.py")}
    listed = {place.removeprefix(f"{package}/") for place in places}
    assert known - listed == set()


def test_no_place_of_the_architecture_is_gone() -> None:
    for row in (line for line in ARCHITECTURE.splitlines() if line.startswith("| `")):
        first, *others = PLACE.findall(row.split("|")[1])
        for place in (first, *(f"{first.split('/')[0]}/{other}" for other in others)):
            assert (ROOT / place).exists(), place


def test_every_module_of_a_walk_exists_and_is_counted_once() -> None:
    walks = ARCHITECTURE[ARCHITECTURE.index("## Two walks") :].split("\n### ")[1:]
    assert len(walks) == 2
    for walk in walks:
        stages = re.findall(r"^\d+\. `([\w/]+\.py)`: ", walk, re.MULTILINE)
        assert len(stages) == len(set(stages)) == int(re.findall(r"(\d+) modules, one direction", walk)[0])
        names = {path.name for package in ("monitor", "trainhooks") for path in (ROOT / package).rglob("*.py")}
        for place in PLACE.findall(walk):
            assert (ROOT / place).exists() if "/" in place else place in names, place


def test_the_architecture_is_read_in_five_minutes() -> None:
    assert len(ARCHITECTURE.splitlines()) <= 150


def test_every_decision_is_a_short_record_in_the_list() -> None:
    page = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    for name, text in DECISIONS.items():
        number = name[:3]
        assert text.startswith(f"# {number}: ") and f"[{number}]({name})" in page
        assert re.findall(r"^## (.*)", text, re.MULTILINE) == ["Decision", "Why", "Cost"], name
        assert len(text.splitlines()) <= 30, name
        for place in PLACE.findall(text):
            assert "/" not in place or (ROOT / place).exists(), (name, place)
    assert [name[:3] for name in DECISIONS] == [f"{number:03}" for number in range(1, len(DECISIONS) + 1)]


def test_the_documented_api_is_the_real_one() -> None:
    import trainhooks

    documented = set(re.findall(r"`th\.(\w+)", PAGES["hooks.md"]))
    assert documented == set(trainhooks.__all__)


def test_every_link_leads_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            place = page.parent / target.partition("#")[0]
            assert target.startswith("https://") or place.exists(), (page.name, target)


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`make ([a-z-]+)", DOCS):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
