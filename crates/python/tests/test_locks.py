"""Locks, checkpoints and fencing."""

from __future__ import annotations

import signal
import threading

import pytest

import dafs
from conftest import options_of


def test_a_lock_keeps_others_out(session: dafs.Session, directory: str) -> None:
    path = f"{directory}/x"
    session.write_bytes(path, bytes(100))
    with session.open(path, "r+b") as one, session.open(path, "r+b", buffering=0) as other:
        with one.lock(offset=10, length=10):
            with pytest.raises(dafs.Locked) as refused, other.lock(wait=False):
                pass
            assert refused.value.errno == 11 and isinstance(refused.value, BlockingIOError)
            holder = other.lock_holder(offset=0, length=11)
            assert holder is not None
            assert (holder.exclusive, holder.offset, holder.length) == (True, 10, 10)
            with other.lock(offset=20):
                pass
        with one.lock(exclusive=False), other.lock(exclusive=False, wait=False):
            pass
        assert other.lock_holder() is None
        # Who gives up waiting keeps its place in the queue for some seconds: it comes last.
        with one.lock():
            with pytest.raises(dafs.TimedOut) as late, other.lock(timeout=0.01):
                pass
            assert isinstance(late.value, TimeoutError)


def test_a_waiting_thread_gets_it(session: dafs.Session, directory: str) -> None:
    path = f"{directory}/x"
    session.write_bytes(path, b"0")
    threads = 4

    def count() -> None:
        with session.open(path, "r+b") as file:
            for _ in range(10):
                with file.lock():
                    file.seek(0)
                    value = int(file.read())
                    file.seek(0)
                    file.write(str(value + 1).encode())

    counting = [threading.Thread(target=count) for _ in range(threads)]
    for thread in counting:
        thread.start()
    for thread in counting:
        thread.join()
    assert session.read_bytes(path) == str(10 * threads).encode()


def test_a_checkpoint_is_all_or_nothing(session: dafs.Session, directory: str) -> None:
    path = f"{directory}/x"
    session.write_bytes(path, b"a" * 1000)
    with session.open(path, "r+b") as file:
        file.write(b"before")
        with pytest.raises(ZeroDivisionError), file.lock(autorecover=True):
            file.seek(100)
            file.write(b"b" * 300_000)
            file.write(b"c" * 10)
            1 / 0  # noqa: B018
        file.seek(0)
        assert file.read() == b"before" + b"a" * 994
        with file.lock(autorecover=True) as checkpoint:
            file.seek(0)
            file.write(b"first!")
            checkpoint.commit()
            file.seek(0)
            assert file.read(6) == b"first!"
        with file.lock(autorecover=True) as checkpoint:
            file.seek(0)
            file.write(b"second")
            checkpoint.rollback()
        file.seek(0)
        assert file.read(6) == b"first!"
    assert session.read_bytes(path) == b"first!" + b"a" * 994


def test_an_interrupted_checkpoint_is_rolled_back(session: dafs.Session, directory: str) -> None:
    path = f"{directory}/x"
    session.write_bytes(path, b"before")
    with session.open(path, "r+b") as file:
        with pytest.raises(KeyboardInterrupt), file.lock(autorecover=True):
            file.write(b"within")
            signal.raise_signal(signal.SIGINT)
    assert session.read_bytes(path) == b"before"


def test_fenced_clients_are_kept_out(url: str, directory: str) -> None:
    path = f"{directory}/x"
    options = options_of(url)
    with (
        dafs.connect(url, fence_id="one", **options) as one,
        dafs.connect(url, fence_id="two", **options) as two,
    ):
        one.write_bytes(path, b"shared")
        with two.open(path, "r+b", buffering=0) as file:
            assert one.fencing_list(path) == []
            one.fence(path, ["one"])
            assert one.fencing_list(path) == ["one"]
            with pytest.raises(PermissionError):
                file.write_at(b"fenced", 0)
            with pytest.raises(PermissionError):
                two.read_bytes(path)
            one.fence_allow(path, ["two"])
            assert sorted(one.fencing_list(path)) == ["one", "two"]
            assert two.read_bytes(path) == b"shared"
            one.fence_deny(path, ["two"])
            with pytest.raises(PermissionError):
                two.read_bytes(path)
            one.unfence(path)
            # Whatever the fence did to the open: the path is free.
            assert two.read_bytes(path) == b"shared"
