"""The start: a broken catalogue stops it with a reason, and nothing but the project's own files is needed."""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from parplan import Scenario, catalog
from parplan.scenario import plan
from parplan.ui.words import plain
from scripts.audit import locked
from scripts.load import Session, free_port, wait_until_healthy

ROOT = Path(__file__).parents[1]
SERVE = (sys.executable, "-m", "streamlit", "run", "app.py", "--server.address=localhost")
MODEL = "models/Qwen/Qwen3-4B.yaml"
KINDS = (
    "gpus.yaml", "sources.yaml", "formats.yaml", "instances/aws.yaml", "engines/memory.yaml", "engines/speed.yaml",
    "measurements/memory.csv", "measurements/speed.csv", "measurements/throughput.csv", MODEL,
)  # fmt: skip
"""A file of every kind."""
NOBODY = 65_534


def forget() -> None:
    """What was read of the catalogue."""
    for known in vars(catalog).values():
        if hasattr(known, "cache_clear"):
            known.cache_clear()


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small catalogue of one's own to break."""
    folder = tmp_path / "catalogs"
    shutil.copytree(catalog.ROOT, folder, ignore=shutil.ignore_patterns("models"))
    for name in (MODEL, f"models/{Scenario().model}.yaml"):
        (folder / name).parent.mkdir(parents=True)
        shutil.copy(catalog.ROOT / name, folder / name)
    monkeypatch.setattr(catalog, "ROOT", folder)
    forget()
    yield folder
    monkeypatch.undo()
    forget()


def change(file: Path, edit: Callable[[str], str]) -> int:
    """Edit a file; the number of the first line that is no longer what it was."""
    before = file.read_text("utf-8")
    after = edit(before)
    assert after != before
    file.write_text(after, encoding="utf-8")
    lines = zip(before.splitlines(), [*after.splitlines(), ""], strict=False)
    return next((number for number, (old, new) in enumerate(lines, 1) if old != new), 1)


def swap(old: str, new: str) -> Callable[[str], str]:
    return lambda text: text.replace(old, new, 1)


def test_the_catalogue_is_sound(copy: Path) -> None:
    catalog.check()
    assert len(catalog.model_files()) == 2
    assert copy == catalog.ROOT


@pytest.mark.parametrize(
    ("file", "edit", "said"),
    [
        ("gpus.yaml", swap("bandwidth: 600 GB/s", "bandwidth: much"), "a10.bandwidth: Value error, 'much'"),
        ("gpus.yaml", swap("bandwidth: 600 GB/s", "bandwidth: 600 GiB"), "a10.bandwidth"),
        ("gpus.yaml", swap("  node: 4", "  node: 4\n  nodes: 4"), "a10.nodes: Extra inputs"),
        ("gpus.yaml", swap("vendor: NVIDIA", "vendor: Nvdia"), "a10.vendor"),
        ("gpus.yaml", swap("fabric: pcie", "fabric: [pcie"), "no YAML: did not find expected ',' or ']'"),
        ("gpus.yaml", swap("a10:\n", "a10:\n\tlabel: x\n"), "no YAML: found character that cannot start"),
        ("sources.yaml", swap("read: 2026", "read: yes 2026"), "read: "),
        ("formats.yaml", swap("bits: ", "bits: -"), "bits"),
        ("instances/lambda.yaml", swap("gpus: 8", "gpus: 0"), "instances.0.gpus: Input should be greater"),
        ("instances/lambda.yaml", swap("price-reference", "hearsay"), "unknown source 'hearsay'"),
        ("engines/memory.yaml", swap("speed: vllm", "speed: warp"), "'warp' is not in speed.yaml"),
        ("engines/speed.yaml", swap("bandwidth: 1.0", "bandwidth: 2.0"), "ideal.profile.bandwidth: Input should"),
        (MODEL, swap("name: Qwen", "nam: Qwen"), "name: Field required"),
        (MODEL, swap("hidden_size: 2560", "hidden_size: wide"), "hidden_size"),
        (MODEL, swap("hidden_size: 2560", "hidden_size: 2560\n  hidden_size: 5120"), "'hidden_size' is there twice"),
        ("gpus.yaml", swap("a10:\n", "a10:\n  label: A10\na10:\n"), "'a10' is there twice"),
        ("sources.yaml", lambda text: text + text.splitlines()[-2] + "\n", "is there twice"),
        ("formats.yaml", swap("bf16:\n", "fp32:\nbf16:\n"), "'fp32' is there twice"),
        ("engines/speed.yaml", swap("bandwidth: 1.0", "bandwidth: 1.0\n    bandwidth: 1.0"), "there twice"),
        ("engines/memory.yaml", swap("speed: vllm", "speed: vllm\n  speed: vllm"), "'speed' is there twice"),
        ("instances/lambda.yaml", swap("1x_h100_pcie, gpu: h100-pcie", "1x_h100_sxm5, gpu: h100-sxm"), "there twice"),
        ("instances/lambda.yaml", swap("gpu: a100-sxm-40", "gpu: a1000"), "no 'a1000'"),
    ],
)  # fmt: skip
def test_a_broken_file_is_named_with_line_field_and_reason(
    copy: Path, file: str, edit: Callable[[str], str], said: str
) -> None:
    line = change(copy / file, edit)
    with pytest.raises(catalog.CatalogError) as refused:
        catalog.check()
    message = str(refused.value)
    assert said in message
    assert "\n" not in message
    assert message.startswith("catalogs/")
    elsewhere = ("required", "twice", "no 'a1000'", "config: ")
    if not any(word in message for word in elsewhere):  # those are told where they begin, or are missed
        where = int(message.split(":")[1])
        assert where - line in ((0, 1) if "no YAML" in message else (0,))  # a parser stops a line later


@pytest.mark.parametrize("content", [b"", b"- 1\n- 2\n", b"7", b"a10:\n", b"\xff\xfe\x00", b"a: &a [*a]"])
@pytest.mark.parametrize("file", KINDS)
def test_a_file_of_something_else_is_named(copy: Path, file: str, content: bytes) -> None:
    (copy / file).write_bytes(content)
    with pytest.raises(catalog.CatalogError, match=r"^catalogs/.*: \w"):
        catalog.check()


@pytest.mark.parametrize("file", [file for file in KINDS if file not in ("formats.yaml", MODEL)])
def test_half_a_file_is_named(copy: Path, file: str) -> None:
    """As a copy that was broken off leaves it: in the middle of a line."""
    text = (copy / file).read_text("utf-8")
    (copy / file).write_text(text[: text.index("\n", len(text) // 2) + 9], encoding="utf-8")
    with pytest.raises(catalog.CatalogError, match=r"^catalogs/.*: \w"):
        catalog.check()


@pytest.mark.parametrize("file", ["gpus.yaml", "engines/speed.yaml", "sources.yaml", "engines/errors.csv"])
def test_a_missing_file_is_named(copy: Path, file: str) -> None:
    (copy / file).unlink()
    with pytest.raises(catalog.CatalogError, match=f"catalogs/{file}:1: No such file"):
        catalog.check()


@pytest.mark.parametrize("file", ["gpus.yaml", f"models/{Scenario().model}.yaml"])
def test_a_broken_catalogue_stops_the_server_without_a_traceback(copy: Path, file: str) -> None:
    (copy / file).write_text("- broken", encoding="utf-8")
    done = subprocess.run(
        [*SERVE, f"--server.port={free_port()}"],
        cwd=ROOT,
        env=os.environ | {"PARPLAN_CATALOGS": str(copy)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert f"parplan cannot start: catalogs/{file}:1: fields were expected" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_a_catalogue_without_the_example_stops_the_server(copy: Path) -> None:
    (copy / f"models/{Scenario().model}.yaml").unlink()
    done = subprocess.run(
        [*SERVE, f"--server.port={free_port()}"],
        cwd=ROOT,
        env=os.environ | {"PARPLAN_CATALOGS": str(copy)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert f"parplan cannot start: unknown model '{Scenario().model}'" in done.stderr


GUARD = r'''
import os, sys

def refuse(event, details):
    """Nothing but this machine is talked to, and nothing but the null device is written."""
    said = ""
    if event == "socket.connect" and isinstance(details[1], tuple) and details[1][0] not in ("127.0.0.1", "::1"):
        said = f"connect {details[1]}"
    if event == "socket.getaddrinfo" and details[0] not in (None, "localhost", "127.0.0.1", "::1", b"localhost"):
        said = f"look up {details[0]}"
    if event == "open" and isinstance(details[2], int) and details[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        said = f"write {details[0]}" if details[0] != os.devnull else ""
    if event in ("os.mkdir", "os.remove", "os.rename", "os.chmod"):
        said = f"{event} {details[0]}"
    if said:
        os.write(2, f"REFUSED {said}\n".encode())
        raise PermissionError(said)

sys.addaudithook(refuse)
os.write(2, b"GUARDED\n")
'''
"""Runs before anything else in the server's process."""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_it_serves_as_nobody_reads_only_and_asks_nobody(tmp_path: Path) -> None:
    """As a user who may write nowhere, with no home, in a process that may neither write nor look outside."""
    guard = Path(tempfile.mkdtemp(dir=tmp_path))
    (guard / "sitecustomize.py").write_text(GUARD, encoding="utf-8")
    port, log = free_port(), tmp_path / "log"
    command = [*SERVE, f"--server.port={port}"]
    root = os.geteuid() == 0
    if root:  # may read what root may read, wherever Python is installed, and nothing else
        may = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search", "--clear-groups"]
        command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", *may, *command]
    environment = {"PYTHONPATH": str(guard), "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent"}
    with log.open("wb") as output:
        server = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | environment, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        wait_until_healthy(port, server=server)
        apart(visit(port))
        user = Path(f"/proc/{server.pid}/status").read_text("ascii").partition("Uid:")[2].split()[0]
        assert int(user) == (NOBODY if root else os.geteuid())
    finally:
        server.kill()
        server.wait()
    said = log.read_text("utf-8")
    assert "GUARDED" in said
    assert "REFUSED" not in said
    assert "Traceback" not in said


def apart(visited: Coroutine[Any, Any, None]) -> None:
    """Run in a thread of its own: a browser of an earlier test may keep a loop running in this one."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, visited).result()


async def visit(port: int, *, below: str = "") -> None:
    session = Session(port, below=below)
    await session.open()
    assert session.verdict == plain(plan(Scenario()).advice.verdict)
    await session.move(3)
    assert session.faults == []
    await session.close()


def test_a_base_path_moves_everything_below_it() -> None:
    port, below = free_port(), "tools/parplan"
    server = subprocess.Popen(
        [*SERVE, f"--server.port={port}", f"--server.baseUrlPath={below}"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until_healthy(port, server=server, below=f"/{below}")
        with urlopen(f"http://localhost:{port}/{below}/", timeout=5) as answer:
            assert b"<title>" in answer.read()
        apart(visit(port, below=f"/{below}"))
    finally:
        server.kill()
        server.wait()


def test_what_is_locked_is_what_is_required() -> None:
    """Every package of requirements.txt, in the same version, with hashes; `make lock` writes it anew."""
    versions = locked((ROOT / "requirements.lock").read_text("utf-8"))
    asked = locked((ROOT / "requirements.txt").read_text("utf-8"))
    assert {
        name.lower().replace("_", "-"): version for name, version in asked.items()
    }.items() <= versions.items()
    assert (ROOT / "requirements.lock").read_text("utf-8").count("--hash=sha256:") > 2 * len(versions)
