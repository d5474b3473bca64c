"""Loops of the structure of public programs. Nothing in them knows of trainmon; `program` is told what is true."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from tests.simulated_device.install import place
from tests.simulated_device.layers import SlowFile
from tests.simulated_device.public_program import Program

WIDTH = 4


def network(layers: int = 2) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(layers)))


def rows(count: int) -> TensorDataset:
    x = torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(1))
    return TensorDataset(x, x.flip(1))


def save(program: Program, state: Any) -> None:
    with program.apart("checkpoint"):
        torch.save(state, SlowFile(program.device, 0.5))


class GPT(nn.Module):
    """With its own way to make an optimizer, and a loss that comes with the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.wte, self.body, self.head = nn.Embedding(16, WIDTH), network(), nn.Linear(WIDTH, 16)

    def forward(self, idx: Any, targets: Any = None) -> Any:
        logits = self.head(self.body(self.wte(idx)))
        return logits, functional.cross_entropy(logits.view(-1, 16), targets.view(-1))

    def configure_optimizers(self) -> Any:
        parameters = list(self.parameters())
        return torch.optim.AdamW([{"params": parameters[:2], "weight_decay": 0.1}, {"params": parameters[2:]}], lr=1e-2)


def nanogpt(program: Program) -> None:
    """A batch fetched ahead and by hand, evaluations at the begin of the loop, checkpoints inside of them."""
    accumulation = program.options.get("accumulation", 4)
    log_interval = program.options.get("log_interval", 10)
    iterations = program.options.get("iterations", 120)
    model = GPT()
    scaler = torch.amp.GradScaler("cuda", enabled=False)
    optimizer = model.configure_optimizers()

    def get_batch() -> Any:
        program.host(0.0003)
        x = torch.randint(0, 16, (2, 8))
        return x, (x + 1) % 16

    @torch.no_grad()
    def estimate_loss() -> float:
        model.eval()
        out = 0.0
        for _ in range(2):
            losses = torch.zeros(10)
            for k in range(10):
                x, y = get_batch()
                _, loss = model(x, y)
                losses[k] = loss.item()
            out = float(losses.mean())
        model.train()
        return out

    x, y = get_batch()
    for iteration in itertools.count():
        if iteration % 25 == 0:
            with program.apart("eval"):
                program.loss(estimate_loss())
            if iteration:
                save(program, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
        for _ in range(accumulation):
            _, loss = model(x, y)
            loss = loss / accumulation
            x, y = get_batch()
            scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        program.stepped()
        if iteration % log_interval == 0:
            program.loss(loss.item() * accumulation)
        if iteration == iterations:
            break


def plain(program: Program) -> None:
    """A loader; the loss read each 20th step; checkpoints; a validation that is left early."""
    workers = program.options.get("workers", 0)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = DataLoader(
        rows(800), batch_size=8, shuffle=True, num_workers=workers, pin_memory=bool(program.options.get("pin"))
    )
    held_out = DataLoader(rows(160), batch_size=8, num_workers=workers)
    step = 0
    for _ in range(3):
        for x, y in loader:
            program.host(0.0005)
            loss = functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            program.stepped()
            step += 1
            if step % 20 == 0:
                program.loss(loss.item())
            if step % 100 == 0:
                save(program, model.state_dict())
            if step % 50 == 0:
                with program.apart("eval"):
                    validate(program, model, held_out)


def validate(program: Program, model: Any, held_out: Any) -> None:
    model.eval()
    with torch.no_grad():
        for number, (x, y) in enumerate(held_out):
            if number == 10:
                break
            program.loss(functional.mse_loss(model(x), y).item())
    model.train()


def late_validation(program: Program) -> None:
    """Validation without a loader and without a mode: `torch.no_grad()` around the model, nothing else."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    loader = DataLoader(rows(800), batch_size=8)
    x_held, y_held = rows(64).tensors
    for step, (x, y) in enumerate(itertools.chain(loader, loader)):
        optimizer.zero_grad()
        loss = functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        program.stepped()
        if step % 25 == 24:
            with program.apart("eval"), torch.no_grad():
                total = 0.0
                for _ in range(20):
                    total += functional.mse_loss(model(x_held), y_held).item()
                program.loss(total)


def queued_validation(program: Program) -> None:
    """A validation that reads its sum once, at its end: until then the host runs ahead."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    held_out = DataLoader(rows(400), batch_size=8)
    for _ in range(4):
        for x, y in DataLoader(rows(200), batch_size=8):
            optimizer.zero_grad()
            loss = functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            program.stepped()
        with program.apart("eval"):
            model.eval()
            total = place(torch.zeros(()))
            with torch.no_grad():
                for x, y in held_out:
                    total = place(total + functional.mse_loss(model(x), y))
            program.loss(total.item())
            model.train()
        if program.options.get("save"):
            save(program, model.state_dict())


def ppo(program: Program) -> None:
    """In the manner of CleanRL: rollouts under no_grad, then epochs of minibatches, a step of the optimizer each."""
    agent = nn.ModuleDict({"actor": network(), "critic": network()})
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    state = torch.randn(8, WIDTH)
    for _ in range(30):
        observations = []
        with program.apart("rollout"):
            for _ in range(16):
                with torch.no_grad():
                    action = agent["actor"](state)
                    agent["critic"](state)
                program.host(0.001)
                state = torch.tanh(action.detach() + 0.1 * torch.randn(8, WIDTH)).clone()
                observations.append(state)
        batch = torch.cat(observations)
        for _ in range(2):
            for part in torch.randperm(len(batch)).chunk(4):
                loss = functional.mse_loss(agent["actor"](batch[part]), batch[part])
                loss = loss + 0.5 * functional.mse_loss(agent["critic"](batch[part]), batch[part])
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
                program.stepped()
        program.loss(loss.item())


def gan(program: Program) -> None:
    """Two optimizers that take turns."""
    generator, critic = network(), network()
    optimizer_d = torch.optim.Adam(critic.parameters(), lr=1e-3)
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=1e-3)
    loader = DataLoader(rows(800), batch_size=8)
    for step, (real, _) in enumerate(itertools.chain(loader, loader)):
        optimizer_d.zero_grad()
        functional.mse_loss(critic(real), torch.ones_like(real)).backward()
        fake = generator(torch.randn_like(real))
        functional.mse_loss(critic(fake.detach()), torch.zeros_like(real)).backward()
        optimizer_d.step()
        optimizer_g.zero_grad()
        loss = functional.mse_loss(critic(fake), torch.ones_like(real))
        loss.backward()
        optimizer_g.step()
        program.stepped()
        if step % 50 == 0:
            program.loss(loss.item())
            with program.apart("eval"), torch.no_grad():
                generator(torch.randn_like(real))
                program.host(0.3)  # the samples are drawn into a file


def lbfgs(program: Program) -> None:
    model = network()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    x, y = rows(32).tensors

    def closure() -> Any:
        optimizer.zero_grad()
        loss = functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    for step in range(60):
        program.loss(optimizer.step(closure).item())
        program.stepped()
        if step % 20 == 19:
            with program.apart("eval"), torch.no_grad():
                for _ in range(20):
                    program.loss(functional.mse_loss(model(x), y).item())


def checkpointing(program: Program) -> None:
    """Gradient checkpointing: a part of the model runs once more inside the backward pass."""
    from torch.utils.checkpoint import checkpoint

    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = network(), network()

        def forward(self, x: Any) -> Any:
            x = checkpoint(self.first, x, use_reentrant=bool(program.options.get("reentrant")))
            return checkpoint(self.second, x, use_reentrant=bool(program.options.get("reentrant")))

    model = Deep()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, (x, y) in enumerate(DataLoader(rows(800), batch_size=8)):
        loss = functional.mse_loss(model(x.requires_grad_()), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        program.stepped()
        if step % 20 == 0:
            program.loss(loss.item())


def graph(program: Program) -> None:
    """The whole step as a CUDA graph: warmed up, captured, replayed."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, fused=program.options.get("fused", False))
    loader = iter(DataLoader(rows(2400), batch_size=8))
    x, y = next(loader)

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
            program.stepped()
    torch.cuda.current_stream().wait_stream(side)
    whole = torch.cuda.CUDAGraph()
    with torch.cuda.graph(whole):
        loss = step()
    for number, (new_x, new_y) in enumerate(loader):
        x.copy_(new_x)
        y.copy_(new_y)
        whole.replay()
        program.stepped()
        if number % 20 == 0:
            program.loss(loss.item())


def distillation(program: Program) -> None:
    """A teacher under no_grad, a student that learns from it."""
    student, teacher = network(), network(6).eval()
    for parameter in teacher.parameters():
        parameter.requires_grad_(False)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
    held_out = DataLoader(rows(80), batch_size=8)
    for step, (x, _) in enumerate(itertools.chain(*[DataLoader(rows(800), batch_size=8)] * 2)):
        with torch.no_grad():
            wanted = teacher(x)
        loss = functional.mse_loss(student(x), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        program.stepped()
        if step % 20 == 0:
            program.loss(loss.item())
        if step % 50 == 49:
            with program.apart("eval"):
                validate(program, student, held_out)


def reinforce(program: Program) -> None:
    """A rollout before each step: the model is asked many times without gradients."""
    policy = network()
    policy.train(not program.options.get("eval"))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    for step in range(100):
        state = torch.randn(8, WIDTH)
        with torch.no_grad():
            policy.train(not program.options.get("eval"))
            for _ in range(5):
                state = torch.tanh(policy(state)).clone()
                program.host(0.002)
        policy.train()
        loss = functional.mse_loss(policy(state), state)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        program.stepped()
        if step % 10 == 0:
            program.loss(loss.item())


def again(program: Program) -> None:
    """A cell of a notebook that is run again, and again: each time a new model."""
    x, y = rows(8).tensors
    for _ in range(6):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(5):
            loss = functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            program.stepped()
        program.loss(loss.item())


LOOPS = {
    each.__name__: each
    for each in (
        *(nanogpt, plain, late_validation, queued_validation, ppo, reinforce, gan, lbfgs, checkpointing, graph, again),
        distillation,
    )
}
