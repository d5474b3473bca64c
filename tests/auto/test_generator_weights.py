"""Weights of a model that generates are compared with those of the one that trains."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from trainhooks.auto.models import generator_weights, program_facts
from trainhooks.auto.models.generator_weights import FIRST_WEIGHTS_REPORT, GeneratorWeights

CALLS = 20


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> nn.Module:
    torch.manual_seed(0)
    made = nn.Sequential(nn.Embedding(8, 4), nn.Linear(4, 4), nn.Linear(4, 8))
    monkeypatch.setattr(program_facts, "trained_model", lambda: made)
    return made


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(generator_weights, "put_facts", lambda **facts: found.append(facts["generator_weights"]))
    yield found


def train(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)


def calls(model: nn.Module, generator: nn.Module, sync: Callable[[int], None] = lambda step: None) -> GeneratorWeights:
    weights = GeneratorWeights()
    for step in range(CALLS):
        sync(step)
        weights.generated(generator)
        train(model)
    return weights


def test_a_copy_that_stays_as_it_is(model: nn.Module, reported: list[dict[str, Any]]) -> None:
    weights = calls(model, copy.deepcopy(model))
    assert (weights.updated, weights.unchanged) == (CALLS - 1, CALLS - 1)
    assert reported == [
        {"updated": count, "unchanged": count} for count in (FIRST_WEIGHTS_REPORT, 2 * FIRST_WEIGHTS_REPORT)
    ]


def test_a_copy_behind_a_wrapper(model: nn.Module, reported: list[dict[str, Any]]) -> None:
    wrapped = nn.Module()
    wrapped.add_module("_orig_mod", copy.deepcopy(model))  # as torch.compile makes it
    assert calls(model, wrapped).unchanged == CALLS - 1


def test_a_copy_that_is_synced_now_and_then(model: nn.Module, reported: list[dict[str, Any]]) -> None:
    generator = copy.deepcopy(model)

    def by_data(step: int) -> None:
        if step % 5 == 0:
            for own, theirs in zip(generator.parameters(), model.parameters(), strict=True):
                own.data.copy_(theirs.data)

    weights = calls(model, generator, by_data)
    assert weights.updated == CALLS - 1 and weights.unchanged < CALLS - 1


@pytest.mark.parametrize(
    "make",
    [
        lambda model: model,
        lambda model: nn.Sequential(*model),  # the same weights
        lambda model: nn.Sequential(nn.Embedding(8, 2), nn.Linear(2, 2)),  # another architecture
    ],
)
def test_others_are_not_compared(model: nn.Module, make: Any, reported: list[dict[str, Any]]) -> None:
    assert calls(model, make(model)).updated == 0 and reported == []


def test_without_updates_nothing_is_known(model: nn.Module, reported: list[dict[str, Any]]) -> None:
    generator, weights = copy.deepcopy(model), GeneratorWeights()
    for _ in range(CALLS):
        weights.generated(generator)
    assert weights.updated == 0
