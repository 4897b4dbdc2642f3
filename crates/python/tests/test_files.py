"""Files: what the io module promises, straight into memory."""

from __future__ import annotations

import array
import ctypes
import io
import os
import pickle

import numpy as np
import pytest

import dafs
from conftest import Server, options_of

MIB = 1 << 20


def test_a_file_is_written_and_read_as_a_builtin_one(
    session: dafs.Session, directory: str, server: Server
) -> None:
    path = f"{directory}/text"
    with session.open(path, "w", encoding="utf-8") as file:
        file.write("one\ntwo\nthrée\n")
    with session.open(path, encoding="utf-8") as file:
        assert list(file) == ["one\n", "two\n", "thrée\n"]
    with session.open(path, "ab") as file:
        assert file.tell() == 15
        file.write(b"four\n")
    assert (server.data / path[1:]).read_bytes().endswith("thrée\nfour\n".encode())
    with session.open(path, "r+b") as file:
        file.seek(4)
        file.write(b"2wo")
        file.seek(0)
        assert file.readline() == b"one\n"
        assert file.readline() == b"2wo\n"
        file.truncate(8)
    assert session.read_bytes(path) == b"one\n2wo\n"


def test_modes_are_those_of_open(session: dafs.Session, directory: str) -> None:
    path = f"{directory}/modes"
    with session.open(path, "xb") as file:
        assert not file.readable() and file.writable() and file.seekable()
        with pytest.raises(io.UnsupportedOperation):
            file.read(1)
    with pytest.raises(FileExistsError):
        session.open(path, "xb")
    for mode in ("", "rw", "bt", "rbb", "q", "r+w"):
        with pytest.raises(ValueError):
            session.open(path, mode)
    with pytest.raises(ValueError):
        session.open(path, "rb", encoding="utf-8")
    raw = session.open(path, "rb", buffering=0)
    assert isinstance(raw, dafs.RawFile)
    with pytest.raises(io.UnsupportedOperation):
        raw.write(b"x")
    raw.close()
    raw.close()
    with pytest.raises(ValueError):
        raw.read(1)


@pytest.mark.parametrize("length", [0, 1, 4096, dafs.STRAIGHT_MIN, 3 * MIB + 7])
def test_any_buffer_is_read_into_and_written_from(
    session: dafs.Session, directory: str, length: int
) -> None:
    content = os.urandom(length)
    with session.open(f"{directory}/x", "w+b", buffering=0) as file:
        for source in (content, bytearray(content), np.frombuffer(content, np.uint8)):
            assert file.write_at(source, 5) == length
            bare = bytearray(length)
            assert file.readinto_at(bare, 5) == length
            assert bare == content
        rest = length // 4
        targets = [
            np.zeros(rest, np.float32),
            array.array("i", bytes(4 * rest)),
            (ctypes.c_char * (4 * rest))(),
            memoryview(bytearray(4 * rest)),
        ]
        for target in targets:
            assert file.readinto_at(target, 5) == 4 * rest
            assert bytes(memoryview(target).cast("B")) == content[: 4 * rest]
        # The end of the file.
        long = np.zeros(length + 100, np.uint8)
        assert file.readinto_at(long, 5) == length
        # What lies behind is anything: it was the transport's meanwhile.
        assert long[:length].tobytes() == content
        assert file.readinto_at(long, length + 5) == 0
        assert file.read_at(length + 100, 5) == content


def test_what_cannot_be_read_into_is_refused(session: dafs.Session, directory: str) -> None:
    with session.open(f"{directory}/x", "w+b", buffering=0) as file:
        file.write(b"0123456789" * 10)
        with pytest.raises(BufferError):
            file.readinto_at(b"immutable", 0)
        fixed = np.zeros(10, np.uint8)
        fixed.flags.writeable = False
        with pytest.raises((BufferError, ValueError)):
            file.readinto_at(fixed, 0)
        with pytest.raises((BufferError, ValueError)):
            file.readinto_at(np.zeros((10, 10), np.uint8)[:, 3], 0)
        with pytest.raises(TypeError):
            file.readinto_at("text", 0)
        with pytest.raises(OverflowError):
            file.readinto_at(bytearray(1), -1)


@pytest.mark.parametrize("own_memory", ["auto", "straight"])
def test_no_copy_is_made_where_none_is_promised(
    url: str, directory: str, own_memory: str
) -> None:
    content = os.urandom(4 * MIB)
    whole = len(content)
    with dafs.connect(url, own_memory=own_memory, **options_of(url)) as session:
        described = session.describe()
        assert described["registered"] in ("Mapped", "Network")
        # Where the kernel lets the server reach this process, which a test on one host may expect.
        assert described["other"] in ("ProcessVm", "Network")
        with session.open(f"{directory}/x", "w+b") as file:
            # Registered memory, whatever is meant for any other.
            before = session.counters()
            memory = session.alloc(whole)
            over = np.frombuffer(memory, np.uint8)
            over[:] = np.frombuffer(content, np.uint8)
            assert file.write_at(memory, 0) == whole
            over[:] = 0
            # A part of it, found by its address, however small.
            assert file.readinto_at(over[100:200], 50) == 100
            assert over[100:200].tobytes() == content[50:150]
            assert file.readinto_at(memory, 0) == whole
            assert bytes(over) == content
            between = session.counters()
            assert between.copies == before.copies
            assert between.straight_bytes - before.straight_bytes == 2 * whole + 100
            assert between.registrations == before.registrations
            # Any other.
            own = np.zeros(MIB, np.float32)
            assert file.write_at(own, 0) == whole
            assert file.write_at(content, 0) == whole
            assert file.readinto_at(own, 0) == whole
            assert own.tobytes() == content
            file.seek(0)
            # By the side door of the file's own buffer, as it is larger.
            assert file.readinto(own) == whole
            assert file.raw.read_at(MIB, 0) == content[:MIB]
            after = session.counters()
        moved = 4 * whole + MIB
        if own_memory == "straight" or described["other"] == "Network":
            assert after.copies == between.copies
            assert after.straight_bytes - between.straight_bytes == moved
            assert after.registrations - between.registrations == 5
        else:
            assert after.copied_bytes - between.copied_bytes == moved
            assert after.straight_bytes == between.straight_bytes


def test_copies_are_counted(session: dafs.Session, directory: str) -> None:
    with session.open(f"{directory}/x", "w+b", buffering=0) as file:
        file.write_at(bytes(100), 0)
        before = session.counters()
        file.readinto_at(bytearray(100), 0)
        after = session.counters()
    assert (after.copies, after.copied_bytes) == (before.copies + 1, before.copied_bytes + 100)


def test_memory_outlives_the_names_for_it(session: dafs.Session, directory: str) -> None:
    session.write_bytes(f"{directory}/x", b"a" * 70_000)
    view = memoryview(session.alloc(70_000))
    assert not any(view[:100])
    with session.open(f"{directory}/x", "rb", buffering=0) as file:
        assert file.readinto(view) == 70_000
    others = [session.alloc(70_000) for _ in range(10)]
    assert bytes(view) == b"a" * 70_000
    del others, view
    session.ping()


def test_appends_go_to_the_end_whoever_else_appends(
    session: dafs.Session, directory: str
) -> None:
    path = f"{directory}/log"
    with session.open(path, "ab", buffering=0) as one, session.open(path, "ab", 0) as other:
        assert [one.append(b"1" * 10), other.append(b"2" * 20_000)] == [0, 10]
        one.write(b"3")
        assert one.tell() == 20_011
    assert session.read_bytes(path) == b"1" * 10 + b"2" * 20_000 + b"3"


def test_small_files_whole(session: dafs.Session, directory: str) -> None:
    sizes = [0, 1, 2048, 2049, 65_535, 65_536, 65_537, 300_000]
    contents = {f"{directory}/{size}": os.urandom(size) for size in sizes}
    for path, content in contents.items():
        session.write_bytes(path, content)
        session.write_bytes(path, content)
        with pytest.raises(FileExistsError):
            session.write_bytes(path, content, exclusive=True)
    session.symlink("2048", f"{directory}/link")
    paths = [*contents, f"{directory}/link", f"{directory}/none", directory]
    *read, linked, missing, unreadable = session.read_files(paths)
    assert read == list(contents.values())
    assert linked == contents[f"{directory}/2048"]
    assert isinstance(missing, FileNotFoundError) and missing.filename == f"{directory}/none"
    assert isinstance(unreadable, IsADirectoryError)
    assert session.read_files([]) == []


def test_batches(session: dafs.Session, directory: str) -> None:
    content = os.urandom(64 * 4096)
    with session.open(f"{directory}/x", "w+b") as file:
        batch = session.batch()
        for at in range(0, len(content), 4096):
            batch.write_from(file, at, content[at : at + 4096])
        assert len(batch) == 64
        assert batch.run() == [4096] * 64
        target = np.zeros(len(content), np.uint8)
        memory = session.alloc(MIB)
        for window in (None, 0.001):
            batch.read_into(file, 0, target)
            for at in range(0, len(content), 4096):
                batch.read_into(file, at, memoryview(memory)[at : at + 4096])
            batch.read_into(file, len(content) - 10, bytearray(100))
            assert batch.run(window) == [len(content)] + [4096] * 64 + [10]
            assert target.tobytes() == content == bytes(memoryview(memory)[: len(content)])
            target[:] = 0
        assert session.batch().run() == []
    with pytest.raises(ValueError):
        session.batch().read_into(file, 0, target).run()


def test_unlinked_files(session: dafs.Session, directory: str) -> None:
    with session.open_unlinked(directory) as file:
        file.write(b"nowhere")
        assert file.read_at(100, 0) == b"nowhere"
        assert session.listdir(directory) == []


def test_share_reservations_and_keys(session: dafs.Session, directory: str) -> None:
    path = f"{directory}/x"
    with session.open(path, "wb", deny="w"):
        with pytest.raises(OSError) as refused:
            session.open(path, "ab")
        assert refused.value.status == "ShareDenied"  # type: ignore[attr-defined]
        session.open(path, "rb").close()
    with session.open(path, "rb", key=7):
        session.open(path, "rb", key=7).close()
        with pytest.raises(OSError) as refused:
            session.open(path, "rb", key=8)
        assert refused.value.status == "KeyMismatch"  # type: ignore[attr-defined]


def test_a_forgotten_file_is_closed_by_the_next_call(
    session: dafs.Session, directory: str
) -> None:
    path = f"{directory}/x"
    file = session.open(path, "wb", deny="rw")
    file.write(b"buffered")
    del file
    assert session.read_bytes(path) == b"buffered"


def test_delegations_keep_what_was_read(url: str, directory: str) -> None:
    with dafs.connect(url, delegations=True, **options_of(url)) as session:
        session.write_bytes(f"{directory}/x", b"kept" * 100)
        with session.open(f"{directory}/x", "rb", buffering=0) as file:
            assert {file.read_at(8, 4) for _ in range(10)} == {b"keptkept"}


def test_a_file_is_mapped_or_copied(url: str, server: Server, directory: str) -> None:
    local = f"{server.data}{directory}/x"
    with open(local, "wb") as file:
        file.write(b"content" * 1000)
    with dafs.connect(url, delegations=True, **options_of(url)) as session:
        session.write_bytes(f"{directory}/empty", b"")
        with session.open(f"{directory}/empty", "rb") as file:
            assert file.map() == b""
        with session.open(f"{directory}/x", "rb", buffering=0) as file:
            mapped = file.map()
        assert mapped == b"content" * 1000 and mapped.readonly
        # A mapping is the local file. At first a server may not have heard that it can call back.
        for number in range(100):
            with session.open(f"{directory}/x", "rb", buffering=0) as raw:
                mapped = raw.map()
            with open(local, "r+b") as file:
                file.write(bytes([number]))
            if mapped[0] == number:
                break
        assert url.startswith("dafs+shm") == (mapped[0] == number)


def test_stats_are_plain_values(session: dafs.Session, directory: str) -> None:
    session.write_bytes(f"{directory}/x", b"123")
    found = session.stat(f"{directory}/x")
    assert pickle.loads(pickle.dumps(found)) == found
    assert found.st_size == 3 and found.is_file() and found.st_mtime > 1e9


@pytest.mark.parametrize("mask", [0o077, 0o002])
def test_what_is_made_has_the_mode_that_the_umask_leaves(
    session: dafs.Session, server: Server, directory: str, mask: int
) -> None:
    before = os.umask(mask)
    try:
        session.write_bytes(f"{directory}/bytes", b"x")
        session.mkdir(f"{directory}/new")
        with session.open(f"{directory}/open", "w") as file:
            file.write("x")
    finally:
        os.umask(before)
    modes = [os.stat(f"{server.data}{directory}/{name}").st_mode & 0o7777
             for name in ("bytes", "open", "new")]
    assert modes == [0o666 & ~mask, 0o666 & ~mask, 0o777 & ~mask]
