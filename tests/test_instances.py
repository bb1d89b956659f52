"""The napkin and the shop."""

import pytest

from parplan import catalog
from parplan.hardware import Instance
from parplan.instances import napkin, next_power_of_two, purchases, sequence_bytes, weight_bytes
from parplan.planner import chosen_precision
from parplan.provenance import Source
from parplan.units import GIB
from parplan.workload import Workload

SOURCE = Source.model_validate({"text": "made up for this test", "read": "2026-11-29"})
FORMATS = catalog.formats()


@pytest.mark.parametrize(
    ("model", "weights", "gigabytes"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", "fp8", 72.7),  # 68.45e9 x 1 + 2.1e9 x 2
        ("meta-llama/Llama-3.3-70B-Instruct", "bf16", 141.1),  # 70.55e9 x 2
        ("meta-llama/Meta-Llama-3.1-405B", "fp8", 410.1),  # 401.65e9 x 1 + 4.2e9 x 2
        ("deepseek-ai/DeepSeek-V3.1", "native", 673.2),  # 669.1e9 x 1.0002 + 1.96e9 x 2
    ],
)
def test_weights_weigh_parameters_times_bytes(model: str, weights: str, gigabytes: float) -> None:
    transformer = catalog.model(model).transformer
    wanted = None if weights == "native" else FORMATS[weights]
    precision = chosen_precision(transformer, weights=wanted, kv=None, formats=FORMATS)
    assert float(weight_bytes(transformer, precision)) / 1e9 == pytest.approx(gigabytes, rel=0.002)


def test_a_llama_70b_token_takes_320_kib_in_bf16() -> None:
    """80 layers x 2 x 8 KV heads x 128 x 2 bytes."""
    transformer = catalog.model("meta-llama/Llama-3.3-70B-Instruct").transformer
    precision = chosen_precision(transformer, weights=None, kv=None, formats=FORMATS)
    assert float(sequence_bytes(transformer, precision, length=1)) == 80 * 2 * 8 * 128 * 2


def test_the_napkin_is_weights_and_cache_over_memory_rounded_up() -> None:
    transformer = catalog.model("meta-llama/Llama-3.3-70B-Instruct").transformer
    precision = chosen_precision(transformer, weights=FORMATS["fp8"], kv=None, formats=FORMATS)
    workload = Workload(prompt=1024, output=1024, concurrency=64)
    found = napkin(transformer, precision, gpu=catalog.gpus()["h100-sxm"], workload=workload)
    assert found.kv == pytest.approx(64 * 2048 * 327_680)
    assert found.gpus == 2
    assert found.weights + found.kv <= found.gpus * catalog.gpus()["h100-sxm"].memory


@pytest.mark.parametrize(
    ("number", "power"), [(0.3, 1), (1, 1), (1.01, 2), (2, 2), (5, 8), (16, 16), (16.1, 32)]
)
def test_sizes_are_sold_in_powers_of_two(number: float, power: int) -> None:
    assert next_power_of_two(number) == power


def offer(name: str, gpus: int, *, price: float | None, network: float | None = None) -> Instance:
    return Instance(
        provider="p", name=name, gpu="h100-sxm", gpus=gpus, price=price, network=network, sources=(SOURCE,)
    )


def test_the_cheapest_way_comes_first_and_unpriced_ones_last() -> None:
    gpu = catalog.gpus()["h100-sxm"]
    offers = [offer("node", 8, price=40.0), offer("pair", 2, price=8.0), offer("four", 4, price=None)]
    assert [p.instance.name for p in purchases(offers, gpu=gpu, gpus=2)] == ["pair", "node", "four"]


def test_a_layout_is_never_spread_over_machines_without_a_network_or_below_a_node() -> None:
    gpu = catalog.gpus()["h100-sxm"]
    offers = [
        offer("single", 1, price=1.0, network=50e9),
        offer("lonely-node", 8, price=2.0),
        offer("node", 8, price=40.0, network=50e9),
    ]
    found = purchases(offers, gpu=gpu, gpus=16)
    assert [(p.instance.name, p.count, p.price) for p in found] == [("node", 2, 80.0)]


def test_eight_h100s_are_sold_by_all_three_big_clouds() -> None:
    gpu = catalog.gpus()["h100-sxm"]
    providers = {p.instance.provider for p in purchases(catalog.instances(), gpu=gpu, gpus=8)}
    assert {"AWS", "Azure", "GCP"} <= providers


def test_usable_memory_not_the_nameplate_counts() -> None:
    assert catalog.gpus()["h100-sxm"].memory / GIB == pytest.approx(79.18, abs=0.1)
