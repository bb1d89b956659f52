"""Configs from the Hub, or from a mirror that speaks its protocol: `HF_ENDPOINT` and `HF_TOKEN` are honoured.

Only small files are read: configs whole, weights by their headers (range requests), and never more than a limit.

Addresses, refusals and offline mode are those of `huggingface_hub`. Its own downloads (2.4.0) are not used: they have
no limit on size, retry for minutes, write to disk, may hand over to a second client, follow redirects to any host,
read error pages whole, and multiply the shapes of a safetensors header however large the numbers in it.
"""

import ipaddress
import json
import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from math import prod
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from parplan.hub.entry import ModelEntry, Published
from parplan.hub.fields import Fields, shown
from parplan.provenance import Source, Value

if TYPE_CHECKING:
    from httpx2 import URL, Client, Request, Response

FILE = re.compile(r"[A-Za-z0-9][\w.-]{0,199}(?:/[A-Za-z0-9][\w.-]{0,199}){0,3}")
NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
MOST_BYTES = 32 * 2**20
"""No config or index is larger."""
MOST_FILES = 512
MOST_REDIRECTS = 5
MOST_SECONDS = 60
"""For the headers of all files of a repository together."""
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
        deadline = time.monotonic() + MOST_SECONDS
        total = 0
        for file in files:
            total += _elements(self._header(name, file))
            if time.monotonic() > deadline:
                raise DownloadError(f"{name}: its {len(files)} files take more than {MOST_SECONDS} s to ask")
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
        if not FILE.fullmatch(file):
            raise DownloadError(f"{shown(file)} is not a file of the repository {name}")
        if urlsplit(self.endpoint).scheme not in ("http", "https"):
            raise DownloadError(f"{shown(self.endpoint)} is not an address")
        return self._answer(name, file, first=first)

    def _answer(self, name: str, file: str, *, first: int | None) -> bytes:
        """What the Hub answers, redirects followed; its libraries are loaded on the first use."""
        import httpx2
        from huggingface_hub import hf_hub_url, is_offline_mode

        if is_offline_mode():
            raise DownloadError("HF_HUB_OFFLINE is set: nothing is fetched")
        deadline = time.monotonic() + self.timeout
        try:
            with httpx2.Client(timeout=self.timeout) as client:
                url = hf_hub_url(name, file, endpoint=self.endpoint)
                request = client.build_request("GET", url, headers=self._headers(first))
                answer = _followed(client, request, home=self.endpoint, deadline=deadline)
                _refuse_status(answer, name=name, file=file)
                return _read(answer, most=first or MOST_BYTES, whole=first is None, deadline=deadline)
        except (httpx2.TimeoutException, TimeoutError) as error:
            raise DownloadError(f"no answer from {self.endpoint} within {self.timeout:g} s") from error
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise DownloadError(f"{self.endpoint} cannot be reached: {error}") from error

    def _headers(self, first: int | None) -> dict[str, str]:
        """Of the first request; the client drops the token where a redirect leaves the endpoint's origin."""
        token = {"Authorization": f"Bearer {self.token.get_secret_value()}"} if self.token else {}
        part = {} if first is None else {"Range": f"bytes=0-{first - 1}"}
        return {"Accept-Encoding": "identity"} | token | part


def _followed(client: "Client", request: "Request", *, home: str, deadline: float) -> "Response":
    """The answer at the end of a request's redirects, its body still unread."""
    for _ in range(MOST_REDIRECTS + 1):
        _refuse_host(request.url, home=home)
        if request.url.host != urlsplit(home).hostname:
            request.extensions["trace"] = _refusing_private(request.url.host, home=home)
        answer = client.send(request, stream=True)
        if answer.next_request is None:
            return answer
        answer.close()
        if time.monotonic() > deadline:
            raise TimeoutError
        request = answer.next_request
    raise DownloadError(f"{home} redirects more than {MOST_REDIRECTS} times")


def _refuse_host(url: "URL", *, home: str) -> None:
    """Anything but the endpoint's own host must be a public one, over https.

    Raises:
        DownloadError: a redirect into the network this program runs in, or to an address that is not encrypted.
    """
    if url.host == urlsplit(home).hostname:
        return
    if url.scheme != "https" or not _is_public(url.host):
        raise _led_astray(url.host, home=home)


def _led_astray(host: str, *, home: str) -> DownloadError:
    return DownloadError(f"{home} redirects to {shown(host)}: only public hosts over https are followed")


def _refusing_private(host: str, *, home: str) -> Callable[[str, dict[str, Any]], None]:
    """What hangs up when a host turns out to be private after all, before a word is said to it.

    A name may lead to another address from one look-up to the next; the address that counts is the one connected to. A
    proxy's own address may be private.
    """
    asked = ""

    def look(event: str, about: dict[str, Any]) -> None:
        nonlocal asked
        if event == "connection.connect_tcp.started":
            asked = about["host"]
        if event == "connection.connect_tcp.complete" and asked == host:
            stream = about["return_value"]
            if not _is_global(stream.get_extra_info("server_addr")[0]):
                stream.close()
                raise _led_astray(host, home=home)

    return look


def _is_public(host: str) -> bool:
    """No address of a host is private; a name only a proxy can resolve is left to the proxy."""
    try:
        found = socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return True
    return all(_is_global(str(address[4][0])) for address in found)


def _is_global(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_global


def _read(answer: "Response", *, most: int, whole: bool, deadline: float) -> bytes:
    """An answer's bytes, up to a limit, before a deadline."""
    chunks: list[bytes] = []
    size = 0
    for chunk in answer.iter_bytes():
        if time.monotonic() > deadline:
            raise TimeoutError
        chunks.append(chunk)
        size += len(chunk)
        if size > most and whole:
            raise DownloadError(f"the file is larger than {most} bytes")
        if size >= most and not whole:
            break
    return b"".join(chunks)[:most]


def _refuse_status(answer: "Response", *, name: str, file: str) -> None:
    """What a status and the Hub's error code mean; the page that comes with an error is not read.

    Raises:
        DownloadError: the answer is not the file.
    """
    from httpx2 import Response
    from huggingface_hub import errors
    from huggingface_hub.utils import hf_raise_for_status  # type: ignore[attr-defined]

    try:
        hf_raise_for_status(Response(answer.status_code, headers=answer.headers, request=answer.request))
    except errors.GatedRepoError as error:
        raise DownloadError(f"{name} is gated: accept its terms on the Hub and set HF_TOKEN") from error
    except errors.EntryNotFoundError as error:
        raise MissingFileError(f"{name} has no {file}") from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        raise DownloadError(f"{name} does not exist, or is private and needs HF_TOKEN") from error
    except errors.HfHubHTTPError as error:
        raise _refusal(answer.status_code, name=name, file=file) from error


def _refusal(status: int, *, name: str, file: str) -> DownloadError:
    """What a status means that comes without the Hub's error code, as from a mirror."""
    if status == 404:
        return MissingFileError(f"{name} has no {file}")
    if status == 401:
        return DownloadError(f"{name} does not exist, or is private and needs HF_TOKEN")
    if status == 403:
        return DownloadError(f"{name} may not be read with this HF_TOKEN")
    if status == 429:
        return DownloadError("the Hub asks to slow down; try again later")
    return DownloadError(f"{name}/{file}: the Hub answers {status}")


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
