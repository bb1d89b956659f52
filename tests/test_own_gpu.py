"""A GPU of one's own: it travels in the link, plans like any other, and nothing odd gets through."""

import base64
import json
import re
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parplan import Scenario, catalog, plan
from parplan.links import from_query, parsed, share_url
from parplan.own_gpu import (
    LARGEST_GPU,
    OwnGpu,
    OwnGpuError,
    own_gpu,
    packed_gpu,
    unpacked_fields,
    unpacked_gpu,
    written_gpu,
    written_quantity,
)
from parplan.packing import FAMILIAR, packed_json
from parplan.ui.own_hardware import copied
from parplan.units import quantity

H100 = catalog.gpus()["h100-sxm"]
KNOWN = sorted(catalog.gpus())
COMPUTED = [name for name in OwnGpu.model_fields if name != "label"]


def described(**changes: Any) -> dict[str, Any]:
    """An H100, with changes; None leaves a field out."""
    return {name: value for name, value in (written_gpu(H100) | changes).items() if value is not None}


@pytest.mark.parametrize("name", KNOWN)
def test_every_gpu_of_the_catalogue_can_be_copied_to_the_last_bit(name: str) -> None:
    gpu = catalog.gpus()[name]
    again = unpacked_gpu(packed_gpu(copied(gpu)))
    assert again.name == "own"
    assert {field: getattr(again, field) for field in COMPUTED} == {
        field: getattr(gpu, field) for field in COMPUTED
    }


@given(st.floats(1e8, 1e15))
def test_a_written_quantity_is_exactly_the_number(amount: float) -> None:
    assert quantity(written_quantity(amount, unit="B/s"), unit="B/s") == amount


def test_quantities_are_written_as_people_write_them() -> None:
    fields = written_gpu(H100)
    assert (fields["memory"], fields["bandwidth"], fields["link"]) == ("79.18 GiB", "3.35 TB/s", "450 GB/s")
    assert (fields["tdp"], fields["network"], fields["peaks"]["bf16"]) == (
        "700 W",
        "50 GB/s",
        "989.4 TFLOP/s",
    )
    assert "peer" not in fields


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(),
        Scenario(model="deepseek-ai/DeepSeek-V3.1", weights="native", budget=32, engine="sglang", tpot=50),
        Scenario(model="meta-llama/Meta-Llama-3.1-405B", weights="bf16", budget=16, concurrency=16),
    ],
    ids=["dense", "experts", "two nodes"],
)
def test_a_copy_of_a_gpu_plans_like_it(scenario: Scenario) -> None:
    fields = {"label": H100.label} | written_gpu(H100)
    copy = scenario.model_copy(update={"gpu": "own", "own_gpu": packed_gpu(fields)})
    mine, theirs = plan(copy), plan(scenario)
    assert mine.advice.verdict == theirs.advice.verdict
    assert mine.advice.reasons == theirs.advice.reasons
    assert mine.advice.recommended == theirs.advice.recommended
    assert [rung.plan for rung in mine.advice.ladder] == [rung.plan for rung in theirs.advice.ladder]
    assert {one.instance.provider for one in mine.advice.purchases} <= {"yours"}


def test_twice_the_bandwidth_is_faster_and_half_the_memory_holds_less() -> None:
    def asked(**changes: Any) -> Any:
        text = packed_gpu(described(**changes))
        found = plan(Scenario(gpu="own", own_gpu=text, tensor=4)).advice.recommended
        assert found
        return found

    same = asked()
    assert asked(bandwidth="6.7 TB/s").serving.tpot < same.serving.tpot
    assert asked(memory="40 GiB").memory.capacity < same.memory.capacity


def test_it_travels_in_the_link() -> None:
    scenario = Scenario(
        gpu="own", own_gpu=packed_gpu(described(label="My card")), gpu_hour=1.25, discount=12.5
    )
    link = share_url(scenario, base="https://example.org/")
    assert from_query(parsed(link)) == (scenario, [])
    assert len(link) < 1200
    assert "My card" in plan(scenario).advice.verdict


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"memory": "80 TB/s"}, "memory: '80 TB/s' is not a quantity in B"),
        ({"memory": None}, "memory: Field required"),
        ({"memory": 80}, "memory: Input should be greater than or equal to 1073741824"),
        ({"memory": "1e400 GiB"}, "memory: Input should be"),
        ({"bandwidth": "-1 TB/s"}, "bandwidth: Input should be greater"),
        ({"bandwidth": "nan B/s"}, "bandwidth: 'nan B/s' is not a quantity"),
        ({"peaks": {"bf16": "1 PFLOP/s"}}, "peaks: fp32 is needed"),
        ({"peaks": {"fp32": "1 TFLOP/s", "fp5": "1 PFLOP/s"}}, "peaks.fp5"),
        ({"fabric": "ethernet"}, "fabric: Input should be 'nvlink', 'xgmi' or 'pcie'"),
        ({"node": 0}, "node: Input should be greater"),
        ({"node": 10**9}, "node: Input should be less"),
        ({"domain": "many"}, "domain: Input should be a valid integer"),
        ({"label": "<script>alert(1)</script>"}, "label: String should match"),
        ({"label": "a" * 41}, "label: String should match"),
        ({"architecture": "![x](y)"}, "architecture: String should match"),
        ({"name": "h100-sxm"}, "name: Extra inputs"),
        ({"sources": {}}, "sources: Extra inputs"),
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(OwnGpuError, match=r"\w") as caught:
        packed_gpu(described(**changes))
    assert str(caught.value).startswith(said)
    scenario, messages = from_query({"gpu": ["own"], "own_gpu": [packed_json(described(**changes))]})
    assert scenario == Scenario()
    assert len(messages) == 1
    assert said in messages[0]
    assert "h100-sxm is used instead" in messages[0]


IN_CODE = re.compile(r"own_gpu|Error -?\d|decompress|base64|utf-8|codec|char \d")
"""What a programmer would say about damaged text."""


@pytest.mark.parametrize("text", ["eJw", "A" * 40, packed_json(described())[:-9], packed_json([1]), "é"])
def test_a_damaged_description_is_reported_in_words(text: str) -> None:
    (message,) = from_query({"gpu": ["own"], "own_gpu": [text]})[1]
    assert message.startswith("The GPU of your own was not used: ")
    assert not IN_CODE.search(message)


@given(st.text(max_size=200))
def test_a_damaged_description_is_reported(text: str) -> None:
    scenario, messages = from_query({"gpu": ["own"], "own_gpu": [text], "prompt": ["333"]})
    assert scenario == Scenario(prompt=333)
    (message,) = messages
    assert message.startswith("The GPU of your own was not used: ")
    assert not IN_CODE.search(message)


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.lists(st.integers(), max_size=3),
)


@given(st.dictionaries(st.sampled_from([*OwnGpu.model_fields, "x"]), values, max_size=6))
def test_any_description_is_refused_or_planned(changes: dict[str, Any]) -> None:
    scenario, messages = from_query({"gpu": ["own"], "own_gpu": [packed_json(described() | changes)]})
    assert plan(scenario).advice.verdict
    assert (scenario.gpu == "own") == (not messages)


def bounds(*, largest: bool) -> dict[str, Any]:
    """The smallest or largest figures that are taken."""
    gib, rate, peak, watts = (
        ("16384 GiB", "1 PB/s", "1e18 FLOP/s", 1e5) if largest else ("1 GiB", "1e8 B/s", 1e9, 1)
    )
    many, rates = (1152 if largest else 1), ("bandwidth", "link", "peer", "network", "pcie")
    peaks = dict.fromkeys(("fp32", "bf16", "fp8"), peak)
    return {"memory": gib, "tdp": watts, "peaks": peaks, "domain": many, "node": many} | dict.fromkeys(
        rates, rate
    )


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("fabric", ["nvlink", "xgmi", "pcie"])
def test_the_smallest_and_the_largest_gpu_plan(fabric: str, largest: bool) -> None:  # noqa: FBT001
    text = packed_gpu(described(fabric=fabric, **bounds(largest=largest)))
    assert plan(
        Scenario(gpu="own", own_gpu=text, gpu_hour=1, model="Qwen/Qwen3-0.6B", weights="bf16")
    ).advice.verdict


def test_a_bomb_is_not_unpacked() -> None:
    bomb = base64.urlsafe_b64encode(zlib.compress(b'{"a":"' + b"x" * (64 << 20) + b'"}', 9)).decode()
    with pytest.raises(OwnGpuError):
        unpacked_fields(bomb)
    assert LARGEST_GPU < 1 << 13


def test_nesting_is_survived() -> None:
    deep = base64.urlsafe_b64encode(zlib.compress(b"[" * 4000)).decode()
    with pytest.raises(OwnGpuError, match="damaged"):
        unpacked_fields(deep)


def test_a_description_that_is_no_object_is_refused() -> None:
    with pytest.raises(OwnGpuError, match="not a JSON object"):
        unpacked_fields(packed_json([1]))
    with pytest.raises(OwnGpuError, match="no GPU is described"):
        unpacked_fields("")


def test_a_packed_description_is_plain_json_inside() -> None:
    text = packed_gpu(described())
    packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    raw = zlib.decompressobj(zdict=FAMILIAR).decompress(packed)
    assert own_gpu(json.loads(raw)) == unpacked_gpu(text)
