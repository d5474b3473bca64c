"""What the hooks measure of reinforcement learning's time: environments, tails, the KV cache, inference servers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trainhooks.auto.adapters.openai_adapter import is_own_server

from .test_rollouts import ON_POLICY, WORLD
from .watched import Watched, long, phases, watched

Script = Callable[..., Watched]

GENERATE = """
import sys
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
torch.set_num_threads(1)
END, WIDTH = 31, 64
config = GPT2Config(
    vocab_size=32, n_positions=128, n_embd=32, n_layer=2, n_head=2, eos_token_id=END, pad_token_id=END, bos_token_id=END
)
model = GPT2LMHeadModel(config)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
prompts = torch.randint(0, 30, (16, 5))
form = sys.argv[1]
lengths = [40, *[8] * 15] if form == "tail" else [40] * 16
if form == "padding is written":
    model.generation_config.pad_token_id = 3

def ends(_, scores):
    # Each sequence ends at its length, and not before.
    at = ends.step = ends.step + 1
    scores[:, END] = -1e9
    for row, length in enumerate(lengths):
        if at >= length:
            scores[row] = -1e9
            scores[row, END] = 0.0
    return scores

for _ in range(24):
    ends.step = 0
    model.eval()
    arguments = {"use_cache": False} if form == "argument" else {}
    if form == "configuration":
        model.generation_config.use_cache = False
    with torch.no_grad():
        texts = model.generate(
            prompts, max_new_tokens=WIDTH, do_sample=True, logits_processor=[ends], **arguments
        )
    assert texts.shape == (16, 5 + max(lengths)), texts.shape
    model.train()
    loss = model(input_ids=texts[:4, :16], labels=texts[:4, :16]).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture
def script(tmp_path: Path) -> Script:
    def run(text: str, *words: str, **packages: str) -> Watched:
        for name, body in packages.items():
            path = tmp_path.joinpath(*name.split("__")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            for folder in list(path.relative_to(tmp_path).parents)[:-1]:
                (tmp_path / folder / "__init__.py").touch()
            path.write_text(body)
        (tmp_path / "rl.py").write_text(text)
        run = watched(tmp_path / "state", str(tmp_path / "rl.py"), *words)
        assert run.code == 0, run.err  # TRAINMON_DEBUG is set in tests: what an adapter raises ends the program
        return run

    return run


def total(run: Watched, name: str) -> float:
    row = run.report.metrics.get(name)
    return (row.mean or 0.0) * row.count if row is not None else 0.0


def codes(run: Watched) -> set[str]:
    return {finding.code for finding in run.report.findings}


@pytest.mark.long
@pytest.mark.parametrize(
    ("form", "tail", "code"),
    [
        ("tail", 24 * 32, "generation-tail"),
        long("equal", 0, None),
        ("argument", 0, "no-kv-cache"),
        long("configuration", 0, "no-kv-cache"),
        long("padding is written", 0, None),
    ],
)
def test_a_call_of_generate_tells_its_tail_and_its_cache(script: Script, form: str, tail: int, code: str) -> None:
    run = script(GENERATE, form)
    assert (total(run, "decode_steps"), total(run, "tail_steps")) == pytest.approx((24 * 40, tail))
    assert codes(run) & {"generation-tail", "no-kv-cache"} == ({code} if code else set())
    assert total(run, "uncached_calls") == pytest.approx(24 if code == "no-kv-cache" else 0)
    by = {"argument": "an argument of generate()", "configuration": "the generation configuration"}.get(form)
    assert run.facts.get("generate") == ({"use_cache": False, "set_by": by} if by else None)


@pytest.mark.parametrize(("seconds", "fires"), [long(0.003, True), long(0.00002, False)])
def test_seconds_in_environments(script: Script, seconds: float, fires: bool) -> None:
    loop = ON_POLICY.format(env=f"World({seconds})", action="action.item()", reset="ended")
    if fires:  # long enough for the start not to matter
        loop = loop.replace("range(6)", "range(60)").replace("range(4)", "range(1)")
    timed = loop.replace(
        "state, reward, ended, cut, _ = env.step",
        "t0 = time.perf_counter(); state, reward, ended, cut, _ = env.step",
    ).replace("        if ended:", "        inside[0] += time.perf_counter() - t0\n        if ended:")
    run = script(WORLD + "inside = [0.0]\n" + timed + "print(inside[0])\n")
    assert total(run, "env_seconds") == pytest.approx(float(run.out.split()[-1]), rel=0.2)
    assert total(run, "env_steps") == total(run, "env_calls") == pytest.approx(1500 if fires else 150)
    assert run.facts["environment"] == {"count": 1, "processes": 0, "on_host": True}
    assert ("env-bound" in codes(run)) is fires


@pytest.mark.long
def test_environments_in_processes_of_their_own(script: Script) -> None:
    body = ON_POLICY.format(env="vector", action="action.numpy()", reset="False").strip().replace("\n", "\n    ")
    run = script(
        WORLD
        + f"""
if __name__ == "__main__":
    made = gym.vector.AsyncVectorEnv([lambda: World(0.003)] * 2)
    vector = gym.wrappers.vector.RecordEpisodeStatistics(made)
    {body}
    made.close()
"""
    )
    assert (total(run, "env_steps"), total(run, "env_calls")) == (300, 150)
    assert run.facts["environment"] == {"count": 2, "processes": 2, "on_host": True}
    assert "env-bound" not in codes(run)


VLLM = """
import time
class Completion:
    def __init__(self, length): self.token_ids = list(range(length))
class RequestOutput:
    def __init__(self, lengths):
        self.prompt_token_ids, self.outputs = [1, 2, 3], [Completion(length) for length in lengths]
class LLM:
    def generate(self, prompts, sampling_params=None, use_tqdm=True):
        time.sleep(0.02)
        return [RequestOutput([40, 10]) for _ in prompts]
    def chat(self, messages, sampling_params=None):
        return self.generate(messages, sampling_params)
"""
OPENAI = """
import time
from types import SimpleNamespace as Some
class Completions:
    def __init__(self, url): self._client = Some(base_url=url)
    def create(self, *, messages=None, prompt=None, n=1, stream=False):
        time.sleep(0.02)
        return Some(choices=[Some()] * n, usage=Some(prompt_tokens=4, completion_tokens=9))
"""
LOOP = """
import torch
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(20):
    {body}
    model(torch.randn(8, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def lasts(run: Watched, name: str, seconds: float) -> bool:
    """Return whether what slept so long took about as long, in steps and before them."""
    spans = sum(span["duration"] for span in run.spans(name))
    spent = spans + sum(phases(step).get(name, 0.0) for step in run.steps())
    return seconds <= spent <= 3 * seconds  # on a busy machine


@pytest.mark.long
@pytest.mark.parametrize("method", ["generate", long("chat")])
def test_vllm_inside_a_training(script: Script, method: str) -> None:
    body = f"texts = llm.{method}(['a'] * 8)"
    run = script(
        "from vllm.entrypoints.llm import LLM\nllm = LLM()\n" + LOOP.format(body=body), vllm__entrypoints__llm=VLLM
    )
    assert lasts(run, "generation", 20 * 0.02)
    figures = {name: total(run, name) for name in ("completions", "new_tokens", "prompt_tokens", "decode_steps")}
    assert figures == pytest.approx({"completions": 320, "new_tokens": 8000, "prompt_tokens": 480, "decode_steps": 800})
    assert total(run, "tail_steps") == 0  # half of the sequences go on


@pytest.mark.long
@pytest.mark.parametrize(
    ("url", "body", "calls"),
    [
        ("http://localhost:8000/v1/", "client.create(messages=[], n=4)", 20),
        long("http://localhost:8000/v1/", "client.create(messages=[], stream=True)", 0),
        ("https://api.openai.com/v1/", "client.create(messages=[])", 0),
        long("http://localhost:8000/v1/", "judge()", 0),
    ],
)
def test_completions_of_an_own_server(script: Script, url: str, body: str, calls: int) -> None:
    head = f"""
import threading
from openai.resources.chat.completions import Completions
client = Completions({url!r})
def judge():
    thread = threading.Thread(target=client.create)
    thread.start()
    thread.join()
"""
    run = script(head + LOOP.format(body=body), openai__resources__chat__completions=OPENAI)
    assert lasts(run, "generation", calls * 0.02)
    assert (total(run, "completions"), total(run, "new_tokens")) == pytest.approx((4 * calls, 9 * calls))


def test_hosted_services_are_told_by_their_hosts() -> None:
    class Client:
        base_url = "https://my-judge.openai.azure.com/v1"

    class Resource:
        _client = Client()

    assert not is_own_server(Resource())
    Client.base_url = "http://notopenai.com:8000/v1"
    assert is_own_server(Resource())


TRL = """
import time
from trl.generation.vllm_client import VLLMClient

class Client(VLLMClient):
    def __init__(self):
        self.base_url, self.model, self._updating_weights, self.communicator = "http://localhost", "m", False, None
    def _post(self, url, **kwargs):
        time.sleep(0.02)
        choice = {"prompt_token_ids": [1, 2], "token_ids": [3, 4, 5], "logprobs": None}
        return {"choices": [choice] * len(kwargs["json"].get("prompt", ""))}

client = Client()
def update():
    with client.weight_update():
        pass
"""


@pytest.mark.long
def test_the_client_of_a_vllm_server(script: Script) -> None:
    body = "assert client.generate([[1, 2]] * 3)['completion_ids'] == [[3, 4, 5]] * 3; update()"
    run = script(TRL + LOOP.format(body=body))
    assert lasts(run, "generation", 20 * 0.02) and lasts(run, "weight_sync", 20 * 0.04)
    assert "weight-sync-heavy" in codes(run)


REWARDS = """
import subprocess, sys, time
from concurrent.futures import ThreadPoolExecutor
import trainhooks as th

def score(answer):
    return subprocess.run(["sleep", "0.03"]).returncode

def compute(answer):
    until = time.perf_counter() + 0.03
    while time.perf_counter() < until:
        sum(range(1000))

pool = ThreadPoolExecutor(4)
ways = {
    "one by one": lambda: [score(i) for i in range(4)],
    "in a pool": lambda: list(pool.map(score, range(16))),
    "computed": lambda: [compute(i) for i in range(4)],
}
for step in th.steps(range(24)):
    with th.phase("reward"):
        ways[sys.argv[1]]()
    with th.phase("training"):
        compute(None)
"""


@pytest.mark.parametrize(("way", "fires"), [("one by one", True), long("in a pool", False), long("computed", False)])
@pytest.mark.long
def test_rewards_by_their_stack_samples(script: Script, way: str, fires: bool) -> None:
    run = script(REWARDS, way)
    found = {finding.code: finding for finding in run.report.findings}
    assert ("sequential-rewards" in found) is fires
    if fires:
        assert any("(subprocess.run) in score" in line for line in found["sequential-rewards"].evidence)


BESIDE = """
import threading
import time
import torch
from trainhooks.auto.instrumentation import phase

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
is_over = threading.Event()

def generate():
    while not is_over.is_set():
        with phase("generation"):
            time.sleep(0.05)

generator = threading.Thread(target=generate)
generator.start()
for _ in range(20):
    time.sleep(0.02)
    model(torch.randn(32, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
is_over.set()
generator.join()
"""


@pytest.mark.long
def test_generation_in_another_thread_is_no_part_of_the_steps(script: Script) -> None:
    steps = script(BESIDE).steps()
    assert len(steps) == 20
    assert all("forward" in phases(step) and "generation" not in phases(step) for step in steps)
    assert {name for step in steps for name, *_ in step.get("background", ())} == {"generation"}


SCORED = """
import sys
import time
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
torch.set_num_threads(1)
model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=64, n_embd=16, n_layer=1, n_head=2, eos_token_id=31))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
texts = torch.randint(0, 30, (4, 8))
scored = 0.0
for step in range(24):
    if sys.argv[1] == "rewards" or step % 8 == 0:  # else some samples to look at
        with torch.no_grad():
            texts = model.generate(torch.randint(0, 30, (4, 5)), max_new_tokens=8, do_sample=True, pad_token_id=31)
    if sys.argv[1] == "rewards":
        begun = time.perf_counter()
        time.sleep(0.05)
        scored += time.perf_counter() - begun
    model(input_ids=texts, labels=texts).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("scored", scored)
"""


@pytest.mark.long
def test_what_lies_between_texts_and_learning_from_them_is_the_reward(script: Script) -> None:
    run = script(SCORED, "rewards")
    told = sum(phases(step).get("reward", 0.0) for step in run.steps())
    scored = float(run.out.split("scored ")[1].split()[0])
    assert 0.9 * scored <= told <= scored + 0.1 * scored, "but that of the first step, which begins with its first call"


@pytest.mark.long
def test_samples_to_look_at_have_no_reward(script: Script) -> None:
    assert not any("reward" in phases(step) for step in script(SCORED, "samples").steps())
