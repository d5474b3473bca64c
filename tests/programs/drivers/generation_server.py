"""A learner whose answers come from a server of its own, through the client of `openai`: `generation_server.py 40`.

The server is a stand-in for vLLM's: it answers `POST /v1/completions` in the same form, from a process of its own.
"""

import json
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(0.05)
        length, count = asked["max_tokens"], asked["n"] * len(asked["prompt"])
        texts = ["".join(chr(97 + (7 * i + j) % 26) for j in range(length)) for i in range(count)]
        choices = [{"index": i, "text": text, "finish_reason": "length"} for i, text in enumerate(texts)]
        usage = {
            "prompt_tokens": sum(map(len, asked["prompt"])),
            "completion_tokens": length * count,
            "total_tokens": 0,
        }
        answer = {
            "id": "1",
            "object": "text_completion",
            "created": 0,
            "model": "m",
            "choices": choices,
            "usage": usage,
        }
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


def learn(port, iterations):
    import torch
    from openai import OpenAI
    from torch import nn
    from torch.nn import functional as F

    client = OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(128, 64), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    prompts = [f"{a}+{b}=" for a in range(4) for b in range(4)]
    generation = 0.0
    for iteration in range(iterations):
        began = time.perf_counter()
        answers = client.completions.create(model="m", prompt=prompts, max_tokens=16, n=2)
        generation += time.perf_counter() - began
        rewards = torch.tensor([choice.text.count("e") / 16 for choice in answers.choices])
        ids = torch.tensor([[ord(letter) for letter in choice.text] for choice in answers.choices])
        for batch, advantage in zip(ids.split(16), (rewards - rewards.mean()).split(16)):
            chosen = F.log_softmax(model(batch[:, :-1]), -1).gather(-1, batch[:, 1:, None]).squeeze(-1)
            loss = -(chosen.sum(1) * advantage).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"iteration {iteration + 1}/{iterations} reward {rewards.mean():.4f} loss {loss.item():.4f}")
    print(f"completions: {32 * iterations}")
    print(f"generation took {generation:.4f} s")


if sys.argv[1] == "serve":
    serve()
else:
    server = subprocess.Popen([sys.executable, __file__, "serve"], stdout=subprocess.PIPE, text=True)
    try:
        learn(int(server.stdout.readline()), int(sys.argv[1]))
    finally:
        server.kill()
