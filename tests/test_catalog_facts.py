"""Facts in catalogs/: known values, the usual traps, and that everything has a source and a date."""

import csv
import re
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from parplan import catalog
from parplan.formats import Format
from parplan.hardware import FALLBACK, Gpu, Instance
from parplan.instances import purchases
from parplan.units import GB, GIB

TERA, GIGA = 1e12, 1e9

GPUS, FORMATS, MACHINES, SOURCES = catalog.gpus(), catalog.formats(), catalog.instances(), catalog.sources()

every_gpu = pytest.mark.parametrize("name", GPUS)
every_format = pytest.mark.parametrize("name", FORMATS)
every_machine = pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{m.provider}-{m.name}")


# --- Known values


@pytest.mark.parametrize(
    ("name", "memory"),
    [
        ("h100-sxm", 79.18),
        ("h200-sxm", 139.80),
        ("b200-sxm", 178.35),
        ("b300-sxm", 267.69),
        ("mi300x", 191.98),
        ("a100-sxm-80", 79.15),
        ("l40s", 44.39),
    ],
)
def test_memory_is_what_an_engine_sees(name: str, memory: float) -> None:
    assert GPUS[name].memory / GIB == pytest.approx(memory, abs=0.01)


@pytest.mark.parametrize(
    ("name", "arithmetic", "peak"),
    [
        ("h100-sxm", "bf16", 989),
        ("h100-sxm", "fp8", 1979),
        ("h200-sxm", "bf16", 989),
        ("h100-pcie", "bf16", 756),
        ("h100-nvl", "bf16", 835.5),
        ("a100-sxm-80", "bf16", 312),
        ("a100-sxm-80", "int8", 624),
        ("a10g", "bf16", 70),
        ("l4", "fp8", 242),
        ("l40s", "fp8", 733),
        ("rtx-4090", "bf16", 165.2),
        ("b200-sxm", "bf16", 2250),
        ("b200-sxm", "fp4", 9000),
        ("gb200-nvl72", "fp4", 10000),
        ("gb300-nvl72", "fp4", 15000),
        ("mi300x", "bf16", 1307.4),
        ("mi355x", "fp8", 5000),
        ("mi355x", "fp4", 10100),
    ],
)
def test_peak_is_the_published_dense_one(name: str, arithmetic: Any, peak: float) -> None:
    assert GPUS[name].peaks[arithmetic] == pytest.approx(peak * TERA, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "link", "domain"),
    [
        ("a100-sxm-80", 300, 8),
        ("h100-sxm", 450, 8),
        ("h200-sxm", 450, 8),
        ("h800-sxm", 200, 8),
        ("b200-sxm", 900, 8),
        ("gb200-nvl72", 900, 72),
        ("mi300x", 448, 8),
    ],
)
def test_link_is_one_way(name: str, link: float, domain: int) -> None:
    assert GPUS[name].link == pytest.approx(link * GIGA)
    assert GPUS[name].domain == domain


@pytest.mark.parametrize(
    ("name", "bandwidth"),
    [
        ("h100-sxm", 3.35),
        ("h200-sxm", 4.8),
        ("b200-sxm", 8.0),
        ("mi300x", 5.3),
        ("rtx-pro-6000-server", 1.597),
    ],
)
def test_bandwidth_known(name: str, bandwidth: float) -> None:
    assert GPUS[name].bandwidth == pytest.approx(bandwidth * TERA)


# --- Physics of GPUs


@every_gpu
def test_memory_is_never_the_nameplate(name: str) -> None:
    """The label carries the nameplate; NVIDIA prints GiB and calls it GB, an engine always sees less."""
    nameplate = float(GPUS[name].label.split()[-2])
    assert 0.90 * nameplate * GB < GPUS[name].memory < nameplate * GIB


@every_gpu
def test_narrower_is_faster_and_never_by_more_than_sparsity_would_pretend(name: str) -> None:
    peaks = GPUS[name].peaks
    assert peaks["fp32"] < peaks["fp16"] == peaks.get("bf16", peaks["fp16"])
    if "fp8" in peaks:
        assert peaks["fp8"] == pytest.approx(2 * peaks["fp16"], rel=0.02)
    if "fp4" in peaks:
        assert 1.9 <= peaks["fp4"] / peaks["fp8"] <= (3.01 if "Ultra" in GPUS[name].architecture else 4.01)
    if "int8" in peaks and "Ultra" not in GPUS[name].architecture and not name.startswith("rtx-"):
        assert peaks["int8"] == pytest.approx(2 * peaks["fp16"], rel=0.02)


@every_gpu
def test_balance_is_plausible(name: str) -> None:
    """FLOP per byte at 16 bits: 37 (H20) to 625 (GB200)."""
    part = GPUS[name]
    assert 30 < part.peak("fp16") / part.bandwidth < 650
    assert 0.25 * TERA < part.bandwidth < 9 * TERA
    assert part.link < part.bandwidth


@every_gpu
def test_fabric_and_domain_agree(name: str) -> None:
    part = GPUS[name]
    assert (part.fabric == "pcie") == (part.domain == 1)
    assert part.domain % part.node == 0 or part.node % part.domain == 0
    if part.fabric == "pcie":
        assert part.link <= 64 * GIGA
    if part.fabric == "xgmi":
        assert part.peer is not None
        assert part.link == pytest.approx((part.domain - 1) * part.peer)
    if part.network is not None:
        assert part.network < part.link


@pytest.mark.parametrize(
    ("architecture", "missing"),
    [
        ("Volta", {"bf16", "int8", "fp8", "fp4"}),
        ("Turing", {"bf16", "fp8", "fp4"}),
        ("Ampere", {"fp8", "fp4"}),
        ("Ada", {"fp4"}),
        ("Hopper", {"fp4"}),
        ("CDNA3", {"fp4"}),
    ],
)
def test_older_tensor_cores_lack_newer_formats(architecture: str, missing: set[str]) -> None:
    parts = [part for part in GPUS.values() if part.architecture == architecture]
    assert parts
    assert all(missing.isdisjoint(part.peaks) for part in parts)


@every_gpu
@pytest.mark.parametrize("wanted", FALLBACK)
def test_every_arithmetic_runs_somehow(name: str, wanted: Any) -> None:
    assert GPUS[name].peak(wanted) > 0


def test_blackwell_ultra_gave_up_int8() -> None:
    assert GPUS["b300-sxm"].peaks["int8"] < 0.1 * GPUS["b200-sxm"].peaks["int8"]


# --- Formats


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("bf16", 16),
        ("fp8-block", 8 + 32 / 128**2),
        ("int4-g128", 4 + 16 / 128 + 4 / 128),
        ("int4-g32", 4 + 16 / 32),
        ("nvfp4", 4 + 8 / 16),
        ("mxfp4", 4 + 8 / 32),
        ("bnb-nf4", 4 + 32 / 64),
        ("q8_0", (2 + 32) * 8 / 32),
        ("q6_k", (128 + 64 + 16 + 2) * 8 / 256),
        ("q5_0", (2 + 4 + 16) * 8 / 32),
        ("q4_0", (2 + 16) * 8 / 32),
        ("q4_1", (2 + 2 + 16) * 8 / 32),
    ],
)
def test_bits_include_scales(name: str, bits: float) -> None:
    assert FORMATS[name].bits == bits


@pytest.mark.parametrize(
    ("name", "blocks"), [("q5_k_m", 5.5), ("q4_k_m", 4.5), ("q4_k_s", 4.5), ("iq4_xs", 4.25), ("q2_k", 2.625)]
)
def test_mixes_weigh_more_than_their_blocks(name: str, blocks: float) -> None:
    assert blocks < FORMATS[name].bits < blocks + 0.6


@every_format
def test_only_whole_bits_go_without_blocks(name: str) -> None:
    one = FORMATS[name]
    assert one.block > 1 or one.bits in {8, 16, 32}


# --- Instances


@every_machine
def test_machine_is_sourced_and_its_price_dated(machine: Instance) -> None:
    assert machine.gpu in GPUS
    assert machine.sources
    assert (machine.price is None) == (machine.priced is None) == (machine.region is None)
    if machine.priced:
        assert date(2026, 1, 1) <= machine.priced <= date.today()


@every_machine
def test_machine_is_plausible(machine: Instance) -> None:
    part = GPUS[machine.gpu]
    if machine.price is not None:
        assert 0.4 < machine.price / machine.gpus < 30
    if machine.network is not None:
        assert machine.network <= 100 * GIGA
        assert machine.gpus < part.node or machine.network <= max(part.network or 0, 25 * GIGA)
    if machine.vcpus is not None and machine.ram is not None:
        assert 1 < machine.ram / GIB / machine.vcpus < 32


def test_names_are_unique() -> None:
    names = [(machine.provider, machine.name) for machine in MACHINES]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("name", "price"),
    [
        ("p5.48xlarge", 55.04),
        ("p6-b200.48xlarge", 113.9328),
        ("Standard_ND96isr_H100_v5", 98.32),
        ("BM.GPU.H100.8", 80),
    ],
)
def test_known_price(name: str, price: float) -> None:
    (machine,) = (machine for machine in MACHINES if machine.name == name)
    assert machine.price == price


# --- Sources


@every_gpu
def test_every_number_of_a_gpu_has_a_source(name: str) -> None:
    part = GPUS[name]
    sourced = {field for fields in part.sources for field in fields.removesuffix(" second").split(",")}
    measured = {"memory", "bandwidth", "peaks", "link"}
    optional = {field for field in ("peer", "network", "tdp") if getattr(part, field) is not None}
    assert measured | optional <= sourced <= set(Gpu.model_fields)


@every_gpu
def test_second_source_is_another(name: str) -> None:
    sources = GPUS[name].sources
    primary = {fields: one for fields, one in sources.items() if not fields.endswith(" second")}
    for fields, source in sources.items():
        if fields.endswith(" second"):
            for field in fields.removesuffix(" second").split(","):
                first = [one for key, one in primary.items() if field in key.split(",")]
                assert first, field
                assert source not in first, field


@pytest.mark.parametrize("name", SOURCES)
def test_source_can_be_found_again(name: str) -> None:
    assert len(SOURCES[name].text) > 15
    assert date(2026, 1, 1) <= SOURCES[name].read <= date.today()


@pytest.mark.parametrize("entry", [GPUS["h100-sxm"], FORMATS["bf16"], MACHINES[0]])
def test_an_unknown_key_is_refused(entry: Gpu | Format | Instance) -> None:
    with pytest.raises(ValueError, match="Extra inputs"):
        type(entry).model_validate(entry.model_dump() | {"flops": 1})


def test_gpus_are_sorted() -> None:
    assert list(GPUS) == sorted(GPUS)


LISTED = Path(__file__).parent / "data" / "instances.csv"
"""Every machine met while the catalogue was collected (2026-11-29): its name here, or why it is left out."""
LEFT_OUT = {
    "no GPU": 11,
    "one third-party list only": 11,
    "peaks of the GPU not found": 6,
    "GPUs per size not found": 5,
    "no longer sold": 1,
}


def test_every_machine_met_is_here_or_left_out_for_a_reason() -> None:
    rows = list(csv.DictReader(LISTED.read_text().splitlines()))
    assert len(rows) == 195
    assert Counter(row["left_out"] for row in rows if not row["catalogued"]) == LEFT_OUT
    here = {(machine.provider, machine.name): machine for machine in MACHINES}
    found = [(here[row["provider"], row["catalogued"]], row) for row in rows if row["catalogued"]]
    assert len(found) == 161
    for machine, row in found:
        assert not row["left_out"]
        assert machine.gpus == int(row["gpus"]) or "per GPU" in (row["listed"] + machine.note), machine.name
    whole = [machine for machine in MACHINES if machine.price is not None]
    assert all(machine.region and machine.priced and machine.sources for machine in whole)


def test_prices_rest_on_the_provider_or_on_two_lists() -> None:
    """Lists read from the providers' own price interfaces and pages count alone, third-party notes in pairs."""
    own = ("karpenter", "GPU Price Index", "gpuhunt")
    for machine in MACHINES:
        texts = [source.text for source in machine.sources]
        if machine.price is not None and not any(name in text for text in texts for name in own):
            assert len(texts) >= 2, machine.name


def test_no_machine_is_made_up() -> None:
    """A price per GPU alone makes no machine: its sizes have a source, or it is said to be missing."""
    assert not [one.name for one in MACHINES if re.fullmatch(r"\d+x-[a-z0-9-]+", one.name)]
    assert not [one.name for one in MACHINES if "were not read" in one.note]
    missing = catalog.unsized()
    assert set(missing["Hyperstack"]) == {"b200-sxm", "b300-sxm", "h200-sxm", "rtx-pro-6000-server"}
    for provider, gpus in missing.items():
        assert set(gpus) <= set(GPUS)
        assert not [one for one in MACHINES if one.provider == provider and one.gpu in gpus]


def test_one_price_per_gpu_is_the_same_in_every_size() -> None:
    """Crusoe, Hyperstack, DigitalOcean and Hot Aisle publish one price per GPU, whatever the machine."""
    for provider in ("Crusoe", "Hyperstack", "DigitalOcean", "Hot Aisle", "Nebius", "Together AI"):
        each: dict[str, set[float]] = {}
        for one in (one for one in MACHINES if one.provider == provider and one.price):
            each.setdefault(one.gpu, set()).add(round(float(one.price or 0) / one.gpus, 6))
        assert each
        assert all(len(prices) == 1 for prices in each.values()), provider


def test_a_cluster_is_sold_from_its_smallest_size_up() -> None:
    """Together AI rents H200 from 256 GPUs up: one replica of eight pays for all of them."""
    cluster = next(one for one in MACHINES if one.name == "cluster-8x-h200-sxm")
    (found,) = purchases([cluster], gpu=GPUS["h200-sxm"], gpus=8)
    assert found.gpus == 256
    assert found.price == pytest.approx(256 * 5.99)
