"""Signals, killed servers, full disks, forks and threads."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

import dafs
import dafs.aio
from conftest import Server, options_of


def places(server: Server) -> list[str]:
    return [server.shm, server.tcp]


@contextmanager
def interrupted(seconds: float) -> Iterator[None]:
    """Ctrl-C in a moment; of 0 seconds, when the timer is set."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_ctrl_c_ends_a_wait_and_not_the_session(own_server: Server) -> None:
    for url in places(own_server):
        with dafs.connect(url, **options_of(url)) as session:
            session.write_bytes("/x", b"x" * 100_000)
            with session.open("/x", "r+b", buffering=0) as file:
                own_server.process.send_signal(signal.SIGSTOP)
                buffer = np.zeros(100_000, np.uint8)
                with interrupted(0.05):
                    file.readinto_at(buffer, 0)
                with interrupted(0.05):
                    session.stat("/x")
                own_server.process.send_signal(signal.SIGCONT)
                assert file.readinto_at(buffer, 0) == 100_000
                assert buffer.tobytes() == b"x" * 100_000


def test_ctrl_c_ends_connecting_and_waiting_for_a_lock(own_server: Server) -> None:
    with dafs.connect(own_server.shm) as session:
        session.write_bytes("/x", b"")
        with session.open("/x", "r+b") as one, session.open("/x", "r+b") as other, one.lock():
            with interrupted(0.05), other.lock():
                pass
    own_server.process.send_signal(signal.SIGSTOP)
    with interrupted(0.05):
        dafs.connect(own_server.tcp, transport="tcp")
    own_server.process.send_signal(signal.SIGCONT)


def test_ctrl_c_ends_whatever_waits(own_server: Server) -> None:
    for url in places(own_server):
        with dafs.connect(url, **options_of(url)) as session:
            session.write_bytes("/x", b"x")
            session.symlink("x", f"/link-{session.address[:3]}")
            link = f"/link-{session.address[:3]}"
            with session.open("/x", "r+b", buffering=0) as file:
                calls: list[Callable[[], object]] = [
                    session.ping,
                    lambda: session.stat(link),
                    lambda: session.stat("/.."),
                    lambda: session.open(link, "rb"),
                    lambda: session.read_bytes(link),
                    lambda: session.open_unlinked("/"),
                    lambda: session.listdir("/"),
                    lambda: session.fencing_list("/x"),
                    lambda: session.batch().read_into(file, 0, bytearray(9)).run(),
                    lambda: file.hint("willneed"),
                    file.lock_holder,
                    file.commit,
                    file.stat,
                ]
                for call in calls:
                    # Whatever goes on unseen is over.
                    session.ping()
                    own_server.process.send_signal(signal.SIGSTOP)
                    with interrupted(0.02):
                        call()
                    own_server.process.send_signal(signal.SIGCONT)
                assert file.read_at(9, 0) == b"x"


def test_other_threads_go_on_while_one_waits(own_server: Server) -> None:
    for url in places(own_server):
        with dafs.connect(url, **options_of(url)) as session:
            session.write_bytes("/x", b"x")
            session.makedirs("/d", exist_ok=True)
            found: list[int] = []
            own_server.process.send_signal(signal.SIGSTOP)
            # `..` is understood by the client, name by name.
            finding = [
                threading.Thread(target=lambda: found.append(session.stat("/d/../x").st_size))
                for _ in range(3)
            ]
            for thread in finding:
                thread.start()
            # It looks at the client, which one that waits inside would keep until its end.
            for _ in range(200):
                assert session.describe()["credits"] > 0
            assert found == []
            own_server.process.send_signal(signal.SIGCONT)
            for thread in finding:
                thread.join()
            assert found == [1, 1, 1]


PROGRAM = """
import sys, dafs
with dafs.connect(sys.argv[1]) as session:
    print("ready", flush=True)
    sys.stdin.readline()
    print("begun", flush=True)
    session.stat("/x")
"""

PROGRAM_AIO = """
import asyncio, sys, dafs.aio
async def main():
    async with await dafs.aio.connect(sys.argv[1]) as session:
        print("ready", flush=True)
        sys.stdin.readline()
        print("begun", flush=True)
        await session.read_bytes("/x")
asyncio.run(main())
"""


@pytest.mark.parametrize("program", [PROGRAM, PROGRAM_AIO], ids=["blocking", "asyncio"])
def test_a_program_ends_by_ctrl_c(own_server: Server, program: str) -> None:
    with dafs.connect(own_server.shm) as session:
        session.write_bytes("/x", b"x" * 100_000)
    for url in places(own_server):
        running = subprocess.Popen(
            [sys.executable, "-c", program, url],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert running.stdin and running.stdout
        assert running.stdout.readline() == "ready\n"
        own_server.process.send_signal(signal.SIGSTOP)
        running.stdin.write("\n")
        running.stdin.flush()
        assert running.stdout.readline() == "begun\n"
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=60)
        own_server.process.send_signal(signal.SIGCONT)
        assert said.splitlines()[-1] == "KeyboardInterrupt", said
        assert running.returncode == -signal.SIGINT


def test_a_silent_server_is_given_up(own_server: Server) -> None:
    async def main(url: str) -> None:
        options = {"recovery": None, "answer_timeout": 0.3, **options_of(url)}
        session = await dafs.aio.connect(url, **options)
        own_server.process.send_signal(signal.SIGSTOP)
        with pytest.raises(dafs.ConnectionLost, match="no reply"):
            await session.ping()
        own_server.process.send_signal(signal.SIGCONT)

    for url in places(own_server):
        # Whoever has asked for nothing is owed nothing.
        session = dafs.connect(url, recovery=None, answer_timeout=0.3, **options_of(url))
        session.ping()
        own_server.process.send_signal(signal.SIGSTOP)
        with pytest.raises(dafs.ConnectionLost, match="no reply"):
            session.ping()
        own_server.process.send_signal(signal.SIGCONT)
        asyncio.run(main(url))


def test_ctrl_c_leaves_a_with_block_at_once(own_server: Server) -> None:
    for url in places(own_server):
        with interrupted(0), dafs.connect(url, **options_of(url)) as session:
            own_server.process.send_signal(signal.SIGSTOP)
            # Not before: a slow machine may take longer to connect.
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            session.ping()
        assert session.closed
        with pytest.raises(dafs.Closed):
            session.ping()
        own_server.process.send_signal(signal.SIGCONT)


def test_a_killed_server_under_asyncio(own_server: Server) -> None:
    async def main(url: str) -> None:
        async with await dafs.aio.connect(url, **options_of(url)) as session:
            async with await session.open("/x", "w+b") as file:
                await file.write(b"before", 0)
                await file.commit()
                own_server.kill()
                reading = asyncio.ensure_future(file.read(6, 0))
                await asyncio.sleep(0)
                own_server.start(own_server.port)
                assert await reading == b"before"
        options = {"recovery": None, **options_of(url)}
        session = await dafs.aio.connect(url, **options)
        own_server.kill()
        with pytest.raises(dafs.ConnectionLost):
            await session.read_bytes("/x")
        own_server.start(own_server.port)

    for url in places(own_server):
        asyncio.run(main(url))


HOLDER = """
import sys, dafs
session = dafs.connect(sys.argv[1])
file = session.open("/x", "r+b", buffering=0)
file.lock(persist=True).acquire()
print("held", flush=True)
sys.stdin.read()
"""


def test_a_broken_lock_is_not_one_that_is_held(own_server: Server) -> None:
    for url in places(own_server):
        with dafs.connect(url, **options_of(url)) as session:
            session.write_bytes("/x", b"x" * 10)
            holder = subprocess.Popen(
                [sys.executable, "-c", HOLDER, url],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            assert holder.stdin and holder.stdout
            assert holder.stdout.readline() == "held\n"
            with session.open("/x", "r+b", buffering=0) as file:
                with pytest.raises(dafs.Locked) as held, file.lock(wait=False):
                    pass
                assert not isinstance(held.value, dafs.LockBroken)
                holder.kill()
                holder.communicate()
                # When its lease is over.
                with pytest.raises(dafs.LockBroken) as broken, file.lock():
                    pass
                assert not isinstance(broken.value, dafs.Locked)
                assert (broken.value.errno, broken.value.status) == (11, "LockBroken")
                with file.lock(repair=True):
                    pass
                with file.lock(wait=False):
                    pass


def test_a_session_comes_back_when_the_server_does(own_server: Server) -> None:
    for url in places(own_server):
        with dafs.connect(url, **options_of(url)) as session:
            with session.open("/x", "w+b") as file:
                file.write(b"before")
                file.commit()
                own_server.restart()
                file.write(b" and behind")
                file.seek(0)
                assert file.read() == b"before and behind"
                file.commit()
            assert session.read_bytes("/x") == b"before and behind"


def test_a_killed_server_is_a_lost_connection(own_server: Server) -> None:
    for url in places(own_server):
        # Behind a restart of the server it waits until those who were there are back.
        with dafs.connect(url, **options_of(url)) as patient:
            patient.write_bytes("/y", b"")
        session = dafs.connect(url, recovery=None, **options_of(url))
        file = session.open("/x", "wb", buffering=0)
        file.write(b"x")
        own_server.kill()
        with pytest.raises(dafs.ConnectionLost) as lost:
            file.write(b"y" * 100_000)
        assert isinstance(lost.value, ConnectionError) and lost.value.errno == 104
        with pytest.raises(ConnectionResetError):
            session.stat("/x")
        with pytest.raises(dafs.ConnectFailed) as refused:
            dafs.connect(url, **options_of(url))
        assert isinstance(refused.value, ConnectionRefusedError)
        own_server.start(own_server.port)
        with dafs.connect(url, **options_of(url)) as again:
            assert again.exists("/x")


def test_a_file_system_of_fsspec_connects_anew(own_server: Server) -> None:
    from dafs.fsspec import DafsFileSystem

    for url in places(own_server):
        options = {"recovery": None, **options_of(url)}
        fs = DafsFileSystem(url, options=options, skip_instance_cache=True)
        fs.pipe_file("/x", b"here")
        with fs.open("/x") as file:
            assert file.read() == b"here"
        own_server.kill()
        with pytest.raises(ConnectionError):
            fs.cat_file("/x")
        with pytest.raises(ConnectionError):
            fs.open("/x")
        own_server.start(own_server.port)
        with dafs.connect(url, **options_of(url)) as session:
            # It waits until those who were there are back, or their time is over.
            session.open("/x", "r+b").close()
        assert fs.cat_file("/x") == b"here"
        with fs.open("/x") as file:
            assert file.read() == b"here"


def test_a_full_disk_is_enospc() -> None:
    with tempfile.TemporaryDirectory(prefix="dafs-") as directory:
        server = Server(Path(directory), memory="4M")
        for url in places(server):
            with dafs.connect(url, **options_of(url)) as session:
                file = session.open("/x", "wb", buffering=0)
                with pytest.raises(OSError) as full:
                    for at in range(0, 64 << 20, 1 << 20):
                        # That bytes of before were lost may be told ahead of why.
                        with suppress(dafs.DataLost):
                            file.write_at(bytes(1 << 20), at)
                assert full.value.errno == 28
                # What could not be kept of what was written is told once more.
                with suppress(OSError):
                    file.close()
                session.unlink("/x")
                session.write_bytes("/x", b"there is room again")
                session.unlink("/x")
        server.stop()


def test_threads_share_a_session(session: dafs.Session, directory: str) -> None:
    content = os.urandom(8 << 20)
    session.write_bytes(f"{directory}/x", content)
    failures: list[BaseException] = []

    def read(seed: int) -> None:
        try:
            random = np.random.default_rng(seed)
            target = np.zeros(1 << 20, np.uint8)
            with session.open(f"{directory}/x", "rb", buffering=0) as file:
                for _ in range(50):
                    offset = int(random.integers(0, len(content)))
                    count = file.readinto_at(target, offset)
                    assert target[:count].tobytes() == content[offset : offset + (1 << 20)]
                    session.stat(f"{directory}/x")
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_process_is_told_and_connects_anew(
    session: dafs.Session, url: str, directory: str
) -> None:
    session.write_bytes(f"{directory}/x", b"parent")
    file = session.open(f"{directory}/x", "rb", buffering=0)
    memory = session.alloc(100)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with pytest.raises(dafs.Forked):
                file.read(1)
            with pytest.raises(dafs.Forked):
                session.stat("/")
            del memory
            with dafs.connect(url, **options_of(url)) as own:
                assert own.read_bytes(f"{directory}/x") == b"parent"
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert file.read() == b"parent"
    file.close()


def test_a_closed_session_says_so(url: str, directory: str) -> None:
    session = dafs.connect(url, **options_of(url))
    file = session.open(f"{directory}/x", "wb", buffering=0)
    assert not session.closed
    session.close()
    session.close()
    assert session.closed
    with pytest.raises(dafs.Closed):
        session.stat("/")
    with pytest.raises(dafs.Closed):
        file.write(b"x")


def test_wrong_urls_and_options(server: Server) -> None:
    for url in ("http://x/", "dafs://:1/", "nothing"):
        with pytest.raises(ValueError):
            dafs.connect(url)
    with pytest.raises(ValueError):
        dafs.connect(server.tcp, transport="carrier pigeon")
    with pytest.raises(ValueError):
        dafs.connect(server.tcp, login="password")
    with pytest.raises(TypeError):
        dafs.connect(server.tcp, unknown=1)
    with pytest.raises(dafs.LoginFailed) as refused:
        dafs.connect(server.tcp, transport="tcp", user="nobody", password="wrong")
    assert isinstance(refused.value, PermissionError)
    # Port 1 is nobody's.
    with pytest.raises(dafs.ConnectFailed, match="dafs serve"):
        dafs.connect("dafs://127.0.0.1:1/")


def test_memory_is_bounded(session: dafs.Session) -> None:
    pieces = []
    with pytest.raises(OSError, match="fewer, larger"):
        while True:
            pieces.append(session.alloc(4096))
    session.ping()
    pieces.pop()
    pieces.append(session.alloc(4096))


# Its handler returns, so no call may fail or come back short (PEP 475), whatever becomes of the
# server meanwhile.
SIGNALLED = """
import select, signal, sys, dafs
url = sys.argv[1]
options = {"transport": "tcp"} if url.startswith("dafs://") else {}
signals = 0
def handler(number, frame):
    global signals
    signals += 1
signal.signal(signal.SIGALRM, handler)
session = dafs.connect(url, recovery=120.0, **options)
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
rounds = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    data = bytes([rounds % 251]) * 8192
    with session.open("/signalled", "w+b", buffering=0) as file:
        assert file.write(data) == len(data)
        file.commit()
        assert file.stat().st_size == len(data)
    assert session.stat("/signalled").st_size == len(data)
    assert session.read_bytes("/signalled") == data
    rounds += 1
    print(rounds, flush=True)
signal.setitimer(signal.ITIMER_REAL, 0)
assert signals > rounds / 100
print("end", flush=True)
"""


def test_signals_fail_no_call_while_the_server_comes_and_goes(own_server: Server) -> None:
    for url in places(own_server):
        running = subprocess.Popen(
            [sys.executable, "-c", SIGNALLED, url],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert running.stdin and running.stdout
        for _ in range(3):
            # It has done something since the last restart.
            assert running.stdout.readline().strip().isdecimal(), running.communicate()
            own_server.restart()
        said, errors = running.communicate("\n", timeout=240)
        assert running.returncode == 0 and said.endswith("end\n"), errors
