"""Two to four scenarios side by side: each as a short text, all of them in one link, and what differs between them."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from parplan.links import from_query, parsed, to_query
from parplan.packing import packed_json, unpacked_json
from parplan.scenario import Scenario

PLACES = ("a", "b", "c", "d")
"""Keys of a comparison's link, one per scenario."""
LONGEST = 1 << 15
"""Characters of one scenario's text that are read; the longest link there can be is shorter."""
LARGEST = 1 << 16
"""Bytes one packed scenario may unpack to."""


def packed_scenario(scenario: Scenario) -> str:
    """A scenario with every field and the schema version, as a short text.

    >>> scenario_of(packed_scenario(Scenario(gpu="l4")))[0].gpu
    'l4'
    """
    return packed_json(to_query(scenario, full=True))


def scenario_of(text: str) -> tuple[Scenario | None, list[str]]:
    """The scenario a text stands for, and what was wrong with it, in plain words; None: it stands for none.

    Never raises.

    Args:
        text: a whole link, a query string, or what `packed_scenario` makes.

    >>> scenario_of("https://example.org/?gpu=h200-sxm")[0].gpu
    'h200-sxm'
    >>> scenario_of("hello")
    (None, ['this is not a link to a plan'])
    """
    text = text.strip()
    if len(text) > LONGEST:
        return None, [f"this is longer than {LONGEST:,} characters"]
    if "=" in text or "?" in text:
        return from_query(parsed(text))
    try:
        fields = unpacked_json(text, most=LARGEST)
    except ValueError:
        return None, ["this is not a link to a plan"]
    return from_query({str(key): [str(value)] for key, value in fields.items()})


def comparison_url(scenarios: Sequence[Scenario], *, base: str) -> str:
    """One link to all of them.

    Args:
        scenarios: at most as many as there are `PLACES`.
        base: address of the page that compares.
    """
    texts = (packed_scenario(scenario) for scenario in scenarios)
    return f"{base}?{urlencode(dict(zip(PLACES, texts, strict=False)))}"


def differences(scenarios: Sequence[Scenario]) -> Mapping[str, tuple[Any, ...]]:
    """Fields that are not the same in all of them, with each one's value.

    >>> differences([Scenario(), Scenario(gpu="l4", prompt=8)])
    {'gpu': ('h100-sxm', 'l4'), 'prompt': (1024, 8)}
    """
    values = {name: tuple(getattr(one, name) for one in scenarios) for name in Scenario.model_fields}
    return {name: found for name, found in values.items() if len(set(found)) > 1}
