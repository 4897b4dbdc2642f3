"""Real servers: ``dafs serve`` on loopback and on a local socket.

``DAFS_BINARY`` names the program; by default it is the one that cargo has built.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import dafs

# A shell that starts jobs in the background has them ignore SIGINT, and Python leaves it so.
signal.signal(signal.SIGINT, signal.default_int_handler)


def binary() -> str:
    named = os.environ.get("DAFS_BINARY")
    if named:
        return named
    root = Path(__file__).resolve().parents[3]
    target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    for profile in ("release", "debug"):
        found = target / profile / "dafs"
        if found.exists():
            return str(found)
    raise RuntimeError("no dafs program: cargo build -p dafs-cli, or set DAFS_BINARY")


class Server:
    """A server of one directory. It stops with this program, however that ends."""

    def __init__(self, directory: Path, *arguments: str, memory: str | None = None) -> None:
        self.data = directory / "data"
        self.data.mkdir(parents=True, exist_ok=True)
        self.socket = directory / "socket"
        self._state = directory / "state"
        self._arguments = arguments
        # Of the directory, or of memory.
        self._served = ["--memory", memory] if memory else [str(self.data)]
        self.start(0)

    def start(self, port: int) -> None:
        command = [
            binary(), "serve", *self._served, "--tcp", f"127.0.0.1:{port}",
            "--socket", str(self.socket), "--state", str(self._state),
            "--cache", "64M", "--while-stdin",
            # Who comes over TCP is whoever runs this.
            "--anonymous", f"{os.getuid()}:{os.getgid()}", "--squash", "none", *self._arguments,
        ]  # fmt: skip
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        first = self.process.stdout.readline()
        found = re.search(r"tcp:127\.0\.0\.1:(\d+)", first)
        assert found, f"the server says {first!r}"
        self.port = int(found[1])

    @property
    def tcp(self) -> str:
        return f"dafs://127.0.0.1:{self.port}"

    @property
    def shm(self) -> str:
        return f"dafs+shm://{self.socket}!/"

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def restart(self) -> None:
        self.kill()
        self.start(self.port)

    def stop(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    # Sockets have short names: pytest's own directories may be too deep.
    with tempfile.TemporaryDirectory(prefix="dafs-") as directory:
        server = Server(Path(directory))
        yield server
        server.stop()


@pytest.fixture
def own_server() -> Iterator[Server]:
    """One that a test may kill."""
    with tempfile.TemporaryDirectory(prefix="dafs-") as directory:
        # After a restart those who have never been there wait for as long.
        server = Server(Path(directory), "--lease", "2")
        yield server
        server.stop()


@pytest.fixture(params=["shm", "tcp"])
def url(request: pytest.FixtureRequest, server: Server) -> str:
    return server.shm if request.param == "shm" else server.tcp


def options_of(url: str) -> dict[str, str]:
    return {"transport": "tcp"} if url.startswith("dafs://") else {}


@pytest.fixture
def session(url: str) -> Iterator[dafs.Session]:
    with dafs.connect(url, **options_of(url)) as session:
        yield session


@pytest.fixture
def directory(server: Server, request: pytest.FixtureRequest) -> Iterator[str]:
    """A directory of the test's own, as the server names it."""
    path = tempfile.mkdtemp(dir=server.data, prefix="test-")
    yield "/" + os.path.basename(path)
    subprocess.run(["rm", "-rf", path], check=True)
