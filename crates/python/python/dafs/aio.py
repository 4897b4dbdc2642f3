"""DAFS for asyncio: ``await dafs.aio.connect(url)``.

A session belongs to the event loop in which it was made. The loop watches the client's descriptor,
so no thread is involved. Calls run concurrently, and requests of several tasks in one iteration of
the loop are sent together.
"""

from __future__ import annotations

import asyncio
import functools
import os
import posixpath
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Unpack, overload

from . import _dafs
from ._errors import Locked, TimedOut
from ._types import (
    TO_END,
    ConnectOptions,
    Counters,
    DirEntry,
    LockHolder,
    Mode,
    Path,
    Stat,
    StatVfs,
    fspath,
    lock_holder,
    lock_options,
    open_arguments,
)

__all__ = ["Batch", "File", "Lock", "Session", "connect"]


async def connect(url: str, **options: Unpack[ConnectOptions]) -> Session:
    """Connects to the server of a URL, with the options of :func:`dafs.connect`."""
    loop = asyncio.get_running_loop()
    # Resolving a name blocks, and so does a login by Kerberos.
    connecting = functools.partial(_dafs.connect, url, **options)
    return Session(await loop.run_in_executor(None, connecting), loop)


class _Driver:
    """Drives a session from an event loop."""

    def __init__(self, native: _dafs.Session, loop: asyncio.AbstractEventLoop) -> None:
        self._native, self._loop = native, loop
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._fd: int | None = native.fileno()
        loop.add_reader(self._fd, self._drive)
        self._soon()

    def run(self, operation: _dafs.Operation) -> asyncio.Future[Any]:
        """Starts a call and returns a future of its result."""
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError("the session belongs to another event loop")
        number = self._native.start(operation)
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting[number] = future
        self._soon()
        return future

    def stop(self) -> None:
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            self._fd = None
        if self._timer is not None:
            self._timer.cancel()

    def _soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._drive)

    def _drive(self) -> None:
        self._is_due = False
        if self._fd is None:
            return
        ended, has_more, timer = self._native.drive()
        for number, is_done, value in ended:
            future = self._waiting.pop(number)
            # The caller has cancelled it; the call itself has ended normally.
            if future.cancelled():
                continue
            if is_done:
                future.set_result(value)
            else:
                future.set_exception(value)
        if has_more:
            self._soon()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if timer is not None:
            self._timer = self._loop.call_later(timer, self._drive)


class Session:
    """A session that belongs to an event loop, made by :func:`connect`."""

    def __init__(self, native: _dafs.Session, loop: asyncio.AbstractEventLoop) -> None:
        self._native = native
        self._driver = _Driver(native, loop)

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None and issubclass(kind, asyncio.CancelledError):
            # The task was cancelled, perhaps because the server is slow, so do not wait for it.
            self._leave()
        else:
            await self.close()

    def __repr__(self) -> str:
        return f"<dafs.aio.Session with {self._native.url}>"

    @property
    def url(self) -> str:
        """The URL of the session."""
        return self._native.url

    @property
    def root(self) -> str:
        """The path in the URL."""
        return self._native.root

    @property
    def lost(self) -> bool:
        """True if a call has found that the session has ended. Connect again."""
        return self._native.lost

    def counters(self) -> Counters:
        """Returns statistics of the transfers and copies so far."""
        return Counters(**self._native.counters())

    def describe(self) -> dict[str, Any]:
        """As :meth:`dafs.Session.describe`."""
        return self._native.describe()

    async def close(self) -> None:
        """Disconnects cleanly and closes open files."""
        await self._leave()

    def _leave(self) -> asyncio.Future[Any]:
        def end(left: asyncio.Future[Any]) -> None:
            self._driver.stop()
            if not left.cancelled():
                # Mark the exception as retrieved. A waiting task still gets it.
                left.exception()

        leaving = self._driver.run(self._native.close())
        leaving.add_done_callback(end)
        return leaving

    async def ping(self) -> None:
        """Sends an empty request, which renews the lease, and waits for its reply."""
        await self._driver.run(self._native.ping())

    # ---- files --------------------------------------------------------------------------

    async def open(
        self,
        path: Path,
        mode: str = "rb",
        *,
        permissions: int = 0o666,
        deny: str = "",
        key: int | None = None,
        keep_name: bool = False,
    ) -> File:
        """Opens a file. It has no position: each call takes an offset."""
        parsed = Mode.parse(mode)
        if parsed.text:
            raise ValueError("asyncio files are binary")
        arguments = open_arguments(parsed, permissions, deny, key, keep_name)
        native = await self._driver.run(
            self._native.open(fspath(path), parsed.access, **arguments)
        )
        return File(self, native)

    async def read_bytes(self, path: Path) -> bytes:
        """Reads a whole file, in one round trip if it is small."""
        (read,) = await self.read_files([path])
        if isinstance(read, BaseException):
            raise read
        return read

    async def read_files(self, paths: Iterable[Path]) -> list[bytes | OSError]:
        """Reads whole files, many concurrently. Returns the contents or the error of each."""
        return await self._driver.run(  # type: ignore[no-any-return]
            self._native.read_files([fspath(path) for path in paths])
        )

    async def write_bytes(
        self, path: Path, data: Any, *, permissions: int = 0o666, exclusive: bool = False
    ) -> None:
        """Creates a file with these bytes, or replaces the contents of an existing one."""
        await self._driver.run(
            self._native.write_file(fspath(path), data, permissions, exclusive)
        )

    async def alloc(self, length: int, *, zeroed: bool = True) -> _dafs.Memory:
        """Allocates registered memory, as :meth:`dafs.Session.alloc` does."""
        return await self._driver.run(self._native.alloc(length, zeroed))  # type: ignore[no-any-return]

    def batch(self) -> Batch:
        """Returns an empty batch."""
        return Batch(self)

    # ---- names and attributes -------------------------------------------------------------

    async def stat(self, path: Path, *, follow_symlinks: bool = True) -> Stat:
        """Returns the attributes of the object at a path."""
        return Stat(*await self._driver.run(self._native.stat(fspath(path), follow_symlinks)))

    async def exists(self, path: Path) -> bool:
        """True if there is an object at a path."""
        try:
            await self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    async def scandir(self, path: Path = "/") -> list[DirEntry]:
        """Returns the entries of a directory with their attributes."""
        directory = fspath(path)
        entries = await self._driver.run(self._native.list(directory))
        return [DirEntry(directory, *entry) for entry in entries]

    @overload
    async def listdir(self, path: str | os.PathLike[str] = ...) -> list[str]: ...
    @overload
    async def listdir(self, path: bytes | os.PathLike[bytes]) -> list[bytes]: ...

    async def listdir(self, path: Path = "/") -> list[str] | list[bytes]:
        """Returns the names in a directory, as ``bytes`` if the path is ``bytes``."""
        names = [entry.name for entry in await self.scandir(path)]
        if isinstance(os.fspath(path), bytes):
            return [os.fsencode(name) for name in names]
        return names

    async def mkdir(self, path: Path, mode: int = 0o777) -> None:
        """Creates a directory."""
        await self._driver.run(self._native.mkdir(fspath(path), mode))

    async def makedirs(self, path: Path, mode: int = 0o777, exist_ok: bool = False) -> None:
        """Creates a directory and its missing parents."""
        text = fspath(path)
        try:
            await self.mkdir(text, mode)
        except FileNotFoundError:
            await self.makedirs(posixpath.dirname(text.rstrip("/")), exist_ok=True)
            await self.makedirs(text, mode, exist_ok)
        except OSError:
            if not exist_ok or not (await self.stat(text)).is_dir():
                raise

    async def rename(self, source: Path, target: Path) -> None:
        """Renames an object. An existing object with the new name is replaced."""
        await self._driver.run(self._native.rename(fspath(source), fspath(target)))

    async def remove(self, path: Path) -> None:
        """Removes a file, a link or an empty directory."""
        await self._driver.run(self._native.remove(fspath(path)))

    async def rmtree(self, path: Path, *, depth: int | None = None) -> None:
        """Removes an object, and for a directory its contents, as far as possible, without
        following links. With ``depth``, at most that many levels of directories are entered;
        deeper directories are removed only if they are empty.

        The root of a server, of an export or of a mounted file system is not removed, nor are its
        contents.
        """
        await self._driver.run(self._native.remove_tree(fspath(path), depth))

    async def symlink(self, text: Path, path: Path) -> None:
        """Makes a symbolic link at ``path`` with the text ``text``."""
        await self._driver.run(self._native.symlink(os.fsdecode(text), fspath(path)))

    async def link(self, path: Path, new_path: Path) -> None:
        """Makes a hard link to the object at ``path``."""
        await self._driver.run(self._native.link(fspath(path), fspath(new_path)))

    @overload
    async def readlink(self, path: str | os.PathLike[str]) -> str: ...
    @overload
    async def readlink(self, path: bytes | os.PathLike[bytes]) -> bytes: ...

    async def readlink(self, path: Path) -> str | bytes:
        """Returns the text of a symbolic link, as ``bytes`` if the path is ``bytes``."""
        text: bytes = await self._driver.run(self._native.read_link(fspath(path)))
        return text if isinstance(os.fspath(path), bytes) else os.fsdecode(text)

    async def set_attributes(
        self, path: Path, *, follow_symlinks: bool = True, **wanted: Any
    ) -> None:
        """Sets ``mode``, ``size``, ``owner``, ``group``, ``atime`` and ``mtime`` (nanoseconds)."""
        setting = self._native.set_attributes(fspath(path), follow_symlinks, **wanted)
        await self._driver.run(setting)

    async def statvfs(self, path: Path = "/") -> StatVfs:
        """Returns information on the file system that contains a path."""
        return StatVfs(*await self._driver.run(self._native.space(fspath(path))))


class File:
    """An open file that belongs to an event loop."""

    def __init__(self, session: Session, native: _dafs.File) -> None:
        self._session, self._native = session, native
        self._run = session._driver.run

    async def __aenter__(self) -> File:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<dafs.aio.File {self.name!r}>"

    @property
    def name(self) -> str:
        """The path by which it was opened."""
        return self._native.path

    @property
    def closed(self) -> bool:
        """True if :meth:`close` was called."""
        return self._native.closed

    async def read(self, size: int, offset: int) -> bytes:
        """Reads ``size`` bytes; fewer only at the end of the file."""
        return await self._run(self._native.read(size, offset))  # type: ignore[no-any-return]

    async def readinto(self, buffer: Any, offset: int) -> int:
        """Reads into a buffer. Returns fewer bytes than it has only at the end of the file.

        The buffer must not be used until the read has ended, even if this call is cancelled."""
        return await self._run(self._native.read_into(buffer, offset))  # type: ignore[no-any-return]

    async def write(self, data: Any, offset: int) -> int:
        """Writes a whole buffer. :meth:`commit` makes the data durable."""
        return await self._run(self._native.write(data, offset))  # type: ignore[no-any-return]

    async def append(self, data: Any) -> int:
        """Appends data atomically and durably. Returns its offset."""
        return await self._run(self._native.append(data))  # type: ignore[no-any-return]

    async def commit(self) -> None:
        """Flushes all written data to stable storage."""
        await self._run(self._native.commit())

    async def stat(self) -> Stat:
        """Returns the current attributes."""
        return Stat(*await self._run(self._native.stat()))

    async def truncate(self, size: int) -> None:
        """Truncates or extends the file."""
        await self._run(self._native.truncate(size))

    async def close(self) -> None:
        """Closes the file after all operations on it have ended."""
        if not self.closed:
            await self._run(self._native.close())

    def lock(
        self,
        *,
        exclusive: bool = True,
        offset: int = 0,
        length: int | None = None,
        wait: bool = True,
        timeout: float | None = None,
        persist: bool = False,
        autorecover: bool = False,
        repair: bool = False,
    ) -> Lock:
        """Returns a lock of a range, for ``async with``. Otherwise as :meth:`dafs.RawFile.lock`."""
        end = TO_END if length is None else length
        options = lock_options(persist, autorecover, repair)
        return Lock(self, (exclusive, offset, end, options), wait, timeout)

    async def lock_holder(
        self, *, exclusive: bool = True, offset: int = 0, length: int | None = None
    ) -> LockHolder | None:
        """Returns the lock that would conflict with the given one, or ``None``."""
        end = TO_END if length is None else length
        return lock_holder(await self._run(self._native.test_lock(exclusive, offset, end)))


class Lock:
    """A byte-range lock for ``async with``. Otherwise as :class:`dafs.Lock`."""

    def __init__(
        self, file: File, what: tuple[bool, int, int, int], wait: bool, timeout: float | None
    ) -> None:
        self._file, self._what, self._wait, self._timeout = file, what, wait, timeout

    async def __aenter__(self) -> Lock:
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        pause = 0.001
        native, run = self._file._native, self._file._run
        while not await run(native.lock(*self._what, self._wait)):
            if not self._wait:
                raise Locked(11, "another client has locked the range", self._file.name)
            left = pause if deadline is None else min(pause, deadline - time.monotonic())
            if left <= 0:
                raise TimedOut(110, "the lock was not granted within the timeout", self._file.name)
            await asyncio.sleep(left)
            pause = min(pause * 2, 0.2)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        recovers = bool(self._what[3] & 4)
        try:
            if recovers and kind is None:
                await self._file.commit()
            elif recovers:
                await self.rollback()
        except BaseException:
            if recovers and kind is None:
                await self.rollback()
            raise
        finally:
            await self._file._run(self._file._native.unlock(*self._what[1:3]))

    async def rollback(self) -> None:
        """Rolls back the changes under a lock with ``autorecover``. The lock stays held."""
        await self._file._run(self._file._native.abort_lock(*self._what[1:3]))


class Batch:
    """As :class:`dafs.Batch`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._requests: list[tuple[Any, int, Any, bool]] = []

    def __len__(self) -> int:
        return len(self._requests)

    def read_into(self, file: File, offset: int, buffer: Any) -> Batch:
        """Adds a read."""
        self._requests.append((file._native, offset, buffer, False))
        return self

    def write_from(self, file: File, offset: int, data: Any) -> Batch:
        """Adds a write."""
        self._requests.append((file._native, offset, data, True))
        return self

    async def run(self, window: float | None = None) -> list[int | OSError]:
        """Runs all requests. Returns the bytes that each transferred, or its error."""
        requests, self._requests = self._requests, []
        return await self._session._driver.run(  # type: ignore[no-any-return]
            self._session._native.batch(requests, window)
        )
