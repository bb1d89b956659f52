"""Load on the served page: `make load`, about two minutes, on this machine alone.

Starts the page in a process or two, opens real websocket sessions as browsers do, and moves a slider in each. Prints
a table, and fails when a limit is broken. Linux only: memory is read from /proc. The script that plays the people
shares the machine with the page; what it takes of it is printed too, as is the processor time of one rerun, which other
work on the machine changes less than the times waited.
"""

import argparse
import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import numpy as np
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.Delta_pb2 import Delta
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from parplan.units import MIB

ROOT = Path(__file__).parents[1]
SLIDER = "Concurrent requests"
PERIOD = 2.0
"""Seconds between two moves of one person's slider."""
PEOPLE, IDLE = 50, 200
"""Sessions of one process: those that move a slider, those that only look."""
MOST_SECONDS = 120
"""Longest one round may be asked to take."""
START_SECONDS = 60.0
SLOWEST = 0.5
"""95th percentile of a rerun, seconds."""
GROWTH, MEMORY = 1 * MIB, 500 * MIB
"""Bytes a process may grow by per session, and hold in all."""


class Session:
    """One person's browser, as the server sees it."""

    def __init__(self, port: int, *, below: str = "") -> None:
        self.address = f"ws://localhost:{port}{below}/_stcore/stream"
        self.verdict = ""
        self.faults: list[str] = []
        self.times: list[float] = []
        """Seconds from a move to the end of its rerun."""
        self._known: set[str] = set()
        self._slider = self._page = ""
        self._steps: Sequence[str] = ()
        self._socket: ClientConnection | None = None

    async def open(self, query: str = "") -> float:
        """Connect and wait for the first page; seconds it took."""
        start = time.perf_counter()
        spoken = [Subprotocol("streamlit")]
        self._socket = await connect(self.address, subprotocols=spoken, max_size=None, compression=None)
        await self._rerun(BackMsg(), query=query)
        return time.perf_counter() - start

    async def move(self, step: int) -> None:
        """Move the slider to one of its steps, and wait until the page has followed."""
        message, value = BackMsg(), self._steps[step % len(self._steps)]
        state = message.rerun_script.widget_states.widgets.add(id=self._slider)
        state.string_array_value.data.append(value)
        start = time.perf_counter()
        await self._rerun(message, query=f"concurrency={value}")
        self.times.append(time.perf_counter() - start)

    async def close(self) -> None:
        if self._socket:
            await self._socket.close()

    async def _rerun(self, message: BackMsg, *, query: str) -> None:
        assert self._socket
        script = message.rerun_script
        script.query_string, script.page_script_hash = query, self._page
        script.cached_message_hashes.extend(self._known)
        await self._socket.send(message.SerializeToString())
        while True:
            data = await self._socket.recv(decode=False)
            if self._finished(ForwardMsg.FromString(data)):
                return

    def _finished(self, message: ForwardMsg) -> bool:
        """Take a message in; True for the last one of a run."""
        match message.WhichOneof("type"):
            case "new_session":
                self._page = message.new_session.page_script_hash
            case "delta":
                if message.metadata.cacheable:
                    self._known.add(message.hash)
                self._take(message.delta)
            case "script_finished":
                # a rerun that the script asked for itself ends the run early, and another one follows
                return message.script_finished != ForwardMsg.FINISHED_EARLY_FOR_RERUN
            case _:
                pass
        return False

    def _take(self, delta: Delta) -> None:
        element = delta.new_element
        match element.WhichOneof("type"):
            case "slider" if element.slider.label == SLIDER:
                self._slider, self._steps = element.slider.id, element.slider.options
            case "heading" if element.heading.tag == "h3":
                self.verdict = element.heading.body
            case "exception":
                self.faults.append(element.exception.message)
            case _:
                pass


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def served(port: int, **environment: str) -> Iterator[int]:
    """The page served on a port, in a process of its own; gives the process's number."""
    command = [sys.executable, "-m", "streamlit", "run", "app.py"]
    options = ["--server.address=localhost", f"--server.port={port}", "--client.showErrorDetails=full"]
    server = subprocess.Popen(
        [*command, *options],
        cwd=ROOT,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until_healthy(port, server=server)
        yield server.pid
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()


def wait_until_healthy(port: int, *, server: subprocess.Popen[bytes], below: str = "") -> None:
    """Return once a server answers.

    Args:
        below: the path it is served under.
    """
    deadline = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        try:
            with urlopen(f"http://localhost:{port}{below}/_stcore/health", timeout=1):
                return
        except (URLError, OSError):
            time.sleep(0.1)
    raise RuntimeError(f"the page was not served: exit status {server.poll()}")


def memory_of(process: int) -> int:
    """Resident bytes of a process."""
    resident = Path(f"/proc/{process}/statm").read_text("ascii").split()[1]
    return int(resident) * os.sysconf("SC_PAGE_SIZE")


def busy_seconds(process: int) -> float:
    """Seconds of processor time a process has used."""
    user, system = Path(f"/proc/{process}/stat").read_text("ascii").rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@dataclass
class Round:
    """What one round of load came to."""

    name: str
    sessions: int
    processes: int
    slowest_allowed: float = SLOWEST
    times: list[float] = field(default_factory=list)
    """Seconds of every rerun; of every first page where nobody moves a slider."""
    faults: list[str] = field(default_factory=list)
    memory: float = 0
    """Bytes of the largest process at the end."""
    growth: float = 0
    """Bytes per session, over a process that has served one."""
    cores: float = 0
    """Processors kept busy, all processes together."""
    each: float = 0
    """Seconds of processor time that the page takes for a rerun."""
    driver: float = 0
    """Processors this script itself keeps busy; the page has the rest."""

    @property
    def p95(self) -> float:
        return float(np.percentile(self.times, 95))

    @property
    def broken(self) -> list[str]:
        """Limits that do not hold, in words."""
        found = {
            f"95th percentile {self.p95 * 1000:.0f} ms": self.p95 > self.slowest_allowed,
            f"{len(self.faults)} faults, the first: {self.faults[:1]}": bool(self.faults),
            f"growth of {self.growth / MIB:.2f} MiB per session": self.growth > GROWTH,
            f"{self.memory / MIB:.0f} MiB in one process": self.memory > MEMORY,
        }
        return [words for words, is_so in found.items() if is_so]

    def __str__(self) -> str:
        middle, last = np.percentile(self.times, 50), max(self.times)
        return (
            f"{self.name:<22}{self.sessions:>9}{self.processes:>10}{len(self.times):>8}{middle * 1000:>9.0f}"
            f"{self.p95 * 1000:>9.0f}{last * 1000:>9.0f}{self.each * 1000:>9.0f}{self.cores:>7.2f}{self.driver:>8.2f}"
            f"{self.growth / MIB:>13.2f}{self.memory / MIB:>6.0f}{len(self.faults):>8}"
        )


HEAD = (
    f"{'round':<22}{'sessions':>9}{'processes':>10}{'reruns':>8}{'p50, ms':>9}{'p95, ms':>9}{'max, ms':>9}"
    f"{'CPU, ms':>9}{'cores':>7}{'driver':>8}{'MiB/session':>13}{'MiB':>6}{'faults':>8}"
)


async def opened(ports: Sequence[int], *, count: int) -> tuple[list[Session], list[float]]:
    """Sessions spread over the ports, five at a time, and the seconds each waited for its first page."""
    sessions = [Session(ports[number % len(ports)]) for number in range(count)]
    waited: list[float] = []
    for start in range(0, count, 5):
        waited += await asyncio.gather(*(session.open() for session in sessions[start : start + 5]))
    return sessions, waited


async def moved(session: Session, *, until: float) -> None:
    """Move a slider every period, without hurry after a slow answer."""
    await asyncio.sleep(random.random() * PERIOD)
    step = random.randrange(100)
    while (start := time.perf_counter()) < until:
        step += 1
        await session.move(step)
        await asyncio.sleep(max(0.0, start + PERIOD - time.perf_counter()))


async def played(found: Round, *, ports: Sequence[int], processes: Sequence[int], seconds: float) -> None:
    """Fill a round in: open all sessions, let them do what they do for a while, look at the processes."""
    (warm, *_), _ = await opened(ports, count=len(ports))
    await warm.move(1)
    before = [memory_of(process) for process in processes]
    sessions, waited = await opened(ports, count=found.sessions)
    busy = sum(busy_seconds(process) for process in processes)
    start, own = time.perf_counter(), time.process_time()
    if found.name == "only looking":
        await asyncio.sleep(seconds)
        await asyncio.gather(*(session.move(7) for session in sessions[:5]))
        found.times = waited
    else:
        await asyncio.gather(*(moved(session, until=start + seconds) for session in sessions))
        found.times = [taken for session in sessions for taken in session.times]
    busy, took = sum(map(busy_seconds, processes)) - busy, time.perf_counter() - start
    found.cores, found.driver = busy / took, (time.process_time() - own) / took
    found.each = busy / sum(len(session.times) for session in sessions)
    after = [memory_of(process) for process in processes]
    found.memory, found.growth = max(after), (sum(after) - sum(before)) / found.sessions
    found.faults = [fault for session in sessions for fault in session.faults]
    found.faults += ["no verdict" for session in sessions if not session.verdict]
    await asyncio.gather(*(session.close() for session in sessions))


def main(words: Sequence[str] | None = None) -> int:
    """Play the rounds and print the table; 1 when a limit is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=30, help=f"length of a round, {MOST_SECONDS} at most"
    )
    parser.add_argument("--only", type=int, choices=(1, 2, 3), help="play one of the three rounds")
    asked = parser.parse_args(words)
    seconds = min(asked.seconds, MOST_SECONDS)
    rounds: tuple[Round, ...] = (
        Round("a move every 2 s", PEOPLE, 1),
        Round("only looking", IDLE, 1, slowest_allowed=10),
        Round("a move every 2 s", 2 * PEOPLE, 2),
    )
    print(f"{os.cpu_count()} cores, load average before the start {os.getloadavg()[0]:.2f}\n\n{HEAD}")  # noqa: T201
    rounds = rounds[asked.only - 1 : asked.only] if asked.only else rounds
    for found in rounds:
        with ExitStack() as stack:
            ports = [free_port() for _ in range(found.processes)]
            processes = [stack.enter_context(served(port)) for port in ports]
            asyncio.run(played(found, ports=ports, processes=processes, seconds=seconds))
        print(found, flush=True)  # noqa: T201
    broken = [
        f"{found.name}, {found.sessions} sessions: {words}" for found in rounds for words in found.broken
    ]
    print("\n" + ("\n".join(broken) or "All limits hold."))  # noqa: T201
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
