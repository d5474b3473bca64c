"""What GPUs reach in plain matrix products: whose measurement holds for whom; a file that anybody may have written."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from monitor.model.compute.mfu import PRODUCT
from monitor.model.compute.peaks import NOT_MEASURED, MatrixProduct, Product, Products, product_of
from monitor.reports.gpu_sections import lines
from monitor.reports.run_text import text
from monitor.runs import follow, product_store
from trainhooks.protocol import rundir
from trainhooks.protocol.events import Facts, Gpu

from .conftest import Story
from .test_mfu import KNOWN, run

H200 = "NVIDIA H200"
NOON = 1_795_000_000.0  # some day of 2026
ONE = Product(H200, NOON, {"bf16": 700.0, "fp32": 50.0}, "GPU-a", 700.0)


def card(uuid: str = "GPU-a", name: str = H200, limit: float | None = 700.0, simulated: bool = False) -> Gpu:
    return Gpu("", 0, 0.0, uuid, 0, name, power_limit=limit, simulated=simulated)


def of(*cards: Gpu, kind: str = "bf16", told: tuple[Product, ...] = (ONE,)) -> MatrixProduct:
    return product_of(cards, kind, Products(told))


def test_the_card_s_own_measurement() -> None:
    found = of(card())
    assert found == MatrixProduct(pytest.approx(700 / 989), 700.0, "bf16", NOON, True)
    assert of(card("GPU-b")).same_card is False and of(card("GPU-b")).share == found.share


def test_several_cards_reach_their_sum() -> None:
    other = Product(H200, NOON - 5, {"bf16": 600.0}, "GPU-b", 700.0)
    found = of(card(), card("GPU-b"), told=(ONE, other))
    assert (found.tflops, found.measured, found.same_card) == (1300.0, NOON - 5, True)
    assert found.share == pytest.approx(1300 / 1978)


def test_its_own_goes_before_a_newer_one_of_its_name() -> None:
    newer = Product(H200, NOON + 5, {"bf16": 600.0}, "GPU-b", 700.0)
    assert of(card(), told=(ONE, newer)).tflops == 700.0
    assert of(card("GPU-c"), told=(ONE, newer)).tflops == 600.0


@pytest.mark.parametrize(
    ("cards", "kind", "says"),
    [
        ([card(name="NVIDIA H100 PCIe", uuid="GPU-x")], "bf16", NOT_MEASURED),
        ([card(limit=450.0)], "bf16", "measured at a power limit of 700 W; the run's is 450 W"),
        ([card()], "fp16", "not measured in fp16"),
        ([card(simulated=True)], "bf16", NOT_MEASURED),
        ([card(), card("GPU-y", "NVIDIA A100-SXM4-80GB")], "bf16", NOT_MEASURED),
        ([], "bf16", "peak unknown"),
    ],
)
def test_what_was_measured_otherwise_says_nothing(cards: list[Gpu], kind: str, says: str) -> None:
    found = of(*cards, kind=kind)
    assert found.share is None and found.unknown == says
    assert len(lines(found)) == 1 and "doctor --measure-gpu" in lines(found)[0]
    assert (says in lines(found)[0]) == (says != NOT_MEASURED)


def test_a_limit_that_is_not_known_speaks_against_nothing() -> None:
    assert of(card(limit=None)).share is not None and of(card(limit=705.0)).share is not None


# The file


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(rundir.STATE_VARIABLE, str(tmp_path / "state"))
    return tmp_path / "state"


def write(state: Path, content: bytes) -> Products:
    state.mkdir(exist_ok=True)
    (state / rundir.PRODUCTS).write_bytes(content)
    return product_store.load()


def test_what_is_kept_is_read_again(state: Path) -> None:
    assert product_store.load() == Products()
    product_store.keep(ONE)
    other = Product(H200, NOON, {"tf32": 300.0}, "GPU-b", None, "580.1", True)
    product_store.keep(other)
    product_store.keep(Product(H200, NOON + 1, {"bf16": 710.0}, "GPU-a", 650.0))
    found = product_store.load()
    assert found.trouble is None and found.cards == (other, Product(H200, NOON + 1, {"bf16": 710.0}, "GPU-a", 650.0))
    assert [path.name for path in state.iterdir() if path.is_file()] == [rundir.PRODUCTS], "no half of a file is left"


def test_only_so_many_cards_are_kept(state: Path) -> None:
    for number in range(product_store.MAX_CARDS + 3):
        product_store.keep(Product(H200, NOON + number, {"bf16": 700.0}, f"GPU-{number}"))
    found = product_store.load()
    assert len(found.cards) == product_store.MAX_CARDS and found.cards[0].uuid == "GPU-3"


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\xff\xfe", b"not json", b"[1]", b"null", b'{"version": 2, "cards": []}', b'{"version": 1, "cards": {}}',
        b"[" * 100_000, b'{"version": 1, "cards": [' + b" " * product_store.MAX_STORE_BYTES + b"]}", b"9" * 9_000,
    ],
    ids=lambda content: content[:12].decode("latin-1"),
)  # fmt: skip
def test_a_file_that_is_none_of_ours_is_passed_over(state: Path, content: bytes) -> None:
    found = write(state, content)
    assert found.cards == () and found.trouble is not None and rundir.PRODUCTS in found.trouble
    assert found.trouble in lines(product_of([card()], "bf16", found))[0]
    product_store.keep(ONE)
    assert product_store.load().cards == (ONE,)


GOOD: dict[str, Any] = {
    "name": H200,
    "measured": NOON,
    "tflops": {"bf16": 700.0},
    "uuid": "GPU-a",
    "power_limit": 700.0,
}


@pytest.mark.parametrize(
    "odd",
    [
        7, None, [], {"name": 5}, {"name": ""}, {"measured": "today"}, {"measured": 4e12}, {"measured": -1},
        {"measured": True}, {"tflops": []}, {"tflops": {}}, {"tflops": {"bf16": float("nan")}},
        {"tflops": {"bf16": float("inf")}}, {"tflops": {"bf16": 0}}, {"tflops": {"bf16": 10**400}},
        {"tflops": {"bf16": 1979.0}}, {"tflops": {"int4": 5.0}}, {"tflops": {"bf16": "700"}},
    ],
    ids=str,
)  # fmt: skip
def test_an_odd_entry_is_passed_over_and_the_others_stay(state: Path, odd: Any) -> None:
    entry = {**GOOD, **odd} if isinstance(odd, dict) else odd
    found = write(state, json.dumps({"version": 1, "cards": [entry, {**GOOD, "uuid": "GPU-b"}]}).encode())
    assert [each.uuid for each in found.cards] == ["GPU-b"]
    assert found.trouble == f"1 entry of {rundir.PRODUCTS} cannot be read as measurements"


def test_names_are_cleaned(state: Path) -> None:
    entry = {**GOOD, "name": H200 + "\x1b[2J" + "x" * 5000, "uuid": "a\x1b]0;b", "driver": 7, "power_limit": "much"}
    (found,) = write(state, json.dumps({"version": 1, "cards": [entry]}).encode()).cards
    assert "\x1b" not in found.name + str(found.uuid) and len(found.name) < 300
    assert found.driver is None and found.power_limit is None


@pytest.mark.parametrize("kind", ["pipe", "directory"])
def test_nobody_waits_for_what_is_no_file(state: Path, kind: str) -> None:
    state.mkdir()
    path = state / rundir.PRODUCTS
    os.mkfifo(path) if kind == "pipe" else path.mkdir()
    found: list[Products] = []
    reader = threading.Thread(target=lambda: found.append(product_store.load()), daemon=True)
    reader.start()
    reader.join(5.0)
    assert found and found[0].cards == () and found[0].trouble


# In a report


def on_a_gpu(path: Path) -> Path:
    """A run of a known MFU of 40% on GPU-a."""
    story: Story = run(gpu={"sm_active": 95.0, "power_limit": 700.0})
    story.tell(Facts, facts=KNOWN).bye()
    story.write(path)
    return path


def test_a_report_has_the_rung_where_it_was_measured(state: Path) -> None:
    path = on_a_gpu(state.parent / "one")
    without = follow.load(path).report
    assert without.device is not None and without.device.matrix_product == MatrixProduct(
        format="bf16", unknown=NOT_MEASURED
    )
    assert text(without).count("doctor --measure-gpu") == 1

    product_store.keep(ONE)
    told = follow.load(path).report
    assert told.device is not None and told.throughput.mfu is not None and told.device.matrix_product is not None
    assert told.device.matrix_product.holds and told.device.below_peak[0].share == pytest.approx(1 - 700 / 989)
    assert sum(row.share for row in told.device.below_peak) + told.throughput.mfu == pytest.approx(1.0)
    day = time.strftime("%Y-%m-%d", time.localtime(NOON))
    shown = text(told)
    assert all(words in shown for words in ("matrix product in bf16: 71% of the peak", "700 TFLOPS", day))
    assert told.device.below_peak[0].what in shown and "measure-gpu" not in shown


def test_a_product_below_the_training_does_not_hold(state: Path) -> None:
    path = on_a_gpu(state.parent / "one")
    product_store.keep(Product(H200, NOON, {"bf16": 300.0}, "GPU-a", 700.0))
    told = follow.load(path).report
    assert told.device is not None and told.device.matrix_product is not None
    assert not told.device.matrix_product.holds
    assert PRODUCT not in [row.what for row in told.device.below_peak]
