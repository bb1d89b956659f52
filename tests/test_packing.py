"""JSON in links: short, whole, and readable for as long as there are links."""

import base64
import hashlib
import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parplan import Scenario, catalog, own_model
from parplan.hub import ConfigError
from parplan.links import from_query, parsed, share_url, to_query
from parplan.own_gpu import packed_gpu
from parplan.own_model import HANDY, LARGEST_CONFIG, described, packed_entry, packed_model, unpacked
from parplan.packing import FAMILIAR, packed_json, unpacked_json
from parplan.ui.own_hardware import copied

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside),
    max_leaves=20,
)
LONGEST_LINK = 2000
"""Characters that mail and chat programs leave whole."""


@given(st.dictionaries(st.text(), JSON))
def test_what_is_packed_comes_back(value: Any) -> None:
    assert unpacked_json(packed_json(value), most=1 << 20) == value


@given(JSON.filter(lambda value: not isinstance(value, dict)))
def test_a_packed_value_that_is_no_object_is_a_value_error(value: Any) -> None:
    with pytest.raises(ValueError, match="is not a JSON object"):
        unpacked_json(packed_json(value), most=1 << 20)


def test_what_was_packed_without_a_dictionary_is_read() -> None:
    """As links of 0.1.0 are; whole ones stand in link_schemas.json."""
    text = base64.urlsafe_b64encode(zlib.compress(b'{"hidden_size":64}', 9)).decode().rstrip("=")
    assert unpacked_json(text, most=100) == {"hidden_size": 64}


def test_what_both_ends_know_never_changes() -> None:
    """A different text makes every packed link that was passed on unreadable."""
    assert zlib.adler32(FAMILIAR) == 23273674


@pytest.mark.parametrize("text", ["", "!", "eJw", "A" * 40])
def test_a_damaged_text_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        unpacked_json(text, most=100)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no config.json is given"),
        (packed_json({"a": "x" * 100})[:-9], "its end is missing"),
        (packed_json("x" * (LARGEST_CONFIG + 9)), "unpacks to more than 262,144 bytes"),
        (packed_json([1]), "not a JSON object"),
        ("A" * 40, "damaged"),
    ],
)
def test_why_a_packed_config_is_not_used_is_said(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        unpacked(text)
    scenario, (message,) = from_query({"model": ["config"], "config": [text]})
    assert why in message
    assert message.endswith(f"{scenario.model} is used instead.")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_a_file_may_be_in_any_encoding_of_unicode(encoding: str) -> None:
    text = json.dumps(catalog.model("Qwen/Qwen3-8B").config)
    assert (
        own_model.packed(text.encode(encoding)) == own_model.packed(f"\ufeff{text}") == own_model.packed(text)
    )


def with_every_layer_named(config: Any, *, layers: int) -> Any:
    """A config whose quantised layers are listed one by one, as they are in the file that is published."""
    if isinstance(config, list):
        return (
            [
                name.replace(".*.", f".{layer}.")
                for name in config
                for layer in range(layers if ".*." in str(name) else 1)
            ]
            if all(isinstance(name, str) for name in config)
            else config
        )
    if not isinstance(config, dict):
        return config
    return {
        name.replace(".*.", f".{layer}."): with_every_layer_named(value, layers=layers)
        for name, value in config.items()
        for layer in range(layers if ".*." in name else 1)
    }


LONG = with_every_layer_named(catalog.model("nvidia/Qwen3.6-27B-NVFP4").config, layers=64)
"""The longest config among the models of the catalogue: some 70 kB as it is published."""


def test_a_long_config_is_cut_to_what_the_model_is_read_from() -> None:
    packed = packed_model(LONG)
    assert len(packed_json(LONG)) > 3 * HANDY
    assert len(packed) <= HANDY
    assert described(unpacked(packed)) == described(LONG)


def test_noise_in_a_config_does_not_reach_the_link() -> None:
    noise = {f"key_{i}": hashlib.sha256(str(i).encode()).hexdigest() for i in range(300)}
    config = catalog.model("meta-llama/Llama-3.3-70B-Instruct").config
    packed = packed_model({**config, **noise})
    assert len(packed) <= HANDY
    assert described(unpacked(packed)) == described(config)


def test_a_config_too_long_for_a_link_is_refused_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_model, "LONGEST_CONFIG", 100)
    with pytest.raises(ConfigError, match="a link carries 100"):
        packed_entry(catalog.model("meta-llama/Llama-3.3-70B-Instruct"))


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.3-70B-Instruct", "deepseek-ai/DeepSeek-V3.1"])
def test_an_ordinary_config_stays_whole(name: str) -> None:
    entry = catalog.model(name)
    found = unpacked(packed_entry(entry))
    assert {key: found[key] for key in entry.config} == entry.config


@pytest.mark.parametrize("name", catalog.model_files())
def test_every_model_travels_in_a_link(name: str) -> None:
    entry = catalog.model(name)
    again = described(unpacked(packed_entry(entry)))
    guessed = tuple(words for words in again.assumed if words not in entry.transformer.assumed)
    assert len(guessed) == bool(
        again.encoder
    )  # of a config of one's own, that its images are those of its family
    assert again.model_copy(update={"assumed": entry.transformer.assumed}) == entry.transformer
    assert len(packed_entry(entry)) <= HANDY * 1.1


def test_an_extraordinary_scenario_fits_in_a_link() -> None:
    """A model and a GPU of one's own, own prices, a log's overheads, fitted factors, and every other setting moved."""
    gpus = (packed_gpu(copied(gpu)) for gpu in catalog.gpus().values())
    scenario = Scenario(
        model="config", config=packed_model(LONG), gpu="own", own_gpu=max(gpus, key=len),
        weights="native", kv="fp8", engine="vllm-0.17",
        concurrency=1234, prompt=123_456, output=54_321, ttft=12_345, tpot=123.4, prefix=35.5,
        draft=3, acceptance=72.5, memory_scale=0.913, compute_scale=1.073, overhead_scale=1.213,
        budget=1024, utilization=92.5, slots=512, step_tokens=16_384,
        activations=3.21, non_torch=1.87, graphs=2.14,
        replicas=120, rate=137.5, peak=2.55, discount=35.5, gpu_hour=13.25,
        tensor=16, data=16, pipeline=16, expert=16, context=16, decode_context=16,
    )  # fmt: skip
    link = share_url(scenario, base="https://planner.infrastructure.example.com/plan")
    assert from_query(parsed(link)) == (scenario, [])
    assert len(link) < LONGEST_LINK
    assert len(packed_json(to_query(scenario, full=True))) < LONGEST_LINK
