"""A model in the catalogue: the facts of its config, where they were read, and what the Hub says of its size."""

from functools import cached_property

from pydantic import Field

from parplan.hub.config import transformer_from_config
from parplan.provenance import Source, Value
from parplan.transformer import Transformer


class Published(Value):
    """A size published elsewhere, to check against."""

    total_parameters: int = Field(ge=1)
    """Elements in the checkpoint's files, whatever they are: packed weights, scales and copies count as they lie."""
    source: Source


class ModelEntry(Value):
    """One file of `catalogs/models/<org>/<name>.yaml`."""

    name: str = Field(pattern=r"^[\w.-]+/[\w.-]+$")
    """Hub id."""
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
