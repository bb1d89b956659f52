"""Configs from the Hub, or from a mirror that speaks its protocol: `HF_ENDPOINT` and `HF_TOKEN` are honoured.

Only small files are read: configs whole, weights by their headers (range requests), and never more than a limit.
"""

import json
import os
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from http.client import HTTPException, HTTPMessage, HTTPResponse
from math import prod
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from pydantic import SecretStr

from parplan.hub.entry import ModelEntry, Published
from parplan.hub.fields import Fields, shown
from parplan.provenance import Source, Value

NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
MOST_BYTES = 32 * 2**20
"""No config or index is larger."""
MOST_FILES = 512
FIRST_BYTES = 2**20
"""Asked of a weight file at once: nearly every header fits."""


class DownloadError(Exception):
    """What was asked for could not be had; the message says what and why."""


class MissingFileError(DownloadError):
    """The repository is there, the file is not."""


class Hub(Value):
    """A place models are fetched from."""

    endpoint: str = "https://huggingface.co"
    token: SecretStr | None = None
    """Sent to the endpoint's own host only."""
    timeout: float = 10.0
    """Seconds one file may take."""

    @staticmethod
    def from_environment() -> "Hub":
        """The Hub, or the mirror and token the environment names."""
        token = os.environ.get("HF_TOKEN")
        endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/")
        return Hub(
            endpoint=endpoint or Hub.model_fields["endpoint"].default,
            token=SecretStr(token) if token else None,
        )

    def entry(self, name: str) -> ModelEntry:
        """A model as the catalogue would hold it: its config, and a separate quantisation file if there is one.

        Args:
            name: Hub id, "organisation/model".

        Raises:
            DownloadError: no such repository, one that needs permission, no answer in time, or no config.
        """
        config = self._json(name, "config.json")
        try:
            quantization = self._json(name, "hf_quant_config.json")
        except MissingFileError:
            quantization = None
        return ModelEntry(name=name, source=self._source(name), config=config, quantization=quantization)

    def published(self, name: str) -> Published:
        """Elements in a repository's safetensors files, from their headers.

        Raises:
            DownloadError: as for `entry`, or the files have no readable headers.
        """
        try:
            listed = self._json(name, "model.safetensors.index.json").get("weight_map")
            files = sorted({str(file) for file in listed.values()}) if isinstance(listed, dict) else []
        except MissingFileError:
            files = ["model.safetensors"]
        if not 0 < len(files) <= MOST_FILES:
            raise DownloadError(
                f"{name}: the index lists {len(files)} files, 1 to {MOST_FILES} were expected"
            )
        total = sum(_elements(self._header(name, file)) for file in files)
        return Published(total_parameters=total, source=self._source(name))

    def _source(self, name: str) -> Source:
        url = f"{self.endpoint}/{name}"
        return Source(text=f"Hub repository {name}, main", read=datetime.now(UTC).date(), url=url)

    def _json(self, name: str, file: str) -> dict[str, object]:
        """A JSON file of a repository."""
        return _mapping(self._bytes(name, file), what=f"{name}/{file}")

    def _header(self, name: str, file: str) -> dict[str, object]:
        """Header of a safetensors file: 8 bytes of length, then JSON."""
        start = self._bytes(name, file, first=FIRST_BYTES)
        length = int.from_bytes(start[:8], "little")
        if len(start) < 8 or length > MOST_BYTES:
            raise DownloadError(f"{name}/{file} is not a safetensors file")
        if 8 + length > len(start):
            start = self._bytes(name, file, first=8 + length)
        return _mapping(start[8 : 8 + length], what=f"header of {name}/{file}")

    def _bytes(self, name: str, file: str, *, first: int | None = None) -> bytes:
        """A file, or its first bytes."""
        if not NAME.fullmatch(name):
            raise DownloadError(f"{shown(name)} is not a Hub id: organisation/model")
        request = Request(f"{self.endpoint}/{name}/resolve/main/{file}")
        if urlsplit(request.full_url).scheme not in ("http", "https"):
            raise DownloadError(f"{shown(self.endpoint)} is not an address")
        if self.token is not None:
            request.add_header("Authorization", f"Bearer {self.token.get_secret_value()}")
        if first is not None:
            request.add_header("Range", f"bytes=0-{first - 1}")
        deadline = time.monotonic() + self.timeout
        try:
            with build_opener(_TokenStaysHome).open(request, timeout=self.timeout) as answer:
                return _read(answer, most=first or MOST_BYTES, whole=first is None, deadline=deadline)
        except HTTPError as error:
            raise _refusal(error, name=name, file=file) from error
        except (URLError, TimeoutError, HTTPException, OSError) as error:
            reason = getattr(error, "reason", error)
            late = isinstance(reason, TimeoutError)
            raise DownloadError(
                f"no answer from {self.endpoint} within {self.timeout:g} s"
                if late
                else f"{self.endpoint} cannot be reached: {reason}"
            ) from error


class _TokenStaysHome(HTTPRedirectHandler):
    """Follows redirects, to other hosts without the token."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        """The next request."""
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following is not None and urlsplit(newurl).netloc != urlsplit(req.full_url).netloc:
            following.remove_header("Authorization")
        return following


def _read(answer: HTTPResponse, *, most: int, whole: bool, deadline: float) -> bytes:
    """An answer's bytes, up to a limit, before a deadline."""
    chunks: list[bytes] = []
    size = 0
    while size < most + whole:
        if time.monotonic() > deadline:
            raise TimeoutError
        chunk = answer.read1(min(2**16, most + whole - size))
        if not chunk:
            break
        chunks.append(chunk)
        size += len(chunk)
    if whole and size > most:
        raise DownloadError(f"the file is larger than {most} bytes")
    return b"".join(chunks)


def _refusal(error: HTTPError, *, name: str, file: str) -> DownloadError:
    """What a status and the Hub's error code mean."""
    code = error.headers.get("X-Error-Code", "") if error.headers else ""
    if code == "GatedRepo":
        return DownloadError(f"{name} is gated: accept its terms on the Hub and set HF_TOKEN")
    if code == "EntryNotFound" or (error.code == 404 and not code):
        return MissingFileError(f"{name} has no {file}")
    if code in ("RepoNotFound", "RevisionNotFound") or error.code == 401:
        return DownloadError(f"{name} does not exist, or is private and needs HF_TOKEN")
    if error.code == 403:
        return DownloadError(f"{name} may not be read with this HF_TOKEN")
    if error.code == 429:
        return DownloadError("the Hub asks to slow down; try again later")
    return DownloadError(f"{name}/{file}: the Hub answers {error.code}")


def _mapping(content: bytes, *, what: str) -> dict[str, object]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DownloadError(f"{what} is not JSON") from error
    if not isinstance(document, dict):
        raise DownloadError(f"{what} is not a JSON object")
    return document


def _elements(header: Mapping[str, object]) -> int:
    """Elements of all tensors of a safetensors header."""
    fields = Fields(header)
    tensors = (name for name in header if name != "__metadata__")
    return sum(prod(fields.part(name).numbers("shape") or (1,)) for name in tensors)
