"""Every model of the catalogue against published counts, cache shapes and checkpoint sizes."""

import csv
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from parplan import catalog
from parplan.export import model_json
from parplan.formats import Component
from parplan.hub import ModelEntry, transformer_from_config
from parplan.transformer import Transformer

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "catalogs" / "models"
DATA = Path(__file__).parent / "data" / "models"
FILES = sorted(FOLDER.glob("*/*.yaml"))
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
ENTRIES = {
    entry.name: entry
    for entry in (
        ModelEntry.model_validate(yaml.load(path.read_text("utf-8"), Loader=LOADER))
        for path in FILES
    )
}  # fmt: skip


def rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


COUNTS = {row["model"]: row for row in rows("param_counts.csv")}
CACHES = {row["model"]: row for row in rows("kv_facts.csv")}
EXACT = [name for name in COUNTS if name in ENTRIES]


def architecture(name: str) -> Transformer:
    return ENTRIES[name].transformer


# --- the files


def test_the_catalogue_holds_every_model_there_is_a_fact_for() -> None:
    assert set(COUNTS) | set(CACHES) <= set(ENTRIES)
    assert "deepseek-ai/DeepSeek-V3.1" in ENTRIES
    assert len(ENTRIES) >= 170


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_file_is_named_after_its_model_and_sorted(path: Path) -> None:
    document = yaml.safe_load(path.read_text("utf-8"))
    assert document["name"] == path.relative_to(FOLDER).with_suffix("").as_posix()
    assert list(document["config"]) == sorted(document["config"])


def test_the_catalogue_stays_small() -> None:
    assert sum(path.stat().st_size for path in FILES) < 1_000_000


# --- parameters

LANGUAGE_ONLY = {
    **dict.fromkeys(
        [
            "moonshotai/Kimi-K2.5",
            "nvidia/Kimi-K2.5-NVFP4",
            "nvidia/Kimi-K2.6-NVFP4",
            "nvidia/Kimi-K2.7-Code-NVFP4",
        ],
        "the count leaves out the vision tower the config has",
    ),
    "MiniMaxAI/MiniMax-M3": "the count leaves out the vision tower, which the source of the config had cut off",
}
AUDIO_CUT_OFF = dict.fromkeys(
    ["google/gemma-4-E2B-it", "google/gemma-4-E4B-it"],
    "counted from a file that had lost the audio tower; with it the Hub total comes out to the element",
)
WITH_MTP = {"XiaomiMiMo/MiMo-7B-Base": "the count is the Hub's, its MTP layer in it"}
NEARLY = {
    "moonshotai/Kimi-K3": "its classes are not published: tower and attention residuals are counted from fields",
}
RESTORED = {
    **dict.fromkeys(
        ["stepfun-ai/Step-3.7-Flash", "stepfun-ai/Step-3.7-Flash-FP8"],
        "counted from a file that had lost the 96 heads of sliding layers; with them the Hub total comes out exactly",
    )
}


@pytest.mark.parametrize("name", sorted(set(EXACT) - set(NEARLY) - set(RESTORED) - set(AUDIO_CUT_OFF)))
def test_total_parameters_are_exact(name: str) -> None:
    found = architecture(name)
    counted = found.language_parameters if name in LANGUAGE_ONLY else found.total_parameters
    assert counted + (found.mtp if name in WITH_MTP else 0) == int(COUNTS[name]["total"])


@pytest.mark.parametrize("name", sorted(NEARLY))
def test_total_parameters_are_nearly_exact(name: str) -> None:
    assert architecture(name).total_parameters == pytest.approx(int(COUNTS[name]["total"]), rel=0.001)


@pytest.mark.parametrize("name", sorted(set(EXACT) - set(RESTORED) - set(WITH_MTP)))
def test_active_parameters(name: str) -> None:
    assert architecture(name).active_parameters == pytest.approx(int(COUNTS[name]["active"]), rel=0.005)


@pytest.mark.parametrize("name", ENTRIES)
def test_components_sum_to_the_total(name: str) -> None:
    found = architecture(name)
    assert sum(found.components.values()) == found.total_parameters
    assert 0 < found.active_parameters <= found.language_parameters <= found.total_parameters
    assert sum(found.counts) == len(found.sequence)


@pytest.mark.parametrize("name", [name for name in EXACT if COUNTS[name]["mtp"]])
def test_mtp_layers_are_exact(name: str) -> None:
    assert architecture(name).mtp == int(COUNTS[name]["mtp"])


@pytest.mark.parametrize("name", AUDIO_CUT_OFF)
def test_the_audio_tower_is_what_the_count_lacks(name: str) -> None:
    """24 h^2 + 14 h + h / 8 a layer for h = 1024, the spectrum's convolutions, and two projections."""
    found = architecture(name)
    layers = 12 * (24 * 1024**2 + 14 * 1024 + 128)
    ends = 9 * (128 + 128 * 32) + 128 + 32 + 1024 * 1024 + 1024 * 1536 + 1536 + 1536 * found.hidden
    assert found.total_parameters - int(COUNTS[name]["total"]) == layers + ends


# --- checkpoints: what lies in the files beside the model and its MTP layers, to the element


def copies(name: str, count: int) -> int:
    """Copies of embedding or head in the file."""
    return count * architecture(name).hidden * architecture(name).vocabulary


BESIDE: dict[str, tuple[int, int, str]] = {
    "deepseek-ai/DeepSeek-R1": (59 * 256, 2, "router biases; MTP's own embedding and head"),
    "deepseek-ai/DeepSeek-V3.2": (59 * 256, 2, "router biases; MTP's own embedding and head"),
    "deepseek-ai/DeepSeek-V4-Flash": (41 * 256 + 3 * 129280 * 6, 0, "router biases; tables of three hash layers"),
    "deepseek-ai/DeepSeek-V4-Pro": (59 * 384 + 3 * 129280 * 6, 0, "router biases; tables of three hash layers"),
    "zai-org/GLM-4.5": (90 * 160, 2, "router biases; MTP's own embedding and head"),
    "zai-org/GLM-4.5-Air": (46 * 128, 2, "router biases; MTP's own embedding and head"),
    "zai-org/GLM-4.6": (90 * 160, 0, "router biases"),
    "zai-org/GLM-4.7-Flash": (47 * 64, 2, "router biases; MTP's own embedding and head"),
    "zai-org/GLM-5": (76 * 256, 0, "router biases"),
    "zai-org/GLM-5.2": (76 * 256, 0, "router biases"),
    "stepfun-ai/Step-3.7-Flash": (42 * 288, 3, "router biases; a head for each of three MTP layers"),
    "MiniMaxAI/MiniMax-M2": (62 * 256, 0, "router biases"),
    "MiniMaxAI/MiniMax-M3": (57 * 128, 0, "router biases"),
    "moonshotai/Kimi-K2.5": (60 * 384, 0, "router biases"),
    "moonshotai/Kimi-Linear-48B-A3B-Instruct": (26 * 256, 0, "router biases"),
    "google/gemma-4-26B-A4B": (2 * 1152 + 30, 0, "vision statistics and layer scales, buffers both"),
    "google/gemma-4-E2B-it": (
        18_874_368 + 6144 + 35, 0, "keys and values of 20 layers that read an earlier cache; layer scales",
    ),
    "google/gemma-4-E4B-it": (
        55_050_240 + 5376 + 42, 0, "keys and values of 18 layers that read an earlier cache; layer scales",
    ),
    "google/gemma-4-31B-it": (2 * 1152 + 60, 0, "vision statistics and layer scales, buffers both"),
    "Qwen/Qwen3-0.6B": (0, 1, "the tied head, stored again"),
    "tiiuae/falcon-40b": (0, 1, "the tied head, stored again"),
    **dict.fromkeys((
        "Qwen/Qwen3.5-9B", "Qwen/Qwen3.5-27B", "Qwen/Qwen3.5-397B-A17B", "XiaomiMiMo/MiMo-7B-Base",
        "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8", "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16",
        "openai/gpt-oss-120b", "meta-llama/Llama-4-Maverick-17B-128E-Instruct",
    ), (0, 0, "nothing else")),
}  # fmt: skip


@pytest.mark.parametrize("name", BESIDE)
def test_the_hub_total_is_explained_to_the_element(name: str) -> None:
    buffers, stored_again, _ = BESIDE[name]
    published = ENTRIES[name].published
    found = architecture(name)
    assert published is not None
    assert (
        found.total_parameters + found.mtp + buffers + copies(name, stored_again)
        == published.total_parameters
    )


# --- KV caches

KV = ("growing", "windowed", "window_cap", "index", "state", "convolution")
WINDOW_PLUS_ONE = {"XiaomiMiMo/MiMo-V2-Flash": 129 / 128}
"""Its config says 128; transformers keeps the current token besides."""


def cache_elements(found: Transformer) -> dict[str, float]:
    """Elements by kind, summed over layers, as the facts count them."""
    total = dict.fromkeys(KV, 0.0)
    for block, count in zip(found.blocks, found.counts, strict=True):
        if block.mixer is None:
            continue
        cache = block.mixer.cache
        grows = {"windowed": cache.growing, "window_cap": cache.growing * cache.window} if cache.window else {
            "growing": cache.growing}  # fmt: skip
        kinds = {"index": cache.index, "state": cache.state, "convolution": cache.convolution}
        for kind, elements in (grows | kinds).items():
            total[kind] += count * elements
        total["growing"] += count * cache.compressed
    return total


@pytest.mark.parametrize("name", CACHES)
def test_kv_elements_by_kind(name: str) -> None:
    found = cache_elements(architecture(name))
    found["window_cap"] *= WINDOW_PLUS_ONE.get(name, 1)
    assert found == {kind: float(CACHES[name][kind]) for kind in KV}


# --- formats

PACKED = {"nvfp4": 1 / 2, "mxfp4": 1 / 2}
SCALES = {"nvfp4": 1 / 16, "mxfp4": 1 / 32}
# model: (scales counted, MTP layers in the file, copies of embedding and head, tolerance)
PACKED_FILES: dict[str, tuple[bool, bool, int, float]] = {
    "nvidia/GLM-5-NVFP4": (True, True, 0, 1e-6),
    "nvidia/GLM-5.1-NVFP4": (False, False, 0, 1e-6),
    "nvidia/GLM-5.3-NVFP4": (False, True, 0, 1e-6),
    "nvidia/Gemma-4-26B-A4B-NVFP4": (False, False, 0, 1e-6),
    "nvidia/Gemma-4-31B-IT-NVFP4": (False, False, 0, 1e-6),
    "nvidia/MiniMax-M2.5-NVFP4": (False, False, 0, 1e-6),
    "nvidia/MiniMax-M2.7-NVFP4": (False, False, 0, 1e-6),
    "nvidia/Qwen3-235B-A22B-NVFP4": (True, False, 0, 1e-6),
    "nvidia/Qwen3.5-122B-A10B-NVFP4": (False, False, 0, 1e-6),
    "nvidia/Qwen3.6-27B-NVFP4": (False, False, 0, 1e-6),
    "nvidia/Qwen3.6-35B-A3B-NVFP4": (False, False, 0, 1e-5),  # gates of shared experts are not packed
    # of attention, only the output projection is packed
    "nvidia/DeepSeek-V3.1-NVFP4": (True, True, 2, 0.01),
    "nvidia/DeepSeek-V3.2-NVFP4": (True, True, 2, 0.01),
    # the MTP layer's experts stay as DeepSeek packed them, the rest of it is in fp8
    "nvidia/DeepSeek-V4-Flash-NVFP4": (True, True, 0, 0.001),
    "nvidia/DeepSeek-V4-Pro-NVFP4": (True, True, 0, 0.001),
}


@pytest.mark.parametrize("name", PACKED_FILES)
def test_packed_checkpoints_have_the_published_size(name: str) -> None:
    """Elements as they lie in the files: two 4-bit weights in one, scales apart; everything else one for one."""
    scales, with_mtp, again, tolerance = PACKED_FILES[name]
    found = architecture(name)
    parts: dict[Component, int] = {**found.components, **({"mtp": found.mtp} if with_mtp else {})}
    elements = 0.0
    for component, parameters in parts.items():
        stored = found.native.get(component, "bf16")
        elements += parameters * (PACKED.get(stored, 1) + (SCALES.get(stored, 0) if scales else 0))
    published = ENTRIES[name].published
    assert published is not None
    assert elements + copies(name, again) == pytest.approx(published.total_parameters, rel=tolerance)


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("Qwen/Qwen3-32B-FP8", 0),
        ("Qwen/Qwen3-30B-A3B-FP8", 0),
        ("Qwen/Qwen3-235B-A22B-FP8", 0),
        ("zai-org/GLM-5-FP8", 76 * 256),
        ("deepseek-ai/DeepSeek-V3", 59 * 256 + 2 * 129280 * 7168),
    ],
)
def test_fp8_checkpoints_hold_one_scale_per_block(name: str, others: int) -> None:
    """What the file has beyond the parameters is one scale per 128 x 128 weights of the quantised components."""
    found = architecture(name)
    parts: dict[Component, int] = {**found.components, "mtp": found.mtp}
    quantised = sum(count for part, count in parts.items() if found.native.get(part) == "fp8-block")
    scales = int(COUNTS[name]["hub_total"]) - found.total_parameters - found.mtp - others
    assert quantised / 128**2 == pytest.approx(scales, rel=0.01)


def test_gpt_oss_is_the_size_of_its_files() -> None:
    """120b: about 65 GB in MXFP4, 4.25 bits a weight; only the experts are packed."""
    found = architecture("openai/gpt-oss-120b")
    assert set(found.native) == {"routed_experts"}
    experts = found.components["routed_experts"]
    assert experts * 4.25 / 8 + (found.total_parameters - experts) * 2 == pytest.approx(65.2e9, rel=0.01)


def test_every_native_format_is_in_the_catalogue() -> None:
    known = yaml.safe_load((ROOT / "catalogs" / "formats.yaml").read_text("utf-8"))
    for name in ENTRIES:
        found = architecture(name)
        assert set(found.native.values()) | {found.native_kv or "bf16"} <= set(known), name


@pytest.mark.parametrize(
    ("name", "native", "kv"),
    [
        ("deepseek-ai/DeepSeek-V3.1", {"attention": "fp8-block", "routed_experts": "fp8-block"}, None),
        ("nvidia/DeepSeek-V3.1-NVFP4", {"attention_output": "nvfp4", "routed_experts": "nvfp4"}, "fp8"),
        ("nvidia/Llama-3.1-70B-Instruct-FP8", {"attention": "fp8", "dense_ffn": "fp8"}, "fp8"),
        ("moonshotai/Kimi-K2.5", {"routed_experts": "int4-g32"}, None),
        ("moonshotai/Kimi-K3", {"routed_experts": "mxfp4"}, None),
        (
            "deepseek-ai/DeepSeek-V4-Pro",
            {"attention": "fp8-block", "routed_experts": "mxfp4"},
            "fp8",
        ),  # not stated: vLLM PR 55134
        ("nvidia/DeepSeek-V4-Pro-NVFP4", {"attention": "fp8-block", "routed_experts": "nvfp4"}, "fp8"),
        ("nvidia/Qwen3.6-27B-NVFP4", {"recurrent": "fp8", "dense_ffn": "nvfp4", "head": "nvfp4"}, "fp8"),
        ("meta-llama/Llama-3.3-70B-Instruct", {}, None),
    ],
)
def test_native_formats(name: str, native: dict[str, str], kv: str | None) -> None:
    found = architecture(name)
    assert native.items() <= found.native.items()
    assert found.native_kv == kv
    assert not {"embedding", "router", "norms", "vision"} & set(found.native)


def test_catalogue_entries_rarely_guess() -> None:
    """What an entry leaves to assumption is the context length of reconstructed configs, or a known oddity."""
    known = ("context length not stated", "multi-token", "hf_quant", "no list of what", "are stored unquantised",
             "vision tower of Kimi-K3")  # fmt: skip
    guesses = [note for name in ENTRIES for note in architecture(name).assumed]
    assert [note for note in guesses if not any(part in note for part in known)] == []


# --- classes: the default config of every class of transformers that can generate, counted there

CLASSES = [json.loads(line) for line in (DATA / "class_counts.jsonl").read_text("utf-8").splitlines()]
"""Default configs of transformers 5.24.0, some with a flag turned, and the parameters of the model each one builds;
made 2026-11-29 by building every class without weights."""


@pytest.mark.parametrize("case", CLASSES, ids=lambda case: case["name"])
def test_a_class_is_counted_exactly(case: dict[str, Any]) -> None:
    found = transformer_from_config(case["config"], name=case["name"])
    assert found.total_parameters == case["total"]
    assert sum(found.components.values()) == found.total_parameters


def test_the_classes_are_many() -> None:
    assert len({case["config"]["model_type"] for case in CLASSES}) >= 120


# --- entries whose sizes were put together: the Hub's count of their elements proves them

RECONSTRUCTED = [
    name
    for name, entry in ENTRIES.items()
    if "sizes as listed by llmfit" in entry.source.text
    and "the count equals the Hub total" in entry.source.text
]


@pytest.mark.parametrize("name", RECONSTRUCTED)
def test_reconstructed_entries_have_the_hub_total(name: str) -> None:
    entry = ENTRIES[name]
    assert entry.published is not None
    biases = re.search(r"but for (\d+) x (\d+) router biases", entry.source.text)
    masks = re.search(r"causal masks and rotary frequencies of (\d+) layers", entry.source.text)
    beside = int(biases[1]) * int(biases[2]) if biases else 0
    beside += int(masks[1]) * (2048 * 2048 + 16) if masks else 0
    found = entry.transformer
    assert entry.published.total_parameters - beside in (
        found.total_parameters,
        found.total_parameters + found.mtp,
    )


@pytest.mark.parametrize(
    "name", [name for name in ENTRIES if "one scale per block" in ENTRIES[name].source.text]
)
def test_reconstructed_fp8_entries_hold_one_scale_per_block(name: str) -> None:
    found, published = architecture(name), ENTRIES[name].published
    assert published is not None
    blocks = sum(n for part, n in found.components.items() if found.native.get(part) == "fp8-block") / 128**2
    assert published.total_parameters - found.total_parameters == pytest.approx(blocks, rel=1e-3)


def test_llama_405b_fp8_holds_one_scale_per_row_of_its_feed_forward_parts() -> None:
    name = "meta-llama/Llama-3.1-405B-Instruct-FP8"
    published = ENTRIES[name].published
    assert published is not None
    assert published.total_parameters - architecture(name).total_parameters == 124 * (2 * 53248 + 16384)
    assert architecture(name).native == {"dense_ffn": "fp8"}


# --- names

MANY = ["meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-70B-Instruct", "meta-llama/Llama-3.2-1B",
        "meta-llama/Llama-3.1-405B-Instruct-FP8", "Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-Coder-32B-Instruct", "Qwen/Qwen3-4B",
        "Qwen/Qwen3-30B-A3B-Instruct-2507", "Qwen/Qwen3-Coder-30B-A3B-Instruct", "google/gemma-3-1b-it",
        "mistralai/Mistral-Small-3.1-24B-Instruct-2503", "mistralai/Mixtral-8x7B-Instruct-v0.1",
        "deepseek-ai/DeepSeek-R1-0528", "deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "zai-org/GLM-4.5-Air",
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "moonshotai/Kimi-K2-Instruct-0905", "CohereLabs/c4ai-command-r-v01",
        "ibm-granite/granite-4.0-h-small", "inclusionAI/Ling-1T", "swiss-ai/Apertus-70B-2509"]  # fmt: skip


@pytest.mark.parametrize("name", MANY)
def test_names_people_use_are_known(name: str) -> None:
    found = catalog.model(name)
    assert name in (found.name, *found.aliases)


def test_an_alias_is_no_entry_and_stands_for_one() -> None:
    aliases = [alias for entry in ENTRIES.values() for alias in entry.aliases]
    assert len(aliases) == len(set(aliases)) == len(catalog.model_aliases()) >= 100
    assert not set(aliases) & set(ENTRIES)


def test_letters_case_does_not_matter() -> None:
    assert catalog.model("QWEN/qwen3-coder-30b-a3b-instruct").name == "Qwen/Qwen3-30B-A3B-Instruct-2507"


@pytest.mark.parametrize("asked", ["meta-llama/Llama-3.1-8B-Instruct", "META-LLAMA/llama-3.1-8b-instruct"])
def test_an_alias_keeps_its_own_name_and_is_the_same_in_all_else(asked: str) -> None:
    chosen, file = catalog.transformer(asked), catalog.transformer("meta-llama/Meta-Llama-3.1-8B")
    assert chosen.name == "meta-llama/Llama-3.1-8B-Instruct"
    assert chosen.model_copy(update={"name": file.name}) == file == catalog.model(asked).transformer


def test_unknown_names_suggest_aliases_too() -> None:
    with pytest.raises(catalog.UnknownNameError, match=r"meta-llama/Llama-3\.1-8B-Instruct"):
        catalog.model("meta-llama/Llama-3.1-8B-Instrct")


# --- what to search by


def test_summaries() -> None:
    found = {summary.name: summary for summary in catalog.model_summaries()}
    deepseek = found["deepseek-ai/DeepSeek-V3.2"]
    assert (deepseek.kind, deepseek.attention, deepseek.native) == (
        "mixture of experts",
        ("sparse latent",),
        "fp8-block",
    )
    assert found["google/gemma-3-27b-it"].attention == ("sliding", "grouped-query")
    assert found["tiiuae/falcon-7b"].attention == ("multi-query",)
    assert found["Qwen/Qwen3-Next-80B-A3B-Instruct"].attention == ("gated-delta-net", "grouped-query")
    assert found["openai/gpt-oss-120b"].native == "mxfp4"
    assert [s.name for s in found.values() if s.matches("GPT-OSS experts")] == [
        "openai/gpt-oss-120b",
        "openai/gpt-oss-20b",
    ]
    assert all(0 < summary.active <= summary.total for summary in found.values())


def test_understanding_the_whole_catalogue_takes_no_longer_than_parsing_it_four_times() -> None:
    def seconds(act: Callable[[], object]) -> float:
        start = time.process_time()
        act()
        return time.process_time() - start

    texts = [path.read_text("utf-8") for path in FILES]
    parsed = [yaml.load(text, Loader=LOADER) for text in texts]
    parsing = min(seconds(lambda: [yaml.load(text, Loader=LOADER) for text in texts]) for _ in range(3))
    understanding = min(
        seconds(lambda: [ModelEntry.model_validate(one).summary for one in parsed]) for _ in range(3)
    )
    assert understanding < 4 * parsing


# --- formats a shortened config had lost


@pytest.mark.parametrize("name", ["MiniMaxAI/MiniMax-M2", "MiniMaxAI/MiniMax-M2.5", "zai-org/GLM-5.3"])
def test_checkpoints_that_are_published_in_fp8_blocks(name: str) -> None:
    native = architecture(name).native
    assert native["routed_experts"] == native["attention"] == "fp8-block"


@pytest.mark.parametrize("name", ["MiniMaxAI/MiniMax-M3", "zai-org/GLM-5.3-BF16"])
def test_checkpoints_that_are_published_in_bf16(name: str) -> None:
    assert architecture(name).native == {}


@pytest.mark.parametrize(
    ("name", "context"),
    [("google/gemma-3-27b-it", 131072), ("allenai/Olmo-3-1125-32B", 65536), ("HuggingFaceTB/SmolLM3-3B", 65536),
     ("bigcode/starcoder2-15b", 16384), ("Qwen/Qwen2.5-32B-Instruct", 32768)],
)  # fmt: skip
def test_context_lengths(name: str, context: int) -> None:
    """As the models' pages on the Hub state them."""
    assert architecture(name).context_length == context


# --- released models that are not in the catalogue, or were not when the importer was written

RELEASED = [json.loads(line) for line in (DATA / "hub_counts.jsonl").read_text("utf-8").splitlines()]
"""Configs with the elements in the model's safetensors files (Hub metadata as listed by llmfit 1.1.17, read
2026-11-29); `buffers` are those of them that are not parameters."""


@pytest.mark.parametrize("case", RELEASED, ids=lambda case: case["name"])
def test_released_models_have_the_hub_total(case: dict[str, Any]) -> None:
    found = transformer_from_config(case["config"], name=case["name"])
    assert found.total_parameters == case["total"] - case["buffers"]


@pytest.mark.parametrize(
    ("name", "short", "long", "index"),
    [
        ("deepseek-ai/DeepSeek-V3.2", 70_272, 70_272, 61 * 128 * 132 / 128),
        ("deepseek-ai/DeepSeek-V4-Pro", 70_392, 7_928, 30 * 32 * 132 / 128),
        ("google/gemma-3-27b-it", 62 * 2 * 16 * 128 * 2, 10 * 2 * 16 * 128 * 2, 0),
    ],
)
def test_cache_per_token_as_printed(name: str, short: float, long: float, index: float) -> None:
    """KV in bf16 before and after windows are full, the sparse index apart (transformers 5.24 cache shapes)."""
    printed = model_json(catalog.model(name).transformer)
    assert printed["kv_bytes_per_token"] == short
    assert printed["kv_bytes_per_token_long"] == long
    assert printed["index_bytes_per_token"] == pytest.approx(index)
