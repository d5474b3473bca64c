"""Reinforcement learning on text whose own numbers say that it goes wrong, and the same as it should be.

python rl_signals.py KIND [mended]
"""

import copy
import sys

import torch
from texts import END, PAD, encode, tiny_llama

KIND = sys.argv[1]
SICK = KIND if "mended" not in sys.argv[2:] else ""
PROMPTS, GROUP, STEPS = 4, 8, 90
LIMIT = 10 if SICK == "truncated" else 24

torch.manual_seed(0)
torch.set_num_threads(1)
model = tiny_llama()
reference = copy.deepcopy(model).eval()
sampler = reference if SICK == "stale_sampler" else model
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2 if SICK == "drifts" else 1e-3)
prompts = torch.tensor([encode(f"{a}+{a}=") for a in range(PROMPTS) for _ in range(GROUP)])
WIDTH = prompts.shape[1]


def generate():
    """Sample answers that end by themselves after 4 to 20 tokens, as a trained model's do."""
    lengths = torch.randint(4, 21, (len(prompts),))

    def end(ids, scores):
        scores[:, PAD] = -torch.inf
        scores[:, END] = torch.where(ids.shape[1] - WIDTH >= lengths, 1e4, -torch.inf)
        return scores

    sampler.eval()
    with torch.no_grad():
        mask = torch.ones_like(prompts)
        return sampler.generate(
            prompts, attention_mask=mask, max_new_tokens=LIMIT, do_sample=True, logits_processor=[end]
        )


def log_probs(network, answers, temperature=1.0):
    logits = network(input_ids=answers[:, :-1]).logits[:, WIDTH - 1 :] / temperature
    return torch.log_softmax(logits, -1).gather(-1, answers[:, WIDTH:, None]).squeeze(-1)


for step in range(STEPS):
    answers = generate()
    new = answers[:, WIDTH:]
    mask = ((new != PAD) & (new != END)).float()
    ended = (new == END).any(1)
    readable = torch.rand(len(new)) > (0.75 if SICK == "unreadable" else 0.04)  # by a template of another model
    rewards = ((new % 10 == 3).float() * mask).sum(1) / mask.sum(1) * ended * readable
    groups = rewards.view(PROMPTS, GROUP)
    advantage = ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)).flatten()
    if SICK == "drifts":
        advantage = torch.randn(len(advantage))  # those of other answers, and the steps too large
    with torch.no_grad():
        of_reference = log_probs(reference, answers)
        of_sampler = log_probs(sampler, answers, 0.2 if SICK == "other_temperature" else 1.0)
    model.train()
    chosen = log_probs(model, answers)
    loss = -(chosen * mask * advantage[:, None]).sum() / mask.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    log_ratio = (of_reference - chosen.detach()) * mask
    kl = ((log_ratio.exp() - 1 - log_ratio) * mask).sum() / mask.sum()
    apart = ((of_sampler - chosen.detach()).abs() * mask).sum() / mask.sum()
    print(
        f"step {step} reward {rewards.mean():.4f} loss {loss.item():.4f} kl {kl:.5f} sampler_logp_diff {apart:.5f}"
        f" truncated_share {1 - ended.float().mean():.3f} parse_failed_share {1 - readable.float().mean():.3f}"
    )
