"""asyncio: much at once, on one thread."""

from __future__ import annotations

import asyncio
import os
import threading

import numpy as np
import pytest

import dafs
import dafs.aio
from conftest import options_of


def test_files_and_names(url: str, directory: str) -> None:
    async def main() -> None:
        async with await dafs.aio.connect(url, **options_of(url)) as session:
            await session.makedirs(f"{directory}/a/b")
            await session.makedirs(f"{directory}/a/b", exist_ok=True)
            content = os.urandom(1 << 20)
            async with await session.open(f"{directory}/a/x", "w+b") as file:
                assert await file.write(content, 0) == len(content)
                assert await file.append(b"end") == len(content)
                await file.commit()
                array = np.zeros(len(content) // 4, np.int32)
                assert await file.readinto(array, 0) == len(content)
                assert array.tobytes() == content
                assert await file.read(100, len(content)) == b"end"
                await file.truncate(10)
                assert (await file.stat()).st_size == 10
            assert file.closed
            await session.rename(f"{directory}/a/x", f"{directory}/a/y")
            await session.symlink("y", f"{directory}/a/l")
            assert await session.readlink(f"{directory}/a/l") == "y"
            assert await session.read_bytes(f"{directory}/a/l") == content[:10]
            assert sorted(await session.listdir(f"{directory}/a")) == ["b", "l", "y"]
            assert not await session.exists(f"{directory}/a/none")
            with pytest.raises(FileNotFoundError):
                await session.stat(f"{directory}/a/none")
            await session.set_attributes(f"{directory}/a/y", mode=0o600)
            assert (await session.stat(f"{directory}/a/y")).st_mode & 0o777 == 0o600
            assert (await session.statvfs(directory)).total > 0
            await session.remove(f"{directory}/a/l")
            assert session.counters().copies > 0

    asyncio.run(main())


def test_thousands_of_calls_at_once(url: str, directory: str) -> None:
    async def main() -> None:
        async with await dafs.aio.connect(url, **options_of(url)) as session:
            contents = {f"{directory}/{i}": os.urandom(i) for i in range(2000)}
            writing = (session.write_bytes(path, data) for path, data in contents.items())
            await asyncio.gather(*writing)
            paths = list(contents)
            assert await session.read_files(paths) == list(contents.values())
            reading = (session.read_bytes(path) for path in paths)
            assert await asyncio.gather(*reading) == list(contents.values())
            async with await session.open(paths[1999]) as file:
                pieces = await asyncio.gather(*(file.read(1, at) for at in range(1999)))
                assert b"".join(pieces) == contents[paths[1999]]
                # Each of them registers memory of its own.
                arrays = [np.zeros(dafs.STRAIGHT_MIN, np.uint8) for _ in range(2000)]
                counts = await asyncio.gather(*(file.readinto(array, 0) for array in arrays))
                assert counts == [1999] * 2000
                assert all(array[:1999].tobytes() == contents[paths[1999]] for array in arrays)

    asyncio.run(main())


def test_batches(url: str, directory: str) -> None:
    async def main() -> None:
        async with await dafs.aio.connect(url, **options_of(url)) as session:
            async with await session.open(f"{directory}/x", "w+b") as file:
                batch = session.batch()
                for at in range(300):
                    batch.write_from(file, at * 100, bytes([at % 256]) * 100)
                assert await batch.run() == [100] * 300
                memory = await session.alloc(30_000)
                assert await batch.read_into(file, 0, memory).run(0.001) == [30_000]
                view = memoryview(memory)
                assert all(view[at * 100] == at % 256 for at in range(300))

    asyncio.run(main())


def test_a_cancelled_call_leaves_the_session_in_order(url: str, directory: str) -> None:
    async def main() -> None:
        async with await dafs.aio.connect(url, **options_of(url)) as session:
            await session.write_bytes(f"{directory}/x", b"x" * 100_000)
            async with await session.open(f"{directory}/x") as file:
                for _ in range(50):
                    array = np.zeros(100_000, np.uint8)
                    reading = asyncio.ensure_future(file.readinto(array, 0))
                    await asyncio.sleep(0)
                    reading.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await reading
                assert await file.read(5, 0) == b"xxxxx"

    asyncio.run(main())


def test_locks(url: str, directory: str) -> None:
    async def main() -> None:
        path = f"{directory}/x"
        async with await dafs.aio.connect(url, **options_of(url)) as session:
            await session.write_bytes(path, b"before")
            one, other = [await session.open(path, "r+b") for _ in range(2)]
            order = []

            async def second() -> None:
                async with other.lock():
                    order.append("second")

            async with one.lock():
                waiting = asyncio.ensure_future(second())
                with pytest.raises(dafs.Locked):
                    async with other.lock(wait=False):
                        pass
                holder = await other.lock_holder()
                assert holder is not None and holder.exclusive and holder.length is None
                order.append("first")
            await waiting
            assert order == ["first", "second"]
            with pytest.raises(RuntimeError):
                async with one.lock(autorecover=True):
                    await one.write(b"within", 0)
                    raise RuntimeError
            assert await session.read_bytes(path) == b"before"
            async with one.lock(autorecover=True):
                await one.write(b"within", 0)
            assert await session.read_bytes(path) == b"within"

    asyncio.run(main())


def test_no_thread_is_involved(url: str, directory: str) -> None:
    async def main() -> None:
        async with await dafs.aio.connect(url, **options_of(url)) as session:
            before = threading.active_count()
            await session.write_bytes(f"{directory}/x", b"x")
            await asyncio.gather(*(session.read_bytes(f"{directory}/x") for _ in range(10)))
            assert threading.active_count() == before

    asyncio.run(main())


def test_a_session_belongs_to_its_loop(url: str) -> None:
    session = asyncio.run(dafs.aio.connect(url, **options_of(url)))
    with pytest.raises(RuntimeError):
        asyncio.run(session.ping())
