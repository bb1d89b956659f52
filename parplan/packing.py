"""JSON as a short string a link can carry."""

import base64
import json
import zlib
from typing import Any


def packed_json(value: Any) -> str:
    """A JSON value in letters, digits, dashes and underscores.

    >>> unpacked_json(packed_json({"a": [1, 2]}), most=100)
    {'a': [1, 2]}
    """
    compact = json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
    return base64.urlsafe_b64encode(zlib.compress(compact, 9)).decode().rstrip("=")


def unpacked_json(text: str, *, most: int) -> Any:
    """The JSON value of a packed string.

    Args:
        text: from anybody.
        most: bytes that are unpacked; what follows them is cut off.

    Raises:
        ValueError: the string is damaged or too large.
    """
    try:
        compressed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return json.loads(zlib.decompressobj().decompress(compressed, most))
    except (zlib.error, RecursionError) as error:
        raise ValueError(str(error)) from error
