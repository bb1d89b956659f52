"""The napkin and the shop."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parplan import Scenario, catalog, plan
from parplan.cost import bought_for, replicas_held
from parplan.hardware import Instance
from parplan.instances import (
    discounted,
    machines_with_spare,
    napkin,
    next_power_of_two,
    own_machines,
    purchases,
    replicas_with_spare,
    sequence_bytes,
    surviving,
    weight_bytes,
)
from parplan.problem import chosen_precision
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
    memory = catalog.gpus()["h100-sxm"].memory
    assert found.gpus == 2
    assert (found.gpus - 1) * memory < found.weights + found.kv <= found.gpus * memory


def test_the_napkin_is_not_rounded_to_what_is_sold() -> None:
    """405B in bf16 with 32 requests: (756.0 + 31.5) / 79.2 = 9.95."""
    transformer = catalog.model("meta-llama/Meta-Llama-3.1-405B").transformer
    precision = chosen_precision(transformer, weights=FORMATS["bf16"], kv=None, formats=FORMATS)
    workload = Workload(prompt=1024, output=1024, concurrency=32)
    assert napkin(transformer, precision, gpu=catalog.gpus()["h100-sxm"], workload=workload).gpus == 10


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


def test_one_rack_needs_no_network() -> None:
    """Trays of four GB200 make one NVLink domain of 72; beyond it a network is needed."""
    gpu = catalog.gpus()["gb200-nvl72"]
    tray = offer("tray", 4, price=40.0).model_copy(update={"gpu": gpu.name})
    assert [p.count for p in purchases([tray], gpu=gpu, gpus=72)] == [18]
    assert purchases([tray], gpu=gpu, gpus=144) == ()


def test_a_rack_is_sold_as_a_whole() -> None:
    """CoreWeave deploys GB200 as racks of 18 trays: two trays cost what eighteen do, and hold nine replicas."""
    gpu = catalog.gpus()["gb200-nvl72"]
    tray = offer("tray", 4, price=42.0).model_copy(update={"gpu": gpu.name, "lot": 18})
    for gpus, count in ((4, 18), (8, 18), (72, 18)):
        found = purchases([tray], gpu=gpu, gpus=gpus)
        assert [(one.count, one.price) for one in found] == [(count, count * 42.0)]
    one = purchases([tray], gpu=gpu, gpus=8)
    assert replicas_held(one[0], gpus=8) == 9
    assert [spare.count for spare in surviving(one, replicas=8, gpus=8)] == [18]
    assert [spare.count for spare in surviving(one, replicas=9, gpus=8)] == [36]
    assert bought_for(tray, replicas=10, gpus=8).count == 36


@given(st.integers(1, 40), st.integers(1, 32), st.integers(1, 16))
def test_without_any_one_machine_all_replicas_still_run(replicas: int, gpus: int, size: int) -> None:
    """Counted machine by machine: the fullest is lost, one machine less would not do."""

    def left(machines: int) -> int:
        if size >= gpus:
            return (machines - 1) * (size // gpus)
        return machines // -(-gpus // size) - 1

    machines = int(machines_with_spare(replicas, gpus=gpus, instance=size))
    assert left(machines) >= replicas
    assert left(machines - 1) < replicas


@given(st.integers(1, 40), st.integers(1, 32), st.integers(1, 16), st.integers(0, 3))
def test_as_many_replicas_run_as_leave_enough_when_the_fullest_machine_is_lost(
    replicas: int, gpus: int, size: int, more: int
) -> None:
    """Spread evenly and counted one by one; one fewer would not do, and the machines hold them all."""
    held = size // gpus
    machines = int(machines_with_spare(replicas, gpus=gpus, instance=size)) + more
    running = replicas_with_spare(replicas, machines=machines, held=held)

    def left(running: int) -> int:
        return running - (-(-running // machines) if held else 1)

    assert left(running) >= replicas > left(running - 1)
    assert not held or running <= machines * held


def test_spares_can_turn_the_order_of_prices() -> None:
    """One replica of two GPUs: a pair is cheaper alone and with its spare; four pairs in a node share one spare."""
    gpu = catalog.gpus()["h100-sxm"]
    offers = [offer("node", 8, price=20.0), offer("pair", 2, price=9.0)]
    one = purchases(offers, gpu=gpu, gpus=2)
    assert [(p.instance.name, p.count) for p in surviving(one, replicas=1, gpus=2)] == [
        ("pair", 2),
        ("node", 2),
    ]
    assert [(p.instance.name, p.count) for p in surviving(one, replicas=4, gpus=2)] == [
        ("node", 2),
        ("pair", 5),
    ]


# --- Prices of one's own


def cheapest(scenario: Scenario) -> float:
    """USD per hour of the cheapest machines that hold every request."""
    rung = next(rung for rung in plan(scenario).advice.ladder if rung.name == "holds")
    assert rung.purchases[0].price is not None
    return rung.purchases[0].price


def test_a_discount_comes_off_every_price_and_nothing_else_changes() -> None:
    listed, paid = catalog.instances(), discounted(catalog.instances(), discount=0.3)
    for before, after in zip(listed, paid, strict=True):
        assert after.model_copy(update={"price": before.price}) == before
        assert after.price == (None if before.price is None else pytest.approx(0.7 * before.price))
    assert cheapest(Scenario(discount=30)) == pytest.approx(0.7 * cheapest(Scenario()))
    assert cheapest(Scenario(discount=100)) == 0


def test_an_own_price_is_for_the_chosen_gpu_alone_and_is_what_its_gpus_cost() -> None:
    answer = plan(Scenario(gpu_hour=1.5, discount=50))
    bought = answer.advice.purchases
    assert {one.instance.provider for one in bought} == {"yours"}
    assert all(one.price == pytest.approx(1.5 * one.gpus) for one in bought)
    assert all(one.instance.priced == date.today() for one in bought)
    others = [one for one in answer.offers if one.gpu != "h100-sxm"]
    assert others == [one for one in discounted(catalog.instances(), discount=0.5) if one.gpu != "h100-sxm"]


def test_an_own_price_does_not_follow_to_another_gpu() -> None:
    own = Scenario(gpu_hour=1.5)
    assert own.on("h100-sxm") == own
    assert own.on("b200-sxm") == Scenario(gpu="b200-sxm")


def test_own_machines_come_in_parts_of_a_node_joined_by_its_network() -> None:
    gpu = catalog.gpus()["h100-sxm"]
    machines = own_machines(gpu, gpu_hour=2.0, today=date(2026, 11, 29))
    assert [(one.gpus, one.price) for one in machines] == [(1, 2.0), (2, 4.0), (4, 8.0), (8, 16.0)]
    assert [(p.count, p.price) for p in purchases(machines, gpu=gpu, gpus=16)] == [(2, 32.0)]
    assert [one.network for one in machines] == [None, None, None, gpu.network]
    alone = gpu.model_copy(update={"network": None})
    machines = own_machines(alone, gpu_hour=0.0, today=date(2026, 11, 29))
    assert {one.price for one in machines} == {None}
    assert purchases(machines, gpu=alone, gpus=16) == ()
