"""What a careful user looks for: nothing leaks, everything is documented and typed, and what
crosses to another process arrives."""

from __future__ import annotations

import gc
import inspect
import multiprocessing
import os
import pickle
import subprocess
import sys
import tracemalloc
from pathlib import Path
from types import ModuleType

import fsspec
import numpy as np
import pytest

import dafs
import dafs.aio
import dafs.fsspec
from conftest import options_of
from dafs.fsspec import DafsFileSystem

MIB = 1 << 20


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_ten_thousand_opens_and_reads_leave_nothing(
    session: dafs.Session, directory: str
) -> None:
    path = f"{directory}/x"
    session.write_bytes(path, b"x" * 20_000)
    target = np.zeros(20_000, np.uint8)

    def use(count: int) -> None:
        for index in range(count):
            with session.open(path, "rb") as file:
                file.read(10)
                file.readinto_at(target, 0)
            if index % 10 == 0:
                session.stat(path)
                session.open(path, "rb", buffering=0)
                with pytest.raises(FileNotFoundError):
                    session.open(f"{path}-none", "rb")

    use(1000)
    gc.collect()
    tracemalloc.start()
    before, open_before, blocks = resident(), descriptors(), tracemalloc.get_traced_memory()[0]
    use(10_000)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - blocks
    tracemalloc.stop()
    assert grown < 100_000
    assert descriptors() == open_before
    # An object of 500 bytes that is kept by each would be 5 MB.
    assert resident() - before < 4 * MIB


def test_sessions_leave_nothing(url: str, directory: str) -> None:
    def use(count: int) -> None:
        for _ in range(count):
            with dafs.connect(url, **options_of(url)) as session:
                session.write_bytes(f"{directory}/x", b"x" * 100_000)
                file = session.open(f"{directory}/x", "rb", buffering=0)
                assert len(file.read()) == 100_000
                memory = session.alloc(MIB)
                assert file.readinto_at(memory, 0) == 100_000
            # Forgotten, and not left.
            dafs.connect(url, **options_of(url)).alloc(4096)

    use(10)
    gc.collect()
    open_before, before = descriptors(), resident()
    use(50)
    gc.collect()
    assert descriptors() <= open_before
    # Fifty times one MiB of registered memory would be more.
    assert resident() - before < 24 * MIB


def test_memory_outlives_the_session_that_made_it(url: str, directory: str) -> None:
    session = dafs.connect(url, **options_of(url))
    session.write_bytes(f"{directory}/x", b"x" * MIB)
    over = np.frombuffer(session.alloc(MIB), np.uint8)
    with session.open(f"{directory}/x", "rb", buffering=0) as file:
        assert file.readinto_at(over, 0) == MIB
    session.close()
    del session, file
    gc.collect()
    assert over.tobytes() == b"x" * MIB
    over[:] = 0


def test_an_owner_may_go_while_its_memory_is_read_into(
    session: dafs.Session, directory: str
) -> None:
    session.write_bytes(f"{directory}/x", b"x" * MIB)
    with session.open(f"{directory}/x", "rb", buffering=0) as file:
        lent = bytearray(MIB)
        reading = file._native.read_into(lent, 0)
        # It is kept as it is: nobody moves it, and the last one who has it is the call.
        with pytest.raises(BufferError):
            lent.extend(b"more")
        del lent
        gc.collect()
        assert reading.wait() == MIB
        # One that is never waited for keeps nothing.
        kept = bytearray(MIB)
        file._native.read_into(kept, 0)
        kept.extend(b"more")


def public(module: ModuleType) -> list[tuple[str, object]]:
    """What a module offers, and what its classes do."""
    found: list[tuple[str, object]] = [(module.__name__, module)]
    for name in module.__all__:
        item = getattr(module, name)
        if not (inspect.isclass(item) or inspect.isroutine(item)):
            continue
        found.append((f"{module.__name__}.{name}", item))
        if not inspect.isclass(item) or not item.__module__.startswith("dafs"):
            continue
        for member, value in vars(item).items():
            is_ours = inspect.isroutine(value) or isinstance(value, property)
            if is_ours and not member.startswith("_"):
                found.append((f"{module.__name__}.{name}.{member}", getattr(item, member)))
    return found


@pytest.mark.parametrize("module", [dafs, dafs.aio, dafs.fsspec], ids=lambda m: m.__name__)
def test_everything_public_is_documented(module: ModuleType) -> None:
    # As help() finds it: what a class overrides has its base's.
    assert [name for name, item in public(module) if not inspect.getdoc(item)] == []


def read_elsewhere(fs: DafsFileSystem, path: str) -> bytes:
    with fs.open(path, "rb") as file:
        return bytes(file.read()) + bytes(fs.cat_file(path))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_file_system_goes_to_other_processes(url: str, directory: str, method: str) -> None:
    fs = DafsFileSystem(url, options=options_of(url))
    path = f"{directory}/x"
    fs.pipe_file(path, b"here")
    again = pickle.loads(pickle.dumps(fs))
    assert again == fs and again.cat_file(path) == b"here"
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.starmap(read_elsewhere, [(fs, path)] * 4) == [b"herehere"] * 4


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_file_system_in_a_forked_process(url: str, directory: str) -> None:
    fs = DafsFileSystem(url, options=options_of(url))
    path = f"{directory}/x"
    fs.pipe_file(path, b"here")
    assert fs.ukey(path)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            # The file system of the parent says that it is the parent's.
            with pytest.raises((RuntimeError, dafs.Forked)):
                fs.cat_file(path)
            # One that has come by pickle, as a DataLoader's or dask's does, connects anew.
            assert pickle.loads(pickle.dumps(fs)).cat_file(path) == b"here"
            again = fsspec.filesystem("dafs", server=url, options=options_of(url))
            assert read_elsewhere(again, path) == b"herehere"
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert fs.cat_file(path) == b"here"


def test_what_cannot_be_pickled_says_so(session: dafs.Session, directory: str) -> None:
    with session.open(f"{directory}/x", "wb") as file:
        for item in (session, file, file.raw, session.alloc(10)):
            with pytest.raises(TypeError):
                pickle.dumps(item)


WARNED = """
import gc, sys, asyncio, dafs, dafs.aio, dafs.fsspec
url, path = sys.argv[1:]
with dafs.connect(url) as session:
    session.write_bytes(path, b"x" * 100)
    with session.open(path, "r+b") as file, file.lock():
        file.write(b"y")
    session.open(path).read()
async def main():
    async with await dafs.aio.connect(url) as session:
        async with await session.open(path) as file:
            assert await file.read(2, 0) == b"yx"
asyncio.run(main())
fs = dafs.fsspec.DafsFileSystem(url)
assert fs.cat_file(path)[:2] == b"yx"
gc.collect()
"""


def test_nothing_warns(url: str, directory: str) -> None:
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", WARNED, url, f"{directory}/x"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
