"""A model in the catalogue: the facts of its config, where they were read, and what the Hub says of its size."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from pydantic import Field

from parplan.hub.config import transformer_from_config
from parplan.mixers import Compressed, GroupedQuery, Latent, Mixer, Recurrent
from parplan.provenance import Source, Value
from parplan.transformer import Transformer

HUB_ID = r"^[\w.-]+/[\w.-]+$"


class Published(Value):
    """A size published elsewhere, to check against."""

    total_parameters: int = Field(ge=1)
    """Elements in the checkpoint's files, whatever they are: packed weights, scales and copies count as they lie."""
    source: Source


@dataclass(frozen=True)
class Summary:
    """What to search models by."""

    name: str
    aliases: tuple[str, ...]
    family: str
    """Architecture name as the config states it."""
    kind: str
    """Dense or mixture of experts."""
    attention: tuple[str, ...]
    """Kinds of mixer, the most frequent first."""
    total: int
    """All parameters an engine loads to serve."""
    active: int
    """Parameters one token uses."""
    context: int
    """Longest sequence the model was made for, tokens."""
    native: str
    """Format most of the weights are published in."""

    def matches(self, words: str) -> bool:
        """Every word is found somewhere in what is shown as text, whatever the case.

        >>> llama = Summary("meta-llama/Llama-3.1-8B", (), "LlamaForCausalLM", "dense", ("grouped-query",),
        ...                 total=8_030_261_248, active=8_030_261_248, context=131_072, native="bf16")
        >>> llama.matches("LLAMA dense"), llama.matches("llama latent")
        (True, False)
        """
        text = " ".join(
            (self.name, *self.aliases, self.family, self.kind, *self.attention, self.native)
        ).casefold()
        return all(word in text for word in words.casefold().split())


class ModelEntry(Value):
    """One file of `catalogs/models/<org>/<name>.yaml`."""

    name: str = Field(pattern=HUB_ID)
    """Hub id."""
    aliases: tuple[Annotated[str, Field(pattern=HUB_ID)], ...] = ()
    """Hub ids with the same architecture and the same published format: tuned, dated or renamed variants."""
    source: Source
    """Where the config was read; says so where it was reconstructed or shortened."""
    config: dict[str, object]
    """The fields of `config.json` that decide the architecture."""
    quantization: dict[str, object] | None = None
    """`hf_quant_config.json`, where the checkpoint keeps its formats in that file."""
    published: Published | None = None

    @cached_property
    def transformer(self) -> Transformer:
        """The architecture.

        Raises:
            ConfigError: the config is not one of a language model.
        """
        return transformer_from_config(self.config, name=self.name, quantization=self.quantization)

    @cached_property
    def summary(self) -> Summary:
        """What to search the model by.

        Raises:
            ConfigError: the config is not one of a language model.
        """
        found = self.transformer
        return Summary(
            name=self.name,
            aliases=self.aliases,
            family=found.family,
            kind="mixture of experts" if found.is_moe else "dense",
            attention=_mixer_kinds(found),
            total=found.total_parameters,
            active=found.active_parameters,
            context=found.context_length,
            native=_main_format(found),
        )


def _mixer_kinds(transformer: Transformer) -> tuple[str, ...]:
    layers: dict[str, int] = {}
    for count, block in transformer.kinds:
        if block.mixer is not None:
            kind = mixer_kind(block.mixer)
            layers[kind] = layers.get(kind, 0) + count
    return tuple(sorted(layers, key=lambda kind: -layers[kind]))


def mixer_kind(mixer: Mixer) -> str:
    """A mixer's kind as the field calls it."""
    match mixer:
        case Recurrent():
            return mixer.variant
        case Latent():
            return "sparse latent" if mixer.sparse_top_k else "latent"
        case Compressed():
            return "compressed"
        case GroupedQuery(window=int()):
            return "chunked" if mixer.chunked else "sliding"
        case GroupedQuery() if mixer.sparse_top_k:
            return "sparse grouped-query"
        case GroupedQuery():
            alike = mixer.heads == mixer.kv_heads
            return "multi-head" if alike else "multi-query" if mixer.kv_heads == 1 else "grouped-query"


def _main_format(transformer: Transformer) -> str:
    sizes: dict[str, int] = {}
    for component, parameters in transformer.components.items():
        stored = transformer.native.get(component, "bf16")
        sizes[stored] = sizes.get(stored, 0) + parameters
    return max(sizes, key=lambda stored: sizes[stored])
