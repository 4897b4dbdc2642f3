"""Files that block: a raw one, and buffered ones over it."""

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

#: Bytes of the buffer of a buffered file.
BUFFER_SIZE = 128 << 10


class RawFile(io.RawIOBase):
    """An open file without a buffer: each call asks the server.

    ``buffer`` may be any contiguous object with the buffer protocol, or a tensor of torch's on
    the processor.
    """

    def __init__(self, native: _dafs.File, mode: str, parsed: Mode) -> None:
        super().__init__()
        self._native = native
        self._mode = parsed
        self._position = 0
        #: What is written is forgotten: see :meth:`_Buffered.discard`.
        self._sinks = False
        self.mode = mode

    @property
    def name(self) -> str:
        """The path it was opened by."""
        return self._native.path

    def __repr__(self) -> str:
        return f"<dafs.RawFile {self.name!r} mode={self.mode!r}>"

    # ---- data -------------------------------------------------------------------------

    def readinto_at(self, buffer: Any, offset: int) -> int:
        """Reads into a buffer; fewer bytes than it has only at the end of the file."""
        self._check(1, "read")
        return self._native.read_into(buffer, offset).wait()  # type: ignore[no-any-return]

    def read_at(self, size: int, offset: int) -> bytes:
        """Reads so many bytes, fewer only at the end of the file."""
        self._check(1, "read")
        return self._native.read(size, offset).wait()  # type: ignore[no-any-return]

    def write_at(self, data: Any, offset: int) -> int:
        """Writes all of a buffer. :meth:`commit` makes it last."""
        self._check(2, "write")
        return self._native.write(data, offset).wait()  # type: ignore[no-any-return]

    def append(self, data: Any) -> int:
        """Appends all of it or nothing, as data that lasts. The offset it was put at."""
        self._check(2, "append")
        return self._native.append(data).wait()  # type: ignore[no-any-return]

    def commit(self) -> None:
        """Brings everything written to stable storage, or raises :class:`DataLost`."""
        self._native.commit().wait()

    def stat(self) -> Stat:
        """Attributes now."""
        return Stat(*self._native.stat().wait())

    def map(self) -> memoryview:
        """The file as memory to be read, as long as it is now.

        On the server's host, in a session with ``delegations=True``, it is mapped where the server
        hands the file over: it shows the local file, in which what other clients write appears when
        the server has written it back. Elsewhere it is a copy of what is there now.
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
        """Tells the server what is expected of a range: ``normal``, ``random``, ``sequential``,
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
        """Reads into a buffer at the position, which goes on by what was read."""
        count = self.readinto_at(buffer, self._position)
        self._position += count
        return count

    def read(self, size: int | None = -1) -> bytes:
        """Reads so many bytes at the position, fewer only at the end of the file; all that is
        left without a number."""
        if size is None or size < 0:
            return self.readall()
        data = self.read_at(size, self._position)
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        pieces: list[bytes] = []
        while True:
            left = self.stat().st_size - self._position
            # One more, so that the end is seen with it.
            data = self.read(max(left, 0) + 1)
            if not data:
                return b"".join(pieces) if len(pieces) != 1 else pieces[0]
            pieces.append(data)
            if len(data) <= left:
                return b"".join(pieces) if len(pieces) != 1 else pieces[0]

    def write(self, data: Any) -> int:
        """Writes all of a buffer at the position, or at the end in mode ``a``."""
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
        # Not to wait for a server while garbage is collected: the next call closes it.
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
        """A lock of a range, for ``with``. See :class:`Lock`."""
        options = lock_options(persist, autorecover, repair)
        end = TO_END if length is None else length
        return Lock(self, self, exclusive, offset, end, options, wait, timeout)

    def lock_holder(
        self, *, exclusive: bool = True, offset: int = 0, length: int | None = None
    ) -> LockHolder | None:
        """Whose lock would stand in the way of one."""
        end = TO_END if length is None else length
        return lock_holder(self._native.test_lock(exclusive, offset, end).wait())


class Lock:
    """A byte-range lock. Taken on entering, given back on leaving.

    With ``autorecover`` what is done under it is a checkpoint: it is committed when the block
    ends, and taken back as a whole if the block raises, or its program or its connection fails.
    With ``persist`` the lock breaks, instead of vanishing, when its holder fails.
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
        """Takes the lock. False if somebody has it and this is not to wait.

        :raises TimedOut: if the time is over.
        :raises Deadlock: if somebody whom it would wait for waits for it.
        """
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        pause = _PAUSE_MIN
        while not self._raw._native.lock(*self._what, self._wait).wait():
            if not self._wait:
                return False
            left = pause if deadline is None else min(pause, deadline - time.monotonic())
            if left <= 0:
                raise TimedOut(110, "the lock could not be had in time", self._raw.name)
            # The server keeps the place in its queue meanwhile; a signal ends the sleep.
            time.sleep(left)
            pause = min(pause * 2, _PAUSE_MAX)
        return True

    def release(self) -> None:
        """Gives the lock back: what was changed under it stays."""
        self._raw._native.unlock(*self._range).wait()

    def commit(self) -> None:
        """What was changed so far is on stable storage. The lock stays."""
        self._flush()
        if self._raw.writable():
            self._raw.commit()

    def _flush(self) -> None:
        if self._file is not self._raw and self._raw.writable():
            self._file.flush()

    def rollback(self) -> None:
        """Takes back what was changed under a lock with ``autorecover``. It stays held."""
        if self._file is not self._raw:
            self._file.discard()
        self._raw._native.abort_lock(*self._range).wait()

    def __enter__(self) -> Lock:
        # What was written before is not part of it.
        self._flush()
        if not self.acquire():
            raise Locked(11, "somebody else has locked the range", self._raw.name)
        if self._file is not self._raw:
            # What was read ahead may have been changed before the lock was had.
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
                # Half of a checkpoint is none.
                self.rollback()
            raise
        finally:
            self.release()


class _Buffered:
    """What a buffered file has besides the io module's."""

    raw: RawFile

    def readinto_at(self, buffer: Any, offset: int) -> int:
        """Reads into a buffer, past this file's own."""
        self._settle()
        return self.raw.readinto_at(buffer, offset)

    def write_at(self, data: Any, offset: int) -> int:
        """Writes all of a buffer, past this file's own."""
        self._settle()
        return self.raw.write_at(data, offset)

    def append(self, data: Any) -> int:
        self._settle()
        return self.raw.append(data)

    def commit(self) -> None:
        """Writes what is buffered, and brings everything to stable storage."""
        self._settle()
        self.raw.commit()

    def stat(self) -> Stat:
        self._settle()
        return self.raw.stat()

    def map(self) -> memoryview:
        """As :meth:`RawFile.map`, with what is buffered."""
        self._settle()
        return self.raw.map()

    def lock(self, **options: Any) -> Lock:
        """As :meth:`RawFile.lock`; what is buffered is written before it is given back."""
        lock = self.raw.lock(**options)
        lock._file = self
        return lock

    def lock_holder(self, **options: Any) -> LockHolder | None:
        return self.raw.lock_holder(**options)

    def discard(self) -> None:
        """Forgets what was written and is still buffered, and what was read ahead."""
        if self.raw.writable():
            self.raw._sinks = True
            try:
                self.flush()  # type: ignore[attr-defined]
            finally:
                self.raw._sinks = False
        self.forget()

    def forget(self) -> None:
        """Forgets what was read ahead."""
        if self.raw.readable():
            position = self.tell()  # type: ignore[attr-defined]
            self.seek(0, os.SEEK_END)  # type: ignore[attr-defined]
            self.seek(position)  # type: ignore[attr-defined]

    def _settle(self) -> None:
        if self.raw.writable():
            self.flush()  # type: ignore[attr-defined]

    def __del__(self) -> None:
        # As with a raw file; but what is buffered would be lost.
        if not self.closed and self.raw.writable():  # type: ignore[attr-defined]
            self.flush()  # type: ignore[attr-defined]


class BufferedReader(_Buffered, io.BufferedReader):  # type: ignore[misc]
    """A file open for reading, with a buffer."""


class BufferedWriter(_Buffered, io.BufferedWriter):  # type: ignore[misc]
    """A file open for writing, with a buffer."""


class BufferedRandom(_Buffered, io.BufferedRandom):  # type: ignore[misc]
    """A file open for both, with a buffer."""


def wrap(
    raw: RawFile,
    mode: Mode,
    buffering: int,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
) -> Any:
    """The file that ``open`` gives for a mode."""
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
#: Below the silence after which a server takes a waiter's place away.
_PAUSE_MAX = 0.2
