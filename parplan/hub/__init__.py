"""Open models: their configs read exactly, their catalogue entries, the Hub, and plausible models of any size."""

from parplan.hub.config import transformer_from_config
from parplan.hub.download import DownloadError, Hub
from parplan.hub.entry import ModelEntry, Published, Summary
from parplan.hub.fields import ConfigError
from parplan.hub.sizes import transformer_of_size

__all__ = [
    "ConfigError",
    "DownloadError",
    "Hub",
    "ModelEntry",
    "Published",
    "Summary",
    "transformer_from_config",
    "transformer_of_size",
]
