"""Blocking files: a raw file, and buffered files that use it."""

from __future__ import annotations

import io
import mmap
import os
import time
from types import TracebackType
from typing import Any

from . import _dafs
from ._errors import Locked, TimedOut
from ._types import TO_END, LockHolder, Mode, Stat, lock_holder, lock_options

#: The buffer size of buffered files in bytes.
BUFFER_SIZE = 128 << 10


class RawFile(io.RawIOBase):
    """An open file without a buffer: each call sends requests to the server.

    ``buffer`` may be any contiguous object with the buffer protocol, or a torch tensor in main
    memory.
    """

    def __init__(self, native: _dafs.File, mode: str, parsed: Mode) -> None:
        super().__init__()
        self._native = native
        self._mode = parsed
        self._position = 0
        #: If True, writes are discarded: see :meth:`_Buffered.discard`.
        self._sinks = False
        self.mode = mode

    @property
    def name(self) -> str:
        """The path by which it was opened."""
        return self._native.path

    def __repr__(self) -> str:
        return f"<dafs.RawFile {self.name!r} mode={self.mode!r}>"

    # ---- data -------------------------------------------------------------------------

    def readinto_at(self, buffer: Any, offset: int) -> int:
        """Reads into a buffer. Returns fewer bytes than it has only at the end of the file."""
        self._check(1, "read")
        return self._native.read_into(buffer, offset).wait()  # type: ignore[no-any-return]

    def read_at(self, size: int, offset: int) -> bytes:
        """Reads ``size`` bytes; fewer only at the end of the file."""
        self._check(1, "read")
        return self._native.read(size, offset).wait()  # type: ignore[no-any-return]

    def write_at(self, data: Any, offset: int) -> int:
        """Writes a whole buffer. :meth:`commit` makes the data durable."""
        self._check(2, "write")
        return self._native.write(data, offset).wait()  # type: ignore[no-any-return]

    def append(self, data: Any) -> int:
        """Appends data atomically and durably. Returns its offset."""
        self._check(2, "append")
        return self._native.append(data).wait()  # type: ignore[no-any-return]

    def commit(self) -> None:
        """Flushes all written data to stable storage, or raises :class:`DataLost`."""
        self._native.commit().wait()

    def stat(self) -> Stat:
        """Returns the current attributes."""
        return Stat(*self._native.stat().wait())

    def map(self) -> memoryview:
        """Returns the file as read-only memory, with its current length.

        On the server's host, in a session with ``delegations=True``, the local file is mapped if
        the server passes a descriptor. Writes by other clients then appear in the memory after the
        server has written them back. Elsewhere the memory is a copy of the current contents.
        """
        self._check(1, "map")
        descriptor = self._native.descriptor().wait()
        if descriptor is not None:
            try:
                if os.fstat(descriptor).st_size == 0:
                    return memoryview(b"")
                return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
            finally:
                os.close(descriptor)
        size = self.stat().st_size
        if size == 0:
            return memoryview(b"")
        copy = mmap.mmap(-1, size)
        length = self.readinto_at(copy, 0)
        return memoryview(copy).toreadonly()[:length]

    def hint(self, pattern: str, offset: int = 0, length: int = 0) -> None:
        """Tells the server how a range will be used: ``normal``, ``random``, ``sequential``,
        ``willneed`` or ``dontneed``."""
        self._native.hint(offset, length, pattern).wait()

    # ---- the io module's ----------------------------------------------------------------

    def readable(self) -> bool:
        return bool(self._mode.access & 1)

    def writable(self) -> bool:
        return bool(self._mode.access & 2)

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Reads into a buffer at the current position and advances it."""
        count = self.readinto_at(buffer, self._position)
        self._position += count
        return count

    def read(self, size: int | None = -1) -> bytes:
        """Reads ``size`` bytes at the current position; fewer only at the end of the file.
        Without a size, reads up to the end."""
        if size is None or size < 0:
            return self.readall()
        data = self.read_at(size, self._position)
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        pieces: list[bytes] = []
        while True:
            left = self.stat().st_size - self._position
            # One more byte, so that the same read detects the end.
            data = self.read(max(left, 0) + 1)
            if not data:
                return b"".join(pieces) if len(pieces) != 1 else pieces[0]
            pieces.append(data)
            if len(data) <= left:
                return b"".join(pieces) if len(pieces) != 1 else pieces[0]

    def write(self, data: Any) -> int:
        """Writes a whole buffer at the current position, or at the end in mode ``a``."""
        length = memoryview(data).nbytes
        if self._sinks:
            return length
        if self._mode.append:
            self._position = self.append(data) + length if length else self._position
            return length
        count = self.write_at(data, self._position)
        self._position += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._check(0, "seek")
        base = 0
        if whence == os.SEEK_CUR:
            base = self._position
        elif whence == os.SEEK_END:
            base = self.stat().st_size
        elif whence != os.SEEK_SET:
            raise ValueError(f"invalid whence: {whence}")
        if base + offset < 0:
            raise ValueError("negative seek position")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        self._check(0, "tell")
        return self._position

    def truncate(self, size: int | None = None) -> int:
        self._check(2, "truncate")
        size = self._position if size is None else size
        self._native.truncate(size).wait()
        return size

    def close(self) -> None:
        if self.closed:
            return
        try:
            super().close()
        finally:
            if not self._native.closed:
                self._native.close().wait()

    def __del__(self) -> None:
        # Do not wait for a server during garbage collection: the next call closes the file.
        pass

    def _check(self, access: int, what: str) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if access and not self._mode.access & access:
            raise io.UnsupportedOperation(f"{what}: the file is open with mode {self.mode!r}")

    # ---- locks ----------------------------------------------------------------------------

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
        """Returns a lock of a range, for use in ``with``. See :class:`Lock`."""
        options = lock_options(persist, autorecover, repair)
        end = TO_END if length is None else length
        return Lock(self, self, exclusive, offset, end, options, wait, timeout)

    def lock_holder(
        self, *, exclusive: bool = True, offset: int = 0, length: int | None = None
    ) -> LockHolder | None:
        """Returns the lock that would conflict with the given one, or ``None``."""
        end = TO_END if length is None else length
        return lock_holder(self._native.test_lock(exclusive, offset, end).wait())


class Lock:
    """A byte-range lock, taken on entering a ``with`` block and released on leaving it.

    With ``autorecover``, all changes under the lock are committed together when the block ends.
    They are rolled back together if the block raises, or if the program or its connection fails.
    With ``persist``, the lock becomes broken instead of being released if its holder fails.
    """

    def __init__(
        self,
        file: Any,
        raw: RawFile,
        exclusive: bool,
        offset: int,
        length: int,
        options: int,
        wait: bool,
        timeout: float | None,
    ) -> None:
        self._file, self._raw = file, raw
        self._what = (exclusive, offset, length, options)
        self._wait, self._timeout = wait, timeout

    @property
    def _range(self) -> tuple[int, int]:
        return self._what[1], self._what[2]

    @property
    def _recovers(self) -> bool:
        return bool(self._what[3] & 4)

    def acquire(self) -> bool:
        """Takes the lock. Returns False if another client holds it and ``wait`` is False.

        :raises TimedOut: if the timeout has passed.
        :raises Deadlock: if waiting would be a deadlock.
        """
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        pause = _PAUSE_MIN
        while not self._raw._native.lock(*self._what, self._wait).wait():
            if not self._wait:
                return False
            left = pause if deadline is None else min(pause, deadline - time.monotonic())
            if left <= 0:
                raise TimedOut(110, "the lock was not granted within the timeout", self._raw.name)
            # The server keeps the place in its queue meanwhile. A signal ends the sleep.
            time.sleep(left)
            pause = min(pause * 2, _PAUSE_MAX)
        return True

    def release(self) -> None:
        """Releases the lock. Changes made under it stay."""
        self._raw._native.unlock(*self._range).wait()

    def commit(self) -> None:
        """Flushes the changes made so far to stable storage. The lock stays held."""
        self._flush()
        if self._raw.writable():
            self._raw.commit()

    def _flush(self) -> None:
        if self._file is not self._raw and self._raw.writable():
            self._file.flush()

    def rollback(self) -> None:
        """Rolls back the changes under a lock with ``autorecover``. The lock stays held."""
        if self._file is not self._raw:
            self._file.discard()
        self._raw._native.abort_lock(*self._range).wait()

    def __enter__(self) -> Lock:
        # Earlier writes are not part of the changes under the lock.
        self._flush()
        if not self.acquire():
            raise Locked(11, "another client has locked the range", self._raw.name)
        if self._file is not self._raw:
            # Buffered data may have changed before the lock was granted.
            self._file.forget()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if not self._recovers:
                self._flush()
            elif kind is None:
                self.commit()
            else:
                self.rollback()
        except BaseException:
            if kind is None and self._recovers:
                # The changes must be committed as a whole.
                self.rollback()
            raise
        finally:
            self.release()


class _Buffered:
    """The methods of buffered files beyond those of the io module."""

    raw: RawFile

    def readinto_at(self, buffer: Any, offset: int) -> int:
        """Reads into ``buffer``, bypassing this file's own buffer."""
        self._settle()
        return self.raw.readinto_at(buffer, offset)

    def write_at(self, data: Any, offset: int) -> int:
        """Writes all of ``data``, bypassing this file's own buffer."""
        self._settle()
        return self.raw.write_at(data, offset)

    def append(self, data: Any) -> int:
        self._settle()
        return self.raw.append(data)

    def commit(self) -> None:
        """Writes buffered data, and flushes all written data to stable storage."""
        self._settle()
        self.raw.commit()

    def stat(self) -> Stat:
        self._settle()
        return self.raw.stat()

    def map(self) -> memoryview:
        """As :meth:`RawFile.map`, including buffered data."""
        self._settle()
        return self.raw.map()

    def lock(self, **options: Any) -> Lock:
        """As :meth:`RawFile.lock`. Buffered data is written before the lock is released."""
        lock = self.raw.lock(**options)
        lock._file = self
        return lock

    def lock_holder(self, **options: Any) -> LockHolder | None:
        return self.raw.lock_holder(**options)

    def discard(self) -> None:
        """Discards buffered writes and data that was read ahead."""
        if self.raw.writable():
            self.raw._sinks = True
            try:
                self.flush()  # type: ignore[attr-defined]
            finally:
                self.raw._sinks = False
        self.forget()

    def forget(self) -> None:
        """Discards data that was read ahead."""
        if self.raw.readable():
            position = self.tell()  # type: ignore[attr-defined]
            self.seek(0, os.SEEK_END)  # type: ignore[attr-defined]
            self.seek(position)  # type: ignore[attr-defined]

    def _settle(self) -> None:
        if self.raw.writable():
            self.flush()  # type: ignore[attr-defined]

    def __del__(self) -> None:
        # Unlike a raw file, flush first: buffered data would be lost.
        if not self.closed and self.raw.writable():  # type: ignore[attr-defined]
            self.flush()  # type: ignore[attr-defined]


class BufferedReader(_Buffered, io.BufferedReader):  # type: ignore[misc]
    """A file open for reading, with a buffer."""


class BufferedWriter(_Buffered, io.BufferedWriter):  # type: ignore[misc]
    """A file open for writing, with a buffer."""


class BufferedRandom(_Buffered, io.BufferedRandom):  # type: ignore[misc]
    """A file open for reading and writing, with a buffer."""


def wrap(
    raw: RawFile,
    mode: Mode,
    buffering: int,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
) -> Any:
    """Returns the file object of ``open`` for a mode."""
    if not mode.text and (encoding or errors or newline is not None):
        raise ValueError("binary mode takes no encoding, errors or newline")
    if buffering == 0:
        if mode.text:
            raise ValueError("can't have unbuffered text I/O")
        return raw
    size = buffering if buffering > 1 else BUFFER_SIZE
    if mode.access == 3:
        buffered: Any = BufferedRandom(raw, size)
    else:
        buffered = (BufferedReader if mode.access == 1 else BufferedWriter)(raw, size)
    if mode.append:
        buffered.seek(0, os.SEEK_END)
    if not mode.text:
        return buffered
    text = io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering=buffering == 1)
    text.mode = raw.mode  # type: ignore[misc]
    return text


_PAUSE_MIN = 0.001
#: Shorter than the time after which a server removes a silent waiter from its queue.
_PAUSE_MAX = 0.2
