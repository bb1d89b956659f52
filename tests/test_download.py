"""Fetching from the Hub, against a local server that answers as the Hub does."""

import gzip
import json
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
from pydantic import SecretStr

from parplan.__main__ import main
from parplan.hub.download import DownloadError, Hub, MissingFileError, _is_public

CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "vocab_size": 100, "max_position_embeddings": 512,
}  # fmt: skip
MODIFIED = {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}


def safetensors(shapes: dict[str, list[int]], *, padding: int = 0) -> bytes:
    """A file of bf16 tensors; padding makes its header long."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt" + " " * padding}}
    at = 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * shape[1]
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"\0" * at


FILES: dict[str, bytes] = {
    "org/plain/config.json": json.dumps(CONFIG).encode(),
    "org/plain/model.safetensors": safetensors({"a": [100, 64], "b": [64, 64]}),
    "org/packed/config.json": json.dumps(CONFIG).encode(),
    "org/packed/hf_quant_config.json": json.dumps(MODIFIED).encode(),
    "org/packed/model.safetensors.index.json": json.dumps(
        {"weight_map": {"a": "1.st", "b": "2.st", "c": "2.st"}}
    ).encode(),
    "org/packed/1.st": safetensors({"a": [10, 10]}),
    "org/packed/2.st": safetensors({"b": [20, 10], "c": [30, 10]}, padding=2**20),
    "org/climbing/model.safetensors.index.json": b'{"weight_map": {"a": "../../other/1.st"}}',
    "org/broken/config.json": b"<html>",
    "org/listed/config.json": b"[1, 2]",
    "org/huge/config.json": b" " * (33 * 2**20),
    "org/empty/config.json": b"",
}  # fmt: skip


class Stand(BaseHTTPRequestHandler):
    """GET /org/model/resolve/main/file, with ranges, tokens, redirects and the Hub's error codes."""

    seen: list[tuple[str, str | None, str | None]] = []  # noqa: RUF012
    elsewhere = ""

    def do_GET(self) -> None:
        self.seen.append((self.path, self.headers.get("Authorization"), self.headers.get("Range")))
        name, _, file = self.path.strip("/").partition("/resolve/main/")
        with suppress(ConnectionError):  # clients hang up on what is too long
            if name in self.moved():
                self.redirect(self.moved()[name].format(file=file))
            elif name in self.ODD:
                self.ODD[name](self)
            else:
                self.answer(name, file)

    def moved(self) -> dict[str, str]:
        return {
            "org/moved": f"{self.elsewhere}/org/plain/resolve/main/{{file}}",
            "org/inside": self.elsewhere.replace("127.0.0.1", "localhost"),
            "org/private": "https://192.168.0.1/latest/meta-data",
            "org/turning": self.elsewhere.replace("http://127.0.0.1", "https://turns.invalid"),
            "org/other-scheme": "file:///etc/passwd",
            "org/circle": self.path,
        }

    def answer(self, name: str, file: str) -> None:
        if name == "org/gated" and self.headers.get("Authorization") != "Bearer right":
            return self.refuse(401, "GatedRepo")
        if name == "org/gated":
            name = "org/plain"
        if not any(known.startswith(f"{name}/") for known in FILES):
            return self.refuse(401, "RepoNotFound")
        content = FILES.get(f"{name}/{file}")
        return self.refuse(404, "EntryNotFound") if content is None else self.give(content)

    def refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def redirect(self, url: str) -> None:
        self.send_response(302)
        self.send_header("Location", url)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def fail(self) -> None:
        self.send_response(500)
        self.send_header("Content-Length", str(2**40))
        self.end_headers()
        self.wfile.write(b'["' + b"x" * 2**20)

    def hesitate(self) -> None:
        time.sleep(1.5)
        self.give(b"{}")

    def bomb(self) -> None:
        self.give(gzip.compress(b" " * (64 * 2**20)), encoding="gzip")

    def busy(self) -> None:
        self.refuse(429, "")

    def drip(self) -> None:
        self.send_response(200)
        self.end_headers()
        for _ in range(30):
            self.wfile.write(b" ")
            time.sleep(0.05)

    def give(self, content: bytes, *, encoding: str = "identity") -> None:
        wanted = self.headers.get("Range")
        if wanted:
            first, last = wanted.removeprefix("bytes=").split("-")
            content = content[int(first) : int(last) + 1]
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Encoding", encoding)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        del format, args

    ODD: ClassVar[dict[str, Callable[["Stand"], None]]] = {
        "org/slow": hesitate, "org/drip": drip, "org/bomb": bomb, "org/failing": fail, "org/busy": busy,
    }  # fmt: skip


@pytest.fixture
def hub(stand_in: Hub) -> Hub:
    """The Hub's stand-in, with nothing seen yet."""
    Stand.seen.clear()
    return stand_in


@pytest.fixture(scope="module")
def stand_in() -> Iterator[Hub]:
    """A server that answers as the Hub does, and a second host for redirects."""
    home, other = ThreadingHTTPServer(("127.0.0.1", 0), Stand), ThreadingHTTPServer(("127.0.0.1", 0), Stand)
    Stand.elsewhere = f"http://127.0.0.1:{other.server_address[1]}"
    threads = [threading.Thread(target=server.serve_forever, args=(0.01,)) for server in (home, other)]
    for thread in threads:
        thread.start()
    yield Hub(endpoint=f"http://127.0.0.1:{home.server_address[1]}", timeout=5)
    for server, thread in zip((home, other), threads, strict=True):
        server.shutdown()
        thread.join()
        server.server_close()


def with_token(hub: Hub, token: str) -> Hub:
    return hub.model_copy(update={"token": SecretStr(token)})


def test_a_model_by_its_id(hub: Hub) -> None:
    found = hub.entry("org/plain")
    assert found.transformer.total_parameters == 95_040
    assert found.source.url == f"{hub.endpoint}/org/plain"


def test_a_separate_quantisation_file(hub: Hub) -> None:
    assert hub.entry("org/packed").transformer.native == {"attention": "fp8", "dense_ffn": "fp8"}


def test_elements_from_one_file(hub: Hub) -> None:
    assert hub.published("org/plain").total_parameters == 100 * 64 + 64 * 64


def test_elements_from_many_files_by_their_headers_alone(hub: Hub) -> None:
    assert hub.published("org/packed").total_parameters == 100 + 200 + 300
    ranges = [wanted for path, _, wanted in Stand.seen if path.endswith(".st")]
    assert len(ranges) == 3, "a header longer than the first read is asked for once more"
    assert None not in ranges


def test_a_gated_model_needs_the_right_token(hub: Hub) -> None:
    with pytest.raises(DownloadError, match="org/gated is gated: accept its terms"):
        hub.entry("org/gated")
    with pytest.raises(DownloadError, match="gated"):
        with_token(hub, "wrong").entry("org/gated")
    assert with_token(hub, "right").entry("org/gated").transformer.total_parameters == 95_040


def test_the_token_stays_with_its_host(hub: Hub) -> None:
    with_token(hub, "secret").entry("org/moved")
    assert [token for path, token, _ in Stand.seen if "org/moved" in path][0] == "Bearer secret"  # noqa: RUF015
    assert {token for path, token, _ in Stand.seen if "org/plain" in path} == {None}


def test_the_token_is_not_shown(hub: Hub) -> None:
    assert "secret" not in repr(with_token(hub, "secret"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("org/none", "org/none does not exist, or is private"),
        ("org/busy", "asks to slow down"),
        ("org/broken", "org/broken/config.json is not JSON"),
        ("org/empty", "org/empty/config.json is not JSON"),
        ("org/listed", "is not a JSON object"),
        ("org/huge", "larger than"),
        ("org/bomb", "larger than"),
        ("org/failing", "the Hub answers 500"),
        ("org/inside", "redirects to 'localhost': only public hosts over https are followed"),
        ("org/private", r"redirects to '192\.168\.0\.1': only public hosts"),
        ("org/other-scheme", "only public hosts over https|cannot be reached"),
        ("org/circle", "redirects more than 5 times"),
        ("no-slash", "is not a Hub id"),
        ("../etc/passwd", "is not a Hub id"),
        ("org/plain/resolve/main/x?", "is not a Hub id"),
    ],
)
def test_what_went_wrong_is_said(hub: Hub, name: str, message: str) -> None:
    with pytest.raises(DownloadError, match=message):
        hub.entry(name)


def test_a_missing_file_is_told_from_a_missing_repository(hub: Hub) -> None:
    with pytest.raises(MissingFileError, match=r"org/broken has no model\.safetensors"):
        hub.published("org/broken")


def test_no_answer_in_time(hub: Hub) -> None:
    start = time.monotonic()
    with pytest.raises(DownloadError, match=r"no answer from .* within 0.3 s"):
        hub.model_copy(update={"timeout": 0.3}).entry("org/slow")
    assert time.monotonic() - start < 1.5


def test_an_answer_that_drips(hub: Hub) -> None:
    start = time.monotonic()
    with pytest.raises(DownloadError, match=r"within 0.3 s"):
        hub.model_copy(update={"timeout": 0.3}).entry("org/drip")
    assert time.monotonic() - start < 1


def test_names_in_an_index_stay_in_the_repository(hub: Hub) -> None:
    with pytest.raises(DownloadError, match="is not a file of the repository"):
        hub.published("org/climbing")


def test_a_server_that_ignores_ranges_is_cut_off(hub: Hub) -> None:
    assert len(hub._bytes("org/huge", "config.json", first=100)) == 100


def test_nothing_is_fetched_offline(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(DownloadError, match="HF_HUB_OFFLINE is set"):
        hub.entry("org/plain")
    assert Stand.seen == []


def test_a_name_that_turns_private_after_it_was_looked_at_gets_no_word(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Public when it is judged, this machine when it is connected to."""
    answers, real, said = iter(["8.8.8.8"]), socket.getaddrinfo, Stand.handle_one_request

    def look_up(host: Any, port: Any, *more: Any, **options: Any) -> Any:
        return real(next(answers, "127.0.0.1") if host == "turns.invalid" else host, port, *more, **options)

    heard: list[bytes] = []

    def listen(stand: Stand) -> None:
        if f":{stand.server.server_port}" in Stand.elsewhere:  # type: ignore[attr-defined]
            stand.connection.settimeout(2)
            heard.append(stand.connection.recv(1))
        else:
            said(stand)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(Stand, "handle_one_request", listen)
    with pytest.raises(DownloadError, match=r"redirects to 'turns\.invalid': only public hosts"):
        hub.entry("org/turning")
    assert next(answers, None) is None
    assert b"".join(heard) == b""


@pytest.mark.parametrize(
    ("host", "public"),
    [("127.0.0.1", False), ("10.1.2.3", False), ("169.254.169.254", False), ("::1", False), ("fe80::1", False),
     ("0.0.0.0", False), ("100.64.0.1", False), ("8.8.8.8", True), ("localhost", False)],
)  # fmt: skip
def test_private_addresses(host: str, *, public: bool) -> None:
    assert _is_public(host) is public


def test_its_libraries_are_loaded_only_when_something_is_fetched() -> None:
    script = "import sys, parplan.hub; print({'huggingface_hub', 'httpx2'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


def test_nobody_there() -> None:
    with pytest.raises(DownloadError, match="cannot be reached"):
        Hub(endpoint="http://127.0.0.1:9", timeout=2).entry("org/plain")


def test_endpoints_that_are_no_address() -> None:
    with pytest.raises(DownloadError, match="is not an address"):
        Hub(endpoint="file:///etc").entry("org/plain")


def test_the_environment_names_endpoint_and_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://mirror.example/")
    monkeypatch.setenv("HF_TOKEN", "secret")
    found = Hub.from_environment()
    assert found.endpoint == "http://mirror.example"
    assert found.token is not None
    assert found.token.get_secret_value() == "secret"
    monkeypatch.setenv("HF_ENDPOINT", "")
    monkeypatch.delenv("HF_TOKEN")
    assert Hub.from_environment() == Hub()


def test_the_command_line_asks_the_hub_only_when_told(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    assert main(["model", "org/plain"]) == 2
    assert "unknown model 'org/plain'" in (said := capsys.readouterr().err)
    assert "--hub asks the Hub" in said
    assert Stand.seen == []
    assert main(["model", "--hub", "org/plain"]) == 0
    assert "95,040 parameters" in capsys.readouterr().out
    assert main(["model", "--hub", "org/gated"]) == 2
    assert "org/gated is gated" in capsys.readouterr().err
