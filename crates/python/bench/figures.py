"""Compares Python with the Rust client, and many files at once with one file at a time.

Both sides of a ratio are measured alternately in one run, with one server, and the medians of their
blocks are compared. Goals: 0.9 for reads of 1 MiB into numpy over shared memory, 5 for many files
over TCP.

    run bench [--reads 2000] [--files 1000] [--rounds 9]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import dafs
from dafs.fsspec import DafsFileSystem

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from conftest import Server, binary  # noqa: E402

MIB = 1 << 20


class Peer:
    """The Rust client, in a process of its own: it reads when it is told to, and says how long
    that took."""

    def __init__(self, socket: Path, path: str) -> None:
        program = Path(binary()).parent / "examples" / "read_blocks"
        command = [str(program), str(socket), path]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def read(self, how: str, count: int) -> float:
        """Seconds for so many reads of 1 MiB: ``slice``, ``lent`` or ``buffer``."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{how} {count}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def stop(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def reads(server: Server, count: int, rounds: int) -> None:
    straightly = dafs.connect(server.shm, own_memory="straight")
    with dafs.connect(server.shm) as session, straightly:
        content = os.urandom(16 * MIB)
        session.write_bytes("/large", content)
        peer = Peer(server.socket, "/large")
        own = np.zeros(MIB, np.uint8)
        registered = np.frombuffer(session.alloc(MIB), np.uint8)
        straight = straightly.open("/large", "rb", buffering=0)
        with session.open("/large", "rb", buffering=0) as file:

            def read(target: np.ndarray, file: dafs.RawFile = file) -> None:
                for index in range(count):
                    file.readinto_at(target, index % 16 * MIB)

            sides: dict[str, Callable[[], float]] = {
                "numpy": lambda: timed(lambda: read(own)),
                "numpy straight": lambda: timed(lambda: read(own, straight)),
                "rust lent": lambda: peer.read("lent", count),
                "rust slice": lambda: peer.read("slice", count),
                "numpy over alloc": lambda: timed(lambda: read(registered)),
                "rust buffer": lambda: peer.read("buffer", count),
            }
            taken: dict[str, list[float]] = {name: [] for name in sides}
            for side in sides.values():
                side()
            for _ in range(rounds):
                for name, side in sides.items():
                    taken[name].append(side() / count)
            last = (count - 1) % 16 * MIB
            assert own.tobytes() == registered.tobytes() == content[last : last + MIB]
            assert straightly.counters().copies == 0
        peer.stop()
        session.unlink("/large")
    medians = {name: statistics.median(seconds) for name, seconds in taken.items()}
    print("readinto of 1 MiB over shared memory, one at a time")
    for name, seconds in medians.items():
        print(f"  {name:18} {seconds * 1e6:8.1f} us  {MIB / seconds / 1e9:6.2f} GB/s")
    pairs = [
        ("numpy", "rust slice"),
        ("numpy straight", "rust lent"),
        ("numpy over alloc", "rust buffer"),
    ]
    for ours, theirs in pairs:
        print(f"  {ours} / {theirs}: {medians[theirs] / medians[ours]:.2f} x (aim 0.9)")


def files(server: Server, count: int, rounds: int) -> None:
    fs = DafsFileSystem(server.tcp, options={"transport": "tcp"}, skip_instance_cache=True)
    contents = {f"/small/{index}": os.urandom(4096) for index in range(count)}
    fs.pipe(contents)
    paths = list(contents)

    def one_by_one() -> None:
        for path in paths:
            fs.cat_file(path)

    assert fs.cat(paths) == contents
    sides = {"one by one": one_by_one, "at once": lambda: fs.cat(paths)}
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            taken[name].append(timed(side))
    medians = {name: statistics.median(seconds) for name, seconds in taken.items()}
    print(f"fsspec cat of {count} files of 4 KiB over TCP")
    for name, seconds in medians.items():
        print(f"  {name:18} {seconds * 1e3:8.1f} ms  {seconds / count * 1e6:6.1f} us each")
    print(f"  at once: {medians['one by one'] / medians['at once']:.1f} x (aim 5)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reads", type=int, default=2000)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dafs-") as directory:
        server = Server(Path(directory))
        reads(server, arguments.reads, arguments.rounds)
        files(server, arguments.files, arguments.rounds)
        server.stop()


main()
