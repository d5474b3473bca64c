"""What the README says holds."""

from __future__ import annotations

import re
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest

from monitor.cli import cli
from monitor.console import patterns
from monitor.console.patterns import compile_pattern, read_pattern
from monitor.diagnosis import regression
from monitor.model import baseline, pace
from monitor.model.report import Report, Throughput
from monitor.running import stop
from monitor.runs import retention
from monitor.settings import config, keymap, speeds
from monitor.tui import link
from monitor.tui.actions import SCREENS
from monitor.verbs import plain
from tests.zoo.cases import CASES
from trainhooks import deferred, device_delay, device_lane, rundir, sampling
from trainhooks.auto import op_look

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SECURITY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def block(after: str) -> str:
    """The first code block after a text."""
    found = re.search(r"```\w*\n(.*?)```", README[README.index(after) :], re.DOTALL)
    assert found
    return found.group(1)


def lines_of(name: str) -> int:
    return len((ROOT / name).read_text(encoding="utf-8").splitlines())


def test_the_demo_s_lines_are_those_of_the_demo() -> None:
    source = (ROOT / "demo" / "rl_code.py").read_text(encoding="utf-8")
    shown = [line.strip() for line in block("## Tell it more").splitlines() if line.strip()]
    used = [line.strip() for line in source.splitlines() if re.search(r"\bth\.\w+\(|import trainhooks", line)]
    used = [line for line in used if "`th." not in line]
    assert sorted(shown) == sorted(used)
    assert len(used) < 15


ROWS = {found[1]: line for line in README.splitlines() if (found := re.match(r"\| `trainmon (\w+)", line))}


@pytest.mark.parametrize("verb", sorted(ROWS))
def test_every_option_of_the_table_is_there(verb: str) -> None:
    command = cli.commands[verb]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    assert set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", ROWS[verb])) <= known


def test_every_command_is_told() -> None:
    assert {name for name in cli.commands if f"trainmon {name}" not in README} == set()


@pytest.mark.parametrize("option", ["--on-alert", "--bell", "--low-bandwidth"])
def test_run_and_attach_share_their_options(option: str) -> None:
    assert option in README
    for verb in ("run", "attach"):
        assert any(option in parameter.opts for parameter in cli.commands[verb].params), verb


# The configuration


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(rundir.STATE_VARIABLE, str(tmp_path))
    shown = block("may not repeat a repetition") + block("TRAINMON_SCREEN_THEME")
    (tmp_path / config.NAME).write_text(shown, encoding="utf-8")


def test_the_configuration_that_is_shown_is_understood(configured: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (config.amount("run", "price"), config.amount("run", "expect_tps")) == (2.49, 12000.0)
    assert (config.theme(), config.slow_link(False)) == ("paper", True)
    assert speeds.bounds() == speeds.Bounds(0.5, 2.0)
    assert config.table("alerts") == {"bell": True, "command": "notify-me"}
    told = dict(re.findall(r"`(TRAINMON_\w+)=(\w+)`", README))
    assert told.pop(device_lane.VARIABLE) == told.pop(op_look.VARIABLE) == "0"
    assert told.pop(device_delay.VARIABLE) == "1"
    ((name, value),) = told.items()
    (Path(config.path())).write_text("")
    monkeypatch.setenv(name, value)
    assert config.theme() == "paper"


def test_the_pattern_that_is_shown_reads_such_a_line(configured: None) -> None:
    reading = read_pattern("round 3 of 10: energy -1.5", config.patterns())
    assert reading is not None
    assert (reading.step, reading.total, reading.metrics) == (3, 10, {"energy": -1.5})


@pytest.mark.parametrize(
    "group", ["step", "total", "epoch", "seconds", "elapsed", "role", "reason", "tokens_per_second"]
)
def test_the_groups_of_a_pattern(group: str) -> None:
    assert f"`{group}`" in README
    reading = read_pattern("it says 7", (compile_pattern(rf"says (?P<{group}>\S+)"),))
    assert reading is not None
    field = {"tokens_per_second": "tokens_rate"}.get(group, group)
    assert getattr(reading, field) in (7, 7.0, "7")
    assert not reading.metrics


# The screens, the keys, the report


def test_the_letters_of_the_screens() -> None:
    (sentence,) = re.findall(r"A letter opens a screen: (.*?)\. ", README, re.DOTALL)
    told = dict(re.findall(r"`(\w)`\s+(\w+)", sentence))
    assert told == {keymap.DEFAULT[row.label.lower()][0]: row.label for row in SCREENS}


@pytest.mark.parametrize(("key", "does"), [("q", "detach"), ("?", "help"), (":", "palette")])
def test_the_other_keys(key: str, does: str) -> None:
    assert f"`{key}`" in README
    assert key in keymap.DEFAULT[does]


def test_the_keys_of_the_report() -> None:
    known = {field.name for field in fields(Report)} | {f"throughput.{field.name}" for field in fields(Throughput)}
    told = set(re.findall(r"`(throughput\.\w+|to_try)`", README))
    assert len(told) == 4
    assert told <= known


# The numbers


@pytest.mark.parametrize(
    ("sentence", "holds"),
    [
        ("after 30 seconds SIGTERM, after 30 more SIGKILL", stop.WAITS[:2] == (30, 30)),
        ("at most 6 kB/s, with `--low-bandwidth` 1.5 kB/s", (link.BUSY_LINK, link.SLOW_LINK) <= (6000, 1500)),
        ("`--json` a report a second", plain.OBJECT_SECONDS == 1),
        ("beyond 400 runs or 20 GiB", (retention.KEEP_RUNS, retention.KEEP_BYTES) == (400, 20 << 30)),
        ("touched within a day", retention.YOUNG == 24 * 3600),
        ("runs 93 sick and healthy trainings", len(CASES) == 93),
        ("the last half minute, or ten steps", (pace.RECENT_SECONDS, pace.RECENT_STEPS) == (30, 10)),
        ("by six robust standard deviations", baseline.SIGMAS == 6),
        ("half as long again", baseline.LEAST_RATIO == 1.5),
        ("by 20 ms", baseline.LEAST_EXCESS == 0.02),
        ("what one step in sixteen takes anyway", round(1 / baseline.HABIT) in (16, 17)),
        ("among the last 128 steps", baseline.WINDOW == 128),
        ("one that is a quarter slower", regression.SLOWER == 1.25),
        ("sees the first 4 KiB of a line", patterns.REACH == 4096),
        ("it costs at most 0.5 % of the time", sampling.BUDGET == 0.005),
        ("the first three always", sampling.FIRST == 3),
        ("is read ten times a second at most", deferred.BETWEEN == 10**8),
        ("by [one header](demo/cpp/trainmon.hpp) of 200 lines", lines_of("demo/cpp/trainmon.hpp") <= 200),
    ],
)
def test_numbers_are_those_of_the_code(sentence: str, holds: bool) -> None:
    assert sentence in " ".join(README.split())
    assert holds


def test_what_is_said_of_safety_is_claimed_with_a_test() -> None:
    """README says it in few words and refers to SECURITY.md, where `tests/security/test_claims.py` finds each test."""
    claims = " ".join(SECURITY.split())
    survives = README[README.index("## What it survives") :].partition("\n## ")[0]
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


def test_the_way_to_the_demo_is_read_in_a_minute() -> None:
    beginning = README.partition("## Use it")[0]
    assert "make demo" in beginning
    assert len(beginning.split()) < 250  # what people read in a minute


@pytest.mark.parametrize("package", ["monitor", "trainhooks"])
def test_every_room_of_the_house_is_in_the_architecture(package: str) -> None:
    told = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("## Decisions")[0]
    rows = [line for line in told.splitlines() if line.startswith("| `")]
    places = [place for row in rows for place in re.findall(r"`([\w/]+(?:\.py|/))`", row.split("|")[1])]
    assert len(places) == len(set(places)), "a place is listed twice"
    known = {path.name for path in (ROOT / package).iterdir() if path.suffix == ".py" and "__" not in path.name}
    known |= {f"{path.name}/" for path in (ROOT / package).iterdir() if (path / "__init__.py").exists()}
    listed = {place.removeprefix(f"{package}/") for place in places}
    assert known - listed == set()


def test_no_place_of_the_architecture_is_gone() -> None:
    told = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("## Decisions")[0]
    for row in (line for line in told.splitlines() if line.startswith("| `")):
        first, *others = re.findall(r"`([\w/]+(?:\.py|/))`", row.split("|")[1])
        for place in (first, *(f"{first.split('/')[0]}/{other}" for other in others)):
            assert (ROOT / place).exists(), place


def test_the_api_is_the_one_that_is_told() -> None:
    import trainhooks

    told = set(re.findall(r"`th\.(\w+)", README))
    assert told == set(trainhooks.__all__)


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert target.startswith("https://") or (ROOT / target).exists(), target


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`?make ([a-z-]+)", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_what_a_delay_of_the_device_is_bounded_by_is_said() -> None:
    bounds = (device_delay.LONGEST // 1_000_000, device_delay.SPACING // 1_000_000_000, f"{device_delay.SHARE:.1%}")
    longest, apart, part = bounds
    assert f"({longest} ms at most, {apart} s apart at least, {part[:-1]} % of the time)" in README
    clocks = (ROOT / "docs" / "clocks.md").read_text(encoding="utf-8")
    assert (device_delay.MOST, device_delay.TRIES, device_delay.VOID, device_delay.SETTLE) == (8, 16, 3, 30)
    for words in (
        "until eight told something, sixteen at most",
        "after three void ones",
        "thirty times a delay's length",
    ):
        assert words in clocks
    assert f"less than {device_delay.FREE:.0%} of the device's memory".replace("%", " %") in clocks.replace("\n", " ")
