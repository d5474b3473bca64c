"""What a process knows of itself, and what it must not tell."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.protocol.typed import untyped
from trainhooks.protocol import secrets
from trainhooks.protocol.events import PROTOCOL
from trainhooks.recording import facts

from .conftest import FOREIGN, Trainings

TOKEN = "hf_" + "aB3" * 8


@pytest.mark.parametrize(
    ("argv", "masked"),
    [
        (["--hf-token", "abc", "--lr", "1"], ["--hf-token", "***", "--lr", "1"]),
        (["--password=abc", "API_KEY=abc", "max_tokens=5"], ["--password=***", "API_KEY=***", "max_tokens=5"]),
        (["--hf_token", "--verbose", "abc"], ["--hf_token", "--verbose", "abc"]),
        (["--model", f"x/{TOKEN}"], ["--model", "x/***"]),
        (["https://user:pass@host/repo"], ["https://***@host/repo"]),
        (["-c", f"login('{TOKEN}')"], ["-c", "login('***')"]),
        (["--tokenizer", "x", "--max-tokens", "9"], ["--tokenizer", "x", "--max-tokens", "9"]),
        (["--tokens", "5", "--num-tokens=7"], ["--tokens", "5", "--num-tokens=7"]),
        (["sk-" + "a1" * 10, "AKIA" + "A" * 16, "ghp_" + "a1" * 10], ["***"] * 3),
        (["WANDB_API_KEY=" + "0123456789" * 4], ["WANDB_API_KEY=***"]),
        ([], []),
    ],
)
def test_a_command_line_without_its_secrets(argv: list[str], masked: list[str]) -> None:
    assert secrets.mask_argv(argv) == masked


@pytest.mark.parametrize(
    "name", ["token", "hf_token", "SLACK_BOT_TOKEN", "authtoken", "api-key", "db.password", "secret"]
)
def test_names_of_secrets(name: str) -> None:
    assert secrets.names_a_secret(name)


@pytest.mark.parametrize(
    "name", ["pad_token", "eos_token", "tokenizer.bos_token", "max_tokens", "tokenizer", "keys", "lr"]
)
def test_names_of_none(name: str) -> None:
    assert not secrets.names_a_secret(name)


def test_a_configuration_is_bounded() -> None:
    deep: dict[str, object] = {}
    deep["in"] = deep
    config = {"deep": deep, "long": "x" * 10_000, "list": list(range(1000)), **{f"k{i}": i for i in range(1000)}}
    masked = secrets.mask_config(config)
    assert len(masked) == secrets.MAX_CONFIG
    assert len(masked["long"]) < 1000 and len(masked["list"]) == 50
    assert masked["deep"]["in"]["in"]["in"].startswith("{")


def git(directory: Path, *words: str) -> str:
    who = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *who, *words], cwd=directory, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    path = tmp_path / "repository"
    path.mkdir()
    git(path, "init", "-q")
    git(path, "commit", "-q", "--allow-empty", "-m", "one")
    return path


def test_the_commit_of_a_checkout_in_every_form(repository: Path, tmp_path: Path) -> None:
    first = git(repository, "rev-parse", "HEAD")[:12]
    (repository / "deep" / "down").mkdir(parents=True)
    assert facts.git_commit(str(repository / "deep" / "down")) == first
    git(repository, "pack-refs", "--all")
    assert facts.git_commit(str(repository)) == first
    git(repository, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    git(tmp_path / "side", "commit", "-q", "--allow-empty", "-m", "two")
    second = git(tmp_path / "side", "rev-parse", "HEAD")[:12]
    assert facts.git_commit(str(tmp_path / "side")) == second != first
    git(repository, "pack-refs", "--all")
    assert facts.git_commit(str(tmp_path / "side")) == second
    git(repository, "checkout", "-q", "--detach", second)
    assert facts.git_commit(str(repository)) == second


def test_no_commit_where_there_is_none(repository: Path, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    git(fresh, "init", "-q")
    assert facts.git_commit(str(fresh)) is None
    (repository / ".git" / "HEAD").write_bytes(b"\xff\x00")
    assert facts.git_commit(str(repository)) is None
    assert facts.git_commit("/proc/self") is None


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, {}),
        (
            {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "TORCHELASTIC_RESTART_COUNT": "2"},
            {"rank": 3, "local_rank": 1, "world_size": 8, "restart": 2},
        ),
        (
            {"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "6"},
            {"rank": 5, "local_rank": 1, "world_size": 6},
        ),
        ({"RANK": "0", "SLURM_PROCID": "5"}, {"rank": 0}),
        ({"RANK": "-1", "LOCAL_RANK": "x", "WORLD_SIZE": "9" * 20, "SLURM_PROCID": "²"}, {}),
        ({"RANK": "", "SLURM_PROCID": "2"}, {"rank": 2}),
    ],
)
def test_the_rank_as_the_launcher_set_it(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], found: dict[str, int]
) -> None:
    for name in (*FOREIGN, "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert facts.rank_facts() == found


def test_a_process_introduces_itself(train: Trainings) -> None:
    told = train(
        f"sys.argv += ['--hf-token', 'abc']\nwith th.step(): pass\nprint(os.getpid(), {TOKEN!r}[:0])",
        RANK="2", WORLD_SIZE="4", OMP_NUM_THREADS="3", SECRET_KEY="abc", CUDA_VISIBLE_DEVICES="0",
    )  # fmt: skip
    hello = told.events[0]
    assert hello["kind"] == "hello" and hello["protocol"] == PROTOCOL
    assert (hello["rank"], hello["world_size"], hello["pid"]) == (2, 4, int(told.out))
    assert hello["name"] == "train0"
    assert hello["process_started"] <= hello["t"]
    assert hello["facts"]["environment"] == {"CUDA_VISIBLE_DEVICES": "0", "OMP_NUM_THREADS": "3"}
    assert told.journals[0].name.startswith("rank-2-")
    assert "abc" not in told.journals[0].read_text()
    assert untyped(hello["facts"]) == []


def test_settings_of_torch_have_types() -> None:
    import torch

    assert torch.get_num_threads() == facts.torch_flags()["threads"]
    assert untyped({"torch": facts.torch_flags(), **facts.process_facts()}) == []


def test_a_process_in_a_directory_that_was_removed(train: Trainings) -> None:
    told = train("os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')\nwith th.step(): pass")
    assert told.indices == [1]


def test_libraries_loaded_later_are_told_later(train: Trainings) -> None:
    told = train("written()\nimport numpy\nin_journal('\"numpy\":')")
    assert "numpy" in told.report.run.facts.versions
