"""Which GPUs a process says that it uses; on a torch of the test's own, because the real one needs a GPU for it."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from trainhooks.recording import facts

from .conftest import Trainings

A, B = "aaaaaaaa-5eed-4000-8000-000000000001", "bbbbbbbb-5eed-4000-8000-000000000002"


class Uuid:
    """As torch gives it: an object that only prints itself."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Two devices, a context on the second."""
    properties = [SimpleNamespace(uuid=Uuid(A)), SimpleNamespace(uuid=Uuid(B))]
    made = SimpleNamespace(
        version=SimpleNamespace(cuda="12.8"),
        cuda=SimpleNamespace(
            is_initialized=lambda: True,
            device_count=lambda: len(properties),
            get_device_properties=properties.__getitem__,
        ),
        _C=SimpleNamespace(_cuda_hasPrimaryContext=lambda index: index == 1),
        properties=properties,
    )
    monkeypatch.setitem(sys.modules, "torch", made)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return made


def test_devices_with_a_context_are_in_use(torch: SimpleNamespace) -> None:
    assert facts.device_uuids() == [f"GPU-{B}"]


@pytest.mark.parametrize("visible", ["3,5", "GPU-aaaa,GPU-bbbb", f"GPU-{A},GPU-{B}", " 5 , 3 "])
def test_uuids_from_torch_win_over_the_environment(
    torch: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, visible: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert facts.device_uuids() == [f"GPU-{B}"]


def test_a_mig_instance_has_its_own_id(torch: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    del torch.properties[1]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"MIG-{B}")
    assert facts.device_uuids() == [f"MIG-{B}"]


def test_an_older_torch_has_no_uuids(torch: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.properties[:] = [SimpleNamespace(), SimpleNamespace()]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert facts.device_uuids() == []  # CUDA's index is not the driver's
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-aaaa,GPU-bbbb")
    assert facts.device_uuids() == ["GPU-bbbb"]


def test_cuda_is_never_started_to_learn_of_it(torch: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("asked")

    torch.cuda.is_initialized = lambda: False
    torch.cuda.device_count = torch.cuda.get_device_properties = torch._C._cuda_hasPrimaryContext = refuse
    assert facts.device_uuids() == []
    monkeypatch.delitem(sys.modules, "torch")
    assert facts.device_uuids() == []


def test_a_partial_torch_costs_only_the_fact(torch: SimpleNamespace) -> None:
    del torch._C._cuda_hasPrimaryContext
    assert facts.device_uuids() == []
    del torch.cuda
    assert facts.device_uuids() == []


def test_a_device_used_later_is_added_later(torch: SimpleNamespace) -> None:
    watch = facts.Devices()
    assert watch.in_use(0.0) == [f"GPU-{B}"]
    torch._C._cuda_hasPrimaryContext = lambda index: True
    assert watch.in_use(facts.DEVICES_SECONDS / 2) == [f"GPU-{B}"]
    assert watch.in_use(facts.DEVICES_SECONDS) == [f"GPU-{A}", f"GPU-{B}"]


def test_devices_are_queried_until_there_are_some(torch: SimpleNamespace) -> None:
    has_context = torch._C._cuda_hasPrimaryContext
    torch._C._cuda_hasPrimaryContext = lambda index: False
    watch = facts.Devices()
    assert watch.in_use(0.0) == []
    torch._C._cuda_hasPrimaryContext = has_context
    assert watch.in_use(0.5) == [f"GPU-{B}"]


def test_the_hooks_send_the_devices_in_use(train: Trainings) -> None:
    told = train(
        """
        import sys, types
        torch = sys.modules["torch"] = types.ModuleType("torch")
        torch.version = types.SimpleNamespace(cuda="12.8")
        torch._C = types.SimpleNamespace(_cuda_hasPrimaryContext=lambda index: index == 1)
        torch.cuda = types.SimpleNamespace(
            is_initialized=lambda: started,
            device_count=lambda: 2,
            get_device_properties=lambda index: types.SimpleNamespace(uuid=f"uuid-{index}"),
        )
        started = False
        for step in th.steps(range(30)):
            started = step > 5
            time.sleep(0.1)
        """
    )
    published = [facts["facts"]["devices"] for facts in told.kind("facts") if "devices" in facts["facts"]]
    assert published == [["GPU-uuid-1"]]
