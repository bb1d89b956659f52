"""Which number formats an engine runs on which GPU: what it loads as weights, and what it keeps the KV cache in."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from math import inf, log2
from typing import Literal, TypeAlias

from pydantic import Field

from parplan.formats import LINEAR, Component, Format, Precision
from parplan.hardware import Gpu
from parplan.mixers import Compressed, Latent
from parplan.provenance import Source, Value
from parplan.transformer import Transformer

ROUTED: frozenset[Component] = frozenset({"routed_experts"})
Kind: TypeAlias = Literal["gpu", "weights", "kv"]
"""What an engine refuses: a GPU with whatever model, a format of the weights, or one of the KV cache."""
AttentionKind: TypeAlias = Literal["latent", "sparse", "compressed"]
"""Attention whose cache has kernels of its own: one latent per token, the same with an index, a compressed one."""
ATTENTION_WORDS: dict[AttentionKind, str] = {
    "latent": "latent attention",
    "sparse": "sparse latent attention",
    "compressed": "compressed attention",
}
AMD_KNOWN = frozenset({"CDNA3", "CDNA4"})
"""AMD architectures limits speak of; of others they know nothing."""


class Capabilities(Value):
    """NVIDIA GPUs by compute capability."""

    least: float = Field(default=0.0, ge=0)
    below: float = inf
    """The first that is too new."""

    def __contains__(self, capability: float) -> bool:
        """Whether one is among them; an unknown one (not a number) is taken to be."""
        return not (capability < self.least or capability >= self.below)

    @property
    def words(self) -> str:
        """For a sentence.

        >>> [Capabilities(least=7.5).words, Capabilities(least=7.5, below=10).words, Capabilities().words]
        ['NVIDIA GPUs of compute capability 7.5 and up', 'NVIDIA GPUs of compute capability 7.5 to below 10.0', 'NVIDIA GPUs']
        """  # noqa: E501
        if self.below < inf:
            return f"NVIDIA GPUs of compute capability {self.least} to below {self.below}"
        return f"NVIDIA GPUs{f' of compute capability {self.least} and up' if self.least else ''}"


class Limit(Value):
    """Where an engine runs a format; what no limit speaks of runs wherever the engine does."""

    of: Kind
    formats: tuple[str, ...] = ()
    """Names of the formats; none for a limit of the GPU."""
    nvidia: Capabilities | None = None
    """NVIDIA GPUs it runs on. None: none."""
    amd: tuple[str, ...] = ()
    """AMD architectures it runs on."""
    experts: bool = False
    """It holds for routed experts only."""
    attention: tuple[AttentionKind, ...] = ()
    """It holds for models with such attention only. Empty: all."""
    beside: tuple[str, ...] = ()
    """Weight formats it runs beside. Empty: any."""
    note: str = ""
    """A sentence more on why, or on what would help."""
    sources: tuple[Source, ...] = Field(min_length=1)

    def runs_on(self, gpu: Gpu) -> bool:
        """Whether the GPU is one of those; where a limit cannot know, it says yes."""
        if gpu.vendor == "NVIDIA":
            return self.nvidia is not None and gpu.capability in self.nvidia
        known = gpu.vendor == "AMD" and gpu.architecture in AMD_KNOWN
        return gpu.architecture in self.amd if known else bool(self.amd)

    @property
    def places(self) -> str:
        """The GPUs it runs on, in words; empty where it runs nowhere."""
        found = [self.nvidia.words] if self.nvidia else []
        return " and ".join([*found, *([f"AMD {'/'.join(self.amd)}"] if self.amd else [])])


@dataclass(frozen=True)
class Refusal:
    """One thing an engine refuses of a plan, whatever its layout."""

    limit: Limit
    stored: Format | None
    """The format. None: the GPU itself is refused."""

    @property
    def of(self) -> Kind:
        """What is refused."""
        return self.limit.of

    def words(self, engine: str, *, gpu: Gpu) -> str:
        """Why, in a sentence or two.

        Args:
            engine: the name people read.
            gpu: the one that was asked for.
        """
        limit, label = self.limit, self.stored.label if self.stored else ""
        whose = " or ".join(ATTENTION_WORDS[kind] for kind in limit.attention)
        what = f"{label}{f' for {whose}' if whose else ''}"
        does = {
            "gpu": "runs",
            "weights": f"loads {'routed experts' if limit.experts else 'weights'} in {what}",
            "kv": f"keeps a KV cache in {what}",
        }[limit.of]
        if not limit.places:
            lacks = f"has no KV cache in {what}" if limit.of == "kv" else f"does not load weights in {what}"
            said = f"{engine} {lacks}."
        elif limit.runs_on(gpu):
            said = f"{engine} {does} only beside weights in {' or '.join(limit.beside).upper()}."
        else:
            said = f"{engine} {does} on {limit.places} only; {_is(gpu)}."
        return f"{said} {limit.note}".rstrip()

    @property
    def cited(self) -> str:
        """Where it was read, and when."""
        return "; ".join(f"{source.text}, read {source.read.isoformat()}" for source in self.limit.sources)


def _is(gpu: Gpu) -> str:
    """What a GPU is, as far as limits go."""
    if gpu.vendor == "NVIDIA":
        return f"{gpu.label} has {gpu.capability}"
    return f"{gpu.label} is {gpu.vendor} {gpu.architecture}"


class Support(Value):
    """The formats an engine, at one version, runs."""

    known: tuple[Format, ...] = ()
    """All formats there are, the commonest of each size first."""
    limits: tuple[Limit, ...] = ()

    def refusals(self, transformer: Transformer, *, precision: Precision, gpu: Gpu) -> tuple[Refusal, ...]:
        """What the engine refuses of a model in these formats on a GPU; the same whatever the layout."""
        there = LINEAR & transformer.components.keys()
        stored = {component: precision.weights[component] for component in sorted(there)}
        kinds = _attention(transformer)
        return tuple(
            Refusal(limit, found)
            for limit in self.limits
            for found in _spoken_of(limit, weights=stored, kv=precision.kv, attention=kinds)
            if not (limit.runs_on(gpu) and _has_company(limit, stored.values()))
        )

    def nearest(
        self, refusal: Refusal, transformer: Transformer, *, precision: Precision, gpu: Gpu
    ) -> Format | None:
        """The format nearest in size that does run in the place of a refused one; of two as near the commoner. None:
        there is none, or the GPU itself is refused."""
        stored, of = refusal.stored, refusal.of
        if stored is None or of == "gpu":
            return None

        def runs(candidate: Format) -> bool:
            there = precision.model_copy(
                update={"kv": candidate}
                if of == "kv"
                else {"weights": {c: candidate if f == stored else f for c, f in precision.weights.items()}}
            )
            found = self.refusals(transformer, precision=there, gpu=gpu)
            return not any(other.of == of and other.stored == candidate for other in found)

        candidates = [one for one in self.known if of in one.kind and one != stored and runs(one)]
        return min(candidates, key=lambda one: abs(log2(round(one.bits) / round(stored.bits))), default=None)


def _spoken_of(
    limit: Limit, *, weights: Mapping[Component, Format], kv: Format, attention: Set[AttentionKind]
) -> tuple[Format | None, ...]:
    """The formats of a model a limit speaks of; a limit of the GPU speaks of every model.

    Args:
        weights: of every component of matrix products there is.
        kv: of the KV cache.
        attention: kinds the model has.
    """
    match limit.of:
        case "gpu":
            return (None,)
        case "kv":
            spoken = not limit.attention or not attention.isdisjoint(limit.attention)
            return (kv,) if spoken and kv.name in limit.formats else ()
        case "weights":
            parts = ROUTED if limit.experts else LINEAR
            found = (stored for component, stored in weights.items() if component in parts)
            return tuple({one.name: one for one in found if one.name in limit.formats}.values())


def _attention(transformer: Transformer) -> frozenset[AttentionKind]:
    """The kinds of attention a model has, of those with kernels of their own."""
    latent = [mixer for mixer in transformer.mixers if isinstance(mixer, Latent)]
    kinds: dict[AttentionKind, bool] = {
        "latent": any(not mixer.sparse_top_k for mixer in latent),
        "sparse": any(mixer.sparse_top_k for mixer in latent),
        "compressed": any(isinstance(mixer, Compressed) for mixer in transformer.mixers),
    }
    return frozenset(kind for kind, has in kinds.items() if has)


def _has_company(limit: Limit, weights: Iterable[Format]) -> bool:
    """Whether the weights are in formats it runs beside."""
    return not limit.beside or all(stored.name in limit.beside for stored in weights)
