"""Secrets do not reach a journal: from the command line, the configuration, the environment, or an error's text."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.launch.conftest import ROOT, State
from trainhooks.protocol import environment, rundir, secrets

S = "Zq7xK2mP"  # a secret without a shape: only what stands before it tells


@pytest.mark.parametrize(
    "argv",
    [
        ["--token", S], ["--token", f"-{S}"], ["--token", f"--{S}=="], [f"--token={S}"], [f"--hub-token={S}"],
        ["-token", S, "--lr", "1"], [f"HF_TOKEN={S}"], [f"+logger.api_key={S}"], ["--db.password", f"-{S}"],
        ["sh", "-c", f"HF_TOKEN={S} python train.py"], ["sh", "-c", f"cd x && A=1 WANDB_API_KEY={S} python t.py"],
        ["bash", "-c", f"export HF_TOKEN='{S} {S}'; exec python t.py"], ["sh", "-c", f"python t.py --api-key {S} -v"],
        ["sh", "-c", f'python t.py --password "{S} {S}"'], ["python", "-c", f"login(token='{S}', add=False)"],
        ["--config", json.dumps({"hf_token": S, "lr": 1})], ["--config", json.dumps(json.dumps({"secret": S}))],
        ["-H", f"Authorization: Bearer {S}"], ["--header", f"authorization:Basic {S}"],
        [f"https://user:{S}@host/repo.git"], [f"https://user:{S}@x@host/x@y"], [f"https://{S}@host/x"],
        [f"postgres://u:{S}@db:5432/runs"], [f"redis://:{S}@host"], [f"https://host/x?token={S}&y=1"],
        ["--secret_key", S], [f"PGPASSWORD={S}"], [f"--clientSecret={S}"], ["--cookie", S], [f"db_pwd={S}"],
        [f"hf_{S * 3}"], [f"sk-{S * 3}"], [f"x/ghp_{S * 3}/y"], [f"github_pat_{S * 3}"], [f"glpat-{S * 3}"],
        ["sh", "-c", f"python t.py --token \\\n      {S} -v"], ["sh", "-c", f"python t.py --token        {S}"],
        ["sh", "-c", f"t --password a\\ {S}"], ["sh", "-c", f"t --password 'a'\"{S}\""],
        ["sh", "-c", f"t --token $'{S}'"],
        [json.dumps({"token": [S, S]})], [json.dumps({"auth": {"key": S}, "lr": 1})],
        [json.dumps({"password": f'a"{S}'})],
        [json.dumps({"password": S}).replace(": ", ":" + " " * 9)], [json.dumps({"API Key": S})],
        ["-H", f"Authorization: ApiKey {S}"], ["-H", f'Authorization: Digest username="u", response="{S}"'],
        ["sh", "-c", f"curl -H 'Authorization: ApiKey {S}' -H \"Cookie: a=b; session={S}\" https://host"],
        ["-H", f"X-Api-Key:      {S}"], ["python", "-c", f"os.environ['HF_TOKEN'] = '{S}'"],
        [f"DB_PASS={S}"], ["--pass", S], [f"OPENAI_KEY={S}"], ["--openai-key", S], [f"API_KEYS={S}"], [f"secrets={S}"],
        [f"AWS_ACCESS_KEY_ID={S}"], [f"private_key_pem={S}"], [f"HF_TOKEN_2={S}"], [f"ftp://{S}@host/x"],
        [f"https://host/x?a=1&sig={S}"], [f"gsk_{S * 3}"], [f"npm_{S * 3}"], [f"ASIA{S.upper() * 2}"],
        [f"nvapi-{S * 3}"], [f"AIza{S * 4}"], [f"AKIA{S.upper() * 2}"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_no_secret_is_left_in_a_command_line(argv: list[str]) -> None:
    masked = secrets.mask_argv(argv)
    assert S not in " ".join(masked) and S.upper() not in " ".join(masked)
    assert len(masked) == len(argv) and secrets.MASK in " ".join(masked)


@pytest.mark.parametrize(
    "argv",
    [
        ["python", "train.py", "--lr", "1e-5", "--tokenizer", "x", "--max-tokens", "5", "--pad_token", "<pad>"],
        ["--token", "--verbose", "--max_token=9"], ["sh", "-c", "for token in a b; do echo token $token; done"],
        ["https://host/x@y", "ssh://git@host/x", "user@host:path"], ["--key", "label", "--sort_keys"],
        ["key=value", "monkey=3", "--eos-token", "</s>", "--eos_token_2", "<x>", "--num-tokens", "5", "sort_key=a"],
        ["--forward_pass", "2", "--image-key", "pixels", "{'tokens': [1, 2]}", "author: A B"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_is_no_secret_stays(argv: list[str]) -> None:
    assert secrets.mask_argv(argv) == argv


@given(st.lists(st.text(max_size=30) | st.sampled_from(["--token", "-p", "token=", "a:b@", "://"]), max_size=6))
def test_masking_never_fails_and_keeps_the_words(argv: list[str]) -> None:
    once = secrets.mask_argv(argv)
    assert len(once) == len(argv)
    assert all(isinstance(secrets.mask(word), str) for word in argv)


@pytest.mark.parametrize(
    "unit", ["a", "-", "a=:", "--a ", 'x\\"= ', "token=", "://a:", "https://a", "token='", "bearer "]
)
def test_masking_takes_time_by_the_length_of_a_text(unit: str) -> None:
    """As a text that is long comes to no end otherwise: the test's own limit would end it."""
    text = unit * (400_000 // len(unit))
    assert len(secrets.mask(text)) <= 2 * len(text)


PROGRAM = """
import sys
sys.path.insert(0, {root!r})
import trainhooks as th
th.init(config={{"hub_token": "{s}", "nested": {{"password": "{s}", "url": "https://u:{s}@host"}}, "text": "token={s}",
                 "list": ["--api-key {s}"], "argv": ["--api-key", "{s}"], "headers": [("Authorization", "Bearer {s}")],
                 "pad_token": "<pad>"}})
for _ in th.steps(range(3)):
    pass
raise ValueError("401 for https://host/api?access_token={s}")
"""


@pytest.mark.long
def test_no_secret_is_on_the_disk_after_a_run(state: State, tmp_path: Path) -> None:
    """Nor in any answer. The program's own output is the user's own file, and is left as it is."""
    program = tmp_path / "train.py"
    program.write_text(PROGRAM.format(root=str(ROOT), s=S))
    state.environment |= {"HF_TOKEN": S, "WANDB_API_KEY": S, "MY_VARIABLE": S, "OMP_NUM_THREADS": "1"}
    line = f"AWS_SECRET_ACCESS_KEY={S} exec {sys.executable} {program} --token -{S} --hf_token={S} https://u:{S}@host/x"
    assert state.run("sh", "-c", line, options=("--tag", f"hf_token={S}", "--tag", "team=a")).returncode == 1
    files = [path for path in state.only.rglob("*") if path.is_file()]
    assert {path.name.partition("-")[0] for path in files} >= {"run.json", "rank", "node", "exit.json"}
    for path in files:
        if path.name != rundir.CONSOLE:
            assert S.encode() not in path.read_bytes(), path.name
    assert S.encode() in (state.only / rundir.CONSOLE).read_bytes()
    for words in (("report",), ("report", "--json"), ("report", "--markdown"), ("ls", "--json")):
        assert S.encode() not in state.call(*words).stdout
    told = json.loads(state.call("report", "--json").stdout)
    assert told["run"]["facts"]["environment"] == {"OMP_NUM_THREADS": "1"}, "by an allow-list"
    assert told["run"]["facts"]["config"]["pad_token"] == "<pad>"


def test_the_allow_list_of_the_environment_names_no_secret() -> None:
    assert not any(secrets.names_a_secret(name) for name in environment.ENVIRONMENT)


RANDOM = "s3cr3tV4lue9"


@pytest.mark.parametrize(
    "line",
    [
        f"run --license-key {RANDOM}",
        f"--license-key={RANDOM}",
        f"run --ca-key {RANDOM}",
        f"run --pat {RANDOM}",
        f"+trainer.logger.key={RANDOM}",
        f"curl -u bob:{RANDOM} https://example.org",
        f"curl -s --user bob:{RANDOM} https://example.org",
        f"curl -x bob:{RANDOM}@proxy:80 https://example.org",
        f"sshpass -p {RANDOM} ssh host",
        f"sshpass -p{RANDOM} ssh host",
        f"mysql -u root -p{RANDOM} db",
        f"docker login -u bob -p {RANDOM}",
        f"zip -P {RANDOM} a.zip",
        f"wandb login --relogin {RANDOM}",
        f"https://hooks.slack.com/services/T00/B00/{RANDOM}",
        f"https://discord.com/api/webhooks/123/{RANDOM}",
        f"https://api.telegram.org/bot123:{RANDOM}/send",
        "--host x dapi0123456789abcdef0123456789abcdef",
    ],
)
def test_secrets_of_common_commands_and_services(line: str) -> None:
    for shown in (
        " ".join(secrets.mask_argv(line.split())),
        secrets.mask(f"sh -c '{line}'"),
        secrets.mask(f"sh -c 'a; {line} '"),
    ):
        assert RANDOM not in shown and "dapi0" not in shown, shown


def test_a_key_in_a_call_and_in_nested_settings() -> None:
    assert RANDOM not in secrets.mask(f"wandb.login(key='{RANDOM}')")
    nested = {"logger": {"wandb": {"key": RANDOM, "mode": "online"}}, "tokens": {"hub": RANDOM}, "license_key": RANDOM}
    shown = secrets.mask_config(nested)
    assert RANDOM not in str(shown) and shown["logger"]["wandb"]["mode"] == "online"


@pytest.mark.parametrize(
    "line",
    [
        "--sort-key name", "--primary_key id", "--key loss", "--max-tokens 100", "--license MIT", "--num-keys=4",
        "python -u train.py", "mpirun -np 4", "ssh -p 22 host", "--webhook off", "--text-key text_2", "7z x a.7z",
        "curl -u bob https://example.org", "wandb login --relogin", "mysql -u root db", "docker run -p 8080:80 image",
    ],
)  # fmt: skip
def test_common_commands_and_settings_stay(line: str) -> None:
    assert " ".join(secrets.mask_argv(line.split())) == secrets.mask(line) == line
