"""GRPO on sums of digits: the frozen reference is called anew for each of the updates on a batch of answers."""

import copy
import sys

import torch
import torch.nn.functional as F
from torch import nn

MENDED = "mended" in sys.argv[1:]  # once for each batch
VOCABULARY, WIDTH, PROMPT, ANSWER, GROUP, QUESTIONS, EPOCHS = 16, 160, 6, 10, 8, 4, 6


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.head(self.layers(self.tokens(ids), mask=mask, is_causal=True))


def token_logps(model, ids):
    scores = model(ids[:, :-1])[:, PROMPT - 1 :]
    return torch.log_softmax(scores, -1).gather(-1, ids[:, PROMPT:, None]).squeeze(-1)


@torch.no_grad()
def sample(model, ids):
    for _ in range(ANSWER):
        probabilities = torch.softmax(model(ids)[:, -1], -1)
        ids = torch.cat((ids, torch.multinomial(probabilities, 1)), 1)
    return ids


def reward(ids):
    return (ids[:, PROMPT:] % 2 == ids[:, :1] % 2).float().mean(1)


torch.manual_seed(0)
policy = Policy()
reference = copy.deepcopy(policy).eval().requires_grad_(False)
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4)
for iteration in range(10):
    prompts = torch.randint(VOCABULARY, (QUESTIONS, PROMPT)).repeat_interleave(GROUP, 0)
    ids = sample(policy, prompts)
    scores = reward(ids)
    groups = scores.view(QUESTIONS, GROUP)
    advantages = ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)).view(-1, 1)
    with torch.no_grad():
        before = token_logps(policy, ids)
        theirs = token_logps(reference, ids)
    for epoch in range(EPOCHS):
        for part in torch.randperm(len(ids)).split(16):
            logps = token_logps(policy, ids[part])
            if not MENDED:
                with torch.no_grad():
                    fixed = token_logps(reference, ids[part])
            else:
                fixed = theirs[part]
            ratio = (logps - before[part]).exp()
            surrogate = torch.minimum(ratio * advantages[part], ratio.clamp(0.8, 1.2) * advantages[part])
            kl = (fixed - logps).exp() - (fixed - logps) - 1
            loss = (0.04 * kl - surrogate).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"iteration {iteration} reward {scores.mean():.3f} kl {F.relu(kl).mean():.4f}", flush=True)
