"""A model of one's own: a config.json as a short text a link can carry, and what it describes."""

import json
from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any, TypeAlias

from parplan.hub import ConfigError, ModelEntry, transformer_from_config
from parplan.packing import packed_json, unpacked_json
from parplan.transformer import Transformer

LONGEST_CONFIG = 20_000
"""Characters of a packed config.json in a link."""
HANDY = 1000
"""Characters of a packed config.json that leave room in a link for everything else: mail and chat programs cut links of
more than 2,000."""
UNNAMED, LONGEST_NAME = "config.json", 100
NAMED, SEPARATE = "hub_id", "hf_quant_config"
"""Keys of a packed config.json that hold the model's id, and the content of a separate quantisation file."""
LARGEST_CONFIG = 1 << 18
"""Bytes a packed config.json may unpack to."""
MOST_READINGS = 500
"""Times a config is read again to see what it can do without."""
BYTE_ORDER = "\ufeff"
"""What some editors put before a text."""
Place: TypeAlias = tuple[str, ...]
"""Keys that lead to a value inside a config."""


def packed(text: str | bytes) -> str:
    """A config.json as a short string a link can carry.

    Args:
        text: as it is pasted, or the content of a file, in any encoding of Unicode.

    Raises:
        ConfigError: the text is not JSON, not the config of a language model, or too long for a link.
    """
    try:
        config = json.loads(text.removeprefix(BYTE_ORDER) if isinstance(text, str) else text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"this is not JSON: {error}") from error
    return packed_model(config)


def packed_model(config: Any) -> str:
    """The same for a config that is parsed already; its name and a separate quantisation file may be among it.

    Raises:
        ConfigError: it is not the config of a language model, or too long for a link.
    """
    short = packed_json(_handy(config))
    if len(short) > LONGEST_CONFIG:
        raise ConfigError(f"packed it has {len(short):,} characters, and a link carries {LONGEST_CONFIG:,}")
    return short


def described(config: Any) -> Transformer:
    """The model of a config.json, with what `packed_entry` may have put beside it.

    Raises:
        ConfigError: it is not the config of a language model.
    """
    if not isinstance(config, Mapping):
        return transformer_from_config(config, name=UNNAMED)
    separate = config.get(SEPARATE)
    found = transformer_from_config(
        config,
        name=_name(config),
        quantization=separate if isinstance(separate, Mapping) else None,
    )
    if found.encoder is None:
        return found
    images = f"its largest image has {found.encoder.tokens:,} tokens, as in the released models of its family"
    return found.model_copy(update={"assumed": (*found.assumed, images)})


def _name(config: Mapping[str, Any]) -> str:
    """What to call the model of a config: its id on the Hub where known, the last part of `_name_or_path`, which may be
    the model it was made from and so is no id, else its architecture.

    >>> [_name(one) for one in ({"_name_or_path": "org/Tiny-1B"}, {"architectures": ["LlamaForCausalLM"]}, {})]
    ['Tiny-1B', 'LlamaForCausalLM', 'config.json']
    """
    path, classes = config.get("_name_or_path"), config.get("architectures")
    called = path.rstrip("/").rpartition("/")[2] if isinstance(path, str) else ""
    kind = str(classes[0]) if isinstance(classes, list) and classes else ""
    return str(config.get(NAMED) or called.strip(" .") or kind or UNNAMED)[:LONGEST_NAME]


def packed_entry(entry: ModelEntry) -> str:
    """A model fetched from the Hub, as a string a link can carry; its id and quantisation file stay with it.

    Raises:
        ConfigError: as for `packed_model`.
    """
    beside: dict[str, object] = {NAMED: entry.name}
    if entry.quantization:
        beside[SEPARATE] = entry.quantization
    return packed_model({**entry.config, **beside})


def unpacked(text: str) -> Mapping[str, object]:
    """The config.json of a packed string; at most `LARGEST_CONFIG` bytes are unpacked.

    Raises:
        ConfigError: the string is empty, damaged, too large, or holds no JSON object.
    """
    if not text:
        raise ConfigError("no config.json is given")
    try:
        return unpacked_json(text, most=LARGEST_CONFIG)
    except ValueError as error:
        raise ConfigError(f"the packed config.json of the link {error}") from error


def _handy(config: Any) -> Any:
    """A config without the largest of the parts that change nothing of the model, until it is short enough for a link;
    most are short enough as they are.

    Raises:
        ConfigError: it is not the config of a language model.
    """
    wanted, found, together = described(config), config, 1
    parts = sorted(_places(config), key=lambda place: -len(json.dumps(_at(config, place))))
    for _ in range(MOST_READINGS):
        if not parts or len(packed_json(found)) <= HANDY:
            break
        shorter = reduce(_without, parts[:together], found)
        if _describes(shorter, wanted):
            found, parts, together = shorter, parts[together:], 2 * together
        elif together > 1:
            together = 1
        else:
            parts = parts[1:]
    return found


def _describes(config: Mapping[str, Any], wanted: Transformer) -> bool:
    try:
        return described(config) == wanted
    except ConfigError:
        return False


def _places(config: Mapping[str, Any], *, inside: Place = ()) -> Iterator[Place]:
    """Keys that lead to every value of a config; lists are taken as a whole."""
    for key, value in config.items():
        yield (*inside, key)
        if isinstance(value, Mapping):
            yield from _places(value, inside=(*inside, key))


def _at(config: Any, place: Place) -> Any:
    """The value at a place; None where what was around it is gone."""
    for key in place:
        config = config.get(key) if isinstance(config, Mapping) else None
    return config


def _without(config: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """A config without what is at a place."""
    first, *rest = place
    if first not in config:
        return dict(config)
    kept = {key: value for key, value in config.items() if key != first}
    return kept | {first: _without(config[first], tuple(rest))} if rest else kept
