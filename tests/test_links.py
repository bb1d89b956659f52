"""Links: every field survives, nothing breaks reading one, and what was wrong is said."""

import json
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parplan import Scenario, catalog, links, plan
from parplan.formats import Component
from parplan.hub import ConfigError
from parplan.links import from_query, known_names, parsed, share_url, to_query
from parplan.own_model import LARGEST_CONFIG, packed, unpacked
from parplan.scenario import SCHEMA, problem_of

NAMES = known_names()
scenarios = st.builds(
    Scenario,
    model=st.sampled_from([name for name in NAMES["model"] if name != "config"]),
    weights=st.sampled_from(NAMES["weights"]),
    kv=st.sampled_from(NAMES["kv"]),
    gpu=st.sampled_from([name for name in NAMES["gpu"] if name != "own"]),
    engine=st.sampled_from(NAMES["engine"]),
    size=st.floats(0.5, 2000),
    concurrency=st.integers(1, 4096),
    prompt=st.integers(1, 2_000_000),
    output=st.integers(1, 200_000),
    ttft=st.floats(0, 3_600_000),
    tpot=st.floats(0, 3_600_000),
    prefix=st.floats(0, 95),
    budget=st.integers(0, 64),
    tensor=st.integers(0, 64),
    images=st.booleans(),
)
CONFIG = (
    '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,'
    ' "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,'
    ' "max_position_embeddings": 2048, "tie_word_embeddings": false}'
)


@given(scenarios)
def test_a_shared_link_means_the_same_scenario(scenario: Scenario) -> None:
    link = share_url(scenario, base="https://example.org/plan")
    assert from_query(parsed(link)) == (scenario, [])
    assert set(parse_qs(urlsplit(link).query, keep_blank_values=True)) == {
        "v",
        "facts",
        *Scenario.model_fields,
    }


@given(scenarios)
def test_the_live_link_has_only_what_differs(scenario: Scenario) -> None:
    query = to_query(scenario, full=False)
    assert from_query({key: [value] for key, value in query.items()}) == (scenario, [])
    assert to_query(Scenario(), full=False) == {}


@given(
    st.dictionaries(
        st.one_of(st.sampled_from(sorted(Scenario.model_fields)), st.text(max_size=10)),
        st.lists(st.text(max_size=50), max_size=3),
        max_size=8,
    )
)
def test_any_query_gives_a_scenario_that_plans(query: dict[str, list[str]]) -> None:
    scenario, messages = from_query(query)
    assert isinstance(scenario, Scenario)
    used = {key for key, values in query.items() if values}
    if scenario == Scenario() and used - {"v"}:
        assert messages or all(str(getattr(scenario, k, "")) == query[k][-1] for k in used)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("concurrency", "0", "greater than or equal to 1"),
        ("concurrency", "many", "valid integer"),
        ("concurrency", "1e9", "valid integer"),
        ("ttft", "nan", "finite number"),
        ("tpot", "-5", "greater than or equal to 0"),
        ("gpu", "h100", "h100-sxm"),
        ("model", "meta-llama/Llama-3.3-70B-Instruc", "meta-llama/Llama-3.3-70B-Instruct"),
        ("weights", "fp7", "auto is used instead"),
        ("kv", "int4-g128", "auto is used instead"),
        ("nonsense", "1", "not a setting"),
        ("v", "99", "version"),
        ("tensor", "-1", "greater than or equal to 0"),
    ],
)
def test_what_was_wrong_is_said_and_what_was_used_instead(key: str, value: str, said: str) -> None:
    scenario, messages = from_query({key: [value], "prompt": ["333"]})
    assert scenario == Scenario(prompt=333)
    assert len(messages) == 1
    assert key in messages[0]
    assert said in messages[0]


def test_a_link_of_an_earlier_version_is_brought_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """A field by its former name, and one that was not there yet and whose default has changed since."""
    monkeypatch.setattr(links, "SCHEMA", 3)
    steps = {
        1: lambda given: {"prompt" if key == "input" else key: value for key, value in given.items()},
        2: lambda given: {"output": "512"} | given,
    }
    monkeypatch.setattr(links, "MIGRATIONS", steps)
    assert from_query({"v": ["1"], "input": ["99"]}) == (Scenario(prompt=99, output=512), [])
    assert from_query({"v": ["2"], "prompt": ["99"], "output": ["7"]}) == (Scenario(prompt=99, output=7), [])
    assert from_query({"v": ["3"], "prompt": ["99"]}) == (Scenario(prompt=99), [])


def test_every_earlier_version_has_its_step() -> None:
    assert [*links.MIGRATIONS] == [*range(1, SCHEMA)]


def test_the_rest_of_a_bad_link_is_used() -> None:
    scenario, messages = from_query({"gpu": ["h200-sxm"], "prompt": ["-1"], "output": ["77"]})
    assert (scenario.gpu, scenario.output) == ("h200-sxm", 77)
    assert len(messages) == 1


def test_a_long_bad_value_is_cut_and_shown_as_text() -> None:
    _, messages = from_query({"gpu": ["<script>" + "x" * 10_000]})
    assert len(messages[0]) < 300


@pytest.mark.parametrize(
    ("model", "gpu", "engine", "stored"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", "h100-sxm", "vllm", "fp8"),
        ("meta-llama/Llama-3.3-70B-Instruct", "v100-sxm-32", "vllm", "bf16"),  # FP8 loads from Turing on
        (
            "meta-llama/Llama-3.3-70B-Instruct",
            "a100-sxm-80",
            "trtllm",
            "bf16",
        ),  # not on Ampere in TensorRT-LLM
        ("openai/gpt-oss-120b", "h100-sxm", "vllm", "mxfp4"),
        ("deepseek-ai/DeepSeek-V3.1", "h200-sxm", "vllm", "fp8-block"),
    ],
)
def test_weights_are_as_published_or_in_eight_bits_where_that_loads(
    model: str, gpu: str, engine: str, stored: str
) -> None:
    problem = plan(Scenario(model=model, gpu=gpu, engine=engine)).result.problem
    main: Component = "routed_experts" if problem.transformer.is_moe else "dense_ffn"
    assert problem.precision.weights[main].name == stored


def test_a_config_travels_in_the_link() -> None:
    scenario = Scenario(model="config", config=packed(CONFIG), weights="bf16", prompt=100, output=100)
    link = share_url(scenario, base="https://example.org/")
    again, messages = from_query(parsed(link))
    assert (again, messages) == (scenario, [])
    assert len(link) < 2000
    assert plan(again).result.problem.transformer.hidden == 64


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ({"_name_or_path": "/data/models/Tiny-1B/"}, "Tiny-1B"),
        ({"_name_or_path": "org/Tiny-1B"}, "Tiny-1B"),
        ({"_name_or_path": 7}, "LlamaForCausalLM"),
        ({"_name_or_path": "./"}, "LlamaForCausalLM"),
        ({"_name_or_path": "x" * 500}, "x" * 100),
        ({"architectures": None}, "config.json"),
    ],
)
def test_a_config_is_called_by_what_it_says_and_keeps_its_name_in_the_link(
    said: dict[str, object], name: str
) -> None:
    config = {**json.loads(CONFIG), "architectures": ["LlamaForCausalLM"], **said}
    problem = problem_of(Scenario(model="config", config=packed(json.dumps(config))))
    assert problem.transformer.name == name


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"a": 1}', "[" * 100_000, "1e999"])
def test_a_text_that_is_no_config_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ConfigError, match=r"\w"):
        packed(text)


@given(st.text(max_size=200))
def test_a_damaged_config_in_a_link_is_reported(text: str) -> None:
    scenario, messages = from_query({"model": ["config"], "config": [text]})
    assert scenario.model == Scenario().model
    assert len(messages) == 1


def test_a_bomb_is_not_unpacked() -> None:
    import base64
    import zlib

    bomb = base64.urlsafe_b64encode(zlib.compress(b'{"a":"' + b"x" * (64 << 20) + b'"}', 9)).decode()
    with pytest.raises(ConfigError):
        unpacked(bomb)
    assert LARGEST_CONFIG < 1 << 20


def test_every_default_name_is_in_the_catalogue() -> None:
    assert all(getattr(Scenario(), key) in known for key, known in NAMES.items())
    assert len(catalog.model_files()) >= 40


def test_a_setting_given_twice_is_said_and_the_last_one_counts() -> None:
    scenario, messages = from_query(parsed("gpu=l4&gpu=h200-sxm&prompt=512&prompt=512&v=2&v=1"))
    assert (scenario.gpu, scenario.prompt) == ("h200-sxm", 512)
    assert messages == [
        "gpu is given 2 times; the last of them, 'h200-sxm', counts.",
        "v is given 2 times; the last of them, '1', counts.",
    ]
