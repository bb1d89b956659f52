"""Where a row was read: the address its source stands for, where it can be told from the words."""

import re

REPOSITORY = r"^(?P<repository>[\w-]+/[\w.-]+)"
ADDRESSES: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(REPOSITORY + r"(?:#| issue #)(?P<number>\d+)"),
        "https://github.com/{repository}/issues/{number}",
    ),
    (
        re.compile(REPOSITORY + r"[@ ](?P<commit>[0-9a-f]{7,40}) (?P<path>[\w./-]+)"),
        "https://github.com/{repository}/blob/{commit}/{path}",
    ),
    (
        re.compile(REPOSITORY + r" (?P<path>[\w./-]+\.\w+)$"),
        "https://github.com/{repository}/blob/HEAD/{path}",
    ),
    (re.compile(r"^(?P<page>[\w-]+(?:\.[\w-]+)*\.(?:com|io|org)/[\w./-]+)"), "https://{page}"),
)
"""How sources are written, and the address each stands for."""


def source_url(source: str) -> str | None:
    """The address of a source, or None where its words do not tell.

    >>> source_url("ROCm/vllm@5486e7bc8 docs/dev-docker/README.md (2025-06-24)")
    'https://github.com/ROCm/vllm/blob/5486e7bc8/docs/dev-docker/README.md'
    >>> source_url("SemiAnalysisAI/InferenceX issue #870 (2026-03-05)")
    'https://github.com/SemiAnalysisAI/InferenceX/issues/870'
    >>> source_url("my own cluster") is None
    True
    """
    for pattern, address in ADDRESSES:
        if found := pattern.match(source):
            return address.format(**found.groupdict())
    return None
