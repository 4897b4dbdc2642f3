"""Blocking sessions, which threads may share."""

from __future__ import annotations

import io
import os
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Literal, overload

from . import _dafs
from ._file import BufferedRandom, BufferedReader, BufferedWriter, RawFile, wrap
from ._types import Counters, DirEntry, Mode, Path, Stat, StatVfs, fspath, open_arguments

TextMode = Literal[
    "r", "w", "x", "a", "r+", "w+", "x+", "a+", "rt", "wt", "xt", "at", "r+t", "w+t", "a+t", "rt+"
]
ReadMode = Literal["rb", "br"]
WriteMode = Literal["wb", "bw", "xb", "bx", "ab", "ba"]
UpdateMode = Literal["r+b", "rb+", "w+b", "wb+", "x+b", "xb+", "a+b", "ab+"]


class Session:
    """A session with a server, made by :func:`dafs.connect`.

    It ends with :meth:`close` or with a ``with`` block. A session that loses its connection
    reconnects automatically; calls only take longer.
    """

    def __init__(self, native: _dafs.Session) -> None:
        self._native = native

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            # The user interrupted the program, so do not wait for the server's reply.
            self._native.close().begin()
        else:
            self.close()

    def __repr__(self) -> str:
        return f"<dafs.Session with {self._native.url}>"

    @property
    def url(self) -> str:
        """The URL of the session."""
        return self._native.url

    @property
    def root(self) -> str:
        """The path in the URL."""
        return self._native.root

    @property
    def address(self) -> str:
        """The transport address in use."""
        return self._native.address

    @property
    def closed(self) -> bool:
        """True if :meth:`close` was called."""
        return self._native.closed

    @property
    def lost(self) -> bool:
        """True if a call has found that the session has ended. Connect again."""
        return self._native.lost

    def close(self) -> None:
        """Disconnects cleanly and closes open files."""
        self._native.close().wait()

    def ping(self) -> None:
        """Sends an empty request and waits for its reply."""
        self._native.ping().wait()

    def describe(self) -> dict[str, Any]:
        """Returns the credits, and how the server accesses registered memory and other memory:
        ``Mapped``, ``ProcessVm``, ``Network`` (without a copy), or ``Staged`` (with a copy)."""
        return self._native.describe()

    def counters(self) -> Counters:
        """Returns statistics of the transfers and copies so far."""
        return Counters(**self._native.counters())

    # ---- files --------------------------------------------------------------------------

    @overload
    def open(
        self,
        path: Path,
        mode: str,
        buffering: Literal[0],
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        permissions: int = ...,
        deny: str = ...,
        key: int | None = ...,
        keep_name: bool = ...,
    ) -> RawFile: ...

    @overload
    def open(
        self,
        path: Path,
        mode: TextMode = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        permissions: int = ...,
        deny: str = ...,
        key: int | None = ...,
        keep_name: bool = ...,
    ) -> io.TextIOWrapper: ...

    @overload
    def open(
        self,
        path: Path,
        mode: ReadMode,
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        permissions: int = ...,
        deny: str = ...,
        key: int | None = ...,
        keep_name: bool = ...,
    ) -> BufferedReader: ...

    @overload
    def open(
        self,
        path: Path,
        mode: WriteMode,
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        permissions: int = ...,
        deny: str = ...,
        key: int | None = ...,
        keep_name: bool = ...,
    ) -> BufferedWriter: ...

    @overload
    def open(
        self,
        path: Path,
        mode: UpdateMode,
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        permissions: int = ...,
        deny: str = ...,
        key: int | None = ...,
        keep_name: bool = ...,
    ) -> BufferedRandom: ...

    @overload
    def open(
        self,
        path: Path,
        mode: str,
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        permissions: int = ...,
        deny: str = ...,
        key: int | None = ...,
        keep_name: bool = ...,
    ) -> Any: ...

    def open(
        self,
        path: Path,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        permissions: int = 0o666,
        deny: str = "",
        key: int | None = None,
        keep_name: bool = False,
    ) -> Any:
        """Opens a file like the builtin ``open``; ``buffering=0`` returns a :class:`RawFile`.

        ``deny`` (``"r"``, ``"w"``, ``"rw"``) is the access that it denies to other opens;
        ``key`` is a key that all opens must give; with ``keep_name`` the name cannot be removed
        while the file is open.
        """
        parsed = Mode.parse(mode)
        arguments = open_arguments(parsed, permissions, deny, key, keep_name)
        opening = self._native.open(fspath(path), parsed.access, **arguments)
        raw = RawFile(opening.wait(), mode, parsed)
        try:
            return wrap(raw, parsed, buffering, encoding, errors, newline)
        except BaseException:
            raw.close()
            raise

    def open_unlinked(self, directory: Path = "/", *, permissions: int = 0o600) -> RawFile:
        """Creates a file without a name, which exists as long as it is open."""
        native = self._native.open_unlinked(fspath(directory), permissions).wait()
        return RawFile(native, "w+b", Mode.parse("w+b"))

    def read_bytes(self, path: Path) -> bytes:
        """Reads a whole file, in one round trip if it is small."""
        (read,) = self.read_files([path])
        if isinstance(read, BaseException):
            raise read
        return read

    def read_files(self, paths: Iterable[Path]) -> list[bytes | OSError]:
        """Reads whole files, many concurrently. Returns the contents or the error of each."""
        return self._native.read_files([fspath(path) for path in paths]).wait()  # type: ignore[no-any-return]

    def write_bytes(
        self, path: Path, data: Any, *, permissions: int = 0o666, exclusive: bool = False
    ) -> None:
        """Creates a file with these bytes, or replaces the contents of an existing one."""
        self._native.write_file(fspath(path), data, permissions, exclusive).wait()

    def alloc(self, length: int, *, zeroed: bool = True) -> _dafs.Memory:
        """Allocates registered memory, which supports the buffer protocol. Servers on this host
        and RDMA devices access it directly.

        Without ``zeroed``, it contains data of an earlier use in this session."""
        return self._native.alloc(length, zeroed).wait()  # type: ignore[no-any-return]

    def batch(self) -> Batch:
        """Returns an empty batch."""
        return Batch(self)

    # ---- names and attributes -------------------------------------------------------------

    def stat(self, path: Path, *, follow_symlinks: bool = True) -> Stat:
        """Returns the attributes of the object at a path."""
        return Stat(*self._native.stat(fspath(path), follow_symlinks).wait())

    def lstat(self, path: Path) -> Stat:
        """Returns the attributes of the object at a path, without following a symbolic link."""
        return self.stat(path, follow_symlinks=False)

    def exists(self, path: Path) -> bool:
        """True if there is an object at a path."""
        return self._kind(path) is not None

    def is_file(self, path: Path) -> bool:
        """True if there is a regular file at a path."""
        found = self._kind(path)
        return found is not None and found.is_file()

    def is_dir(self, path: Path) -> bool:
        """True if there is a directory at a path."""
        found = self._kind(path)
        return found is not None and found.is_dir()

    def _kind(self, path: Path) -> Stat | None:
        try:
            return self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def scandir(self, path: Path = "/") -> list[DirEntry]:
        """Returns the entries of a directory with their attributes. Names are ``str``."""
        directory = fspath(path)
        return [DirEntry(directory, *entry) for entry in self._native.list(directory).wait()]

    @overload
    def listdir(self, path: str | os.PathLike[str] = ...) -> list[str]: ...
    @overload
    def listdir(self, path: bytes | os.PathLike[bytes]) -> list[bytes]: ...

    def listdir(self, path: Path = "/") -> list[str] | list[bytes]:
        """Returns the names in a directory, as ``bytes`` if the path is ``bytes``."""
        names = [entry.name for entry in self.scandir(path)]
        if isinstance(os.fspath(path), bytes):
            return [os.fsencode(name) for name in names]
        return names

    def walk(self, top: Path = "/") -> Iterator[tuple[str, list[str], list[str]]]:
        """As ``os.walk``, from the top down. Symbolic links are not followed."""
        entries = self.scandir(top)
        directories = [entry.name for entry in entries if entry.is_dir()]
        yield fspath(top), directories, [entry.name for entry in entries if not entry.is_dir()]
        for name in directories:
            yield from self.walk(posixpath.join(fspath(top), name))

    def mkdir(self, path: Path, mode: int = 0o777) -> None:
        """Creates a directory."""
        self._native.mkdir(fspath(path), mode).wait()

    def makedirs(self, path: Path, mode: int = 0o777, exist_ok: bool = False) -> None:
        """Creates a directory and its missing parents."""
        text = fspath(path)
        try:
            self.mkdir(text, mode)
        except FileNotFoundError:
            self.makedirs(posixpath.dirname(text.rstrip("/")), exist_ok=True)
            self.mkdir(text, mode)
        except OSError:
            if not exist_ok or not self.is_dir(text):
                raise

    def rename(self, source: Path, target: Path) -> None:
        """Renames an object. An existing object with the new name is replaced."""
        self._native.rename(fspath(source), fspath(target)).wait()

    replace = rename

    def unlink(self, path: Path) -> None:
        """Removes a name of an object that is not a directory."""
        text = fspath(path)
        if self.lstat(text).is_dir():
            raise IsADirectoryError(21, os.strerror(21), text)
        self._native.remove(text).wait()

    remove = unlink

    def rmdir(self, path: Path) -> None:
        """Removes an empty directory."""
        text = fspath(path)
        if not self.lstat(text).is_dir():
            raise NotADirectoryError(20, os.strerror(20), text)
        self._native.remove(text).wait()

    def rmtree(self, path: Path) -> None:
        """Removes a directory with its contents, as far as possible, without following links.

        The root of a server, of an export or of a mounted file system is not removed, nor are its
        contents.
        """
        text = fspath(path)
        if not self.lstat(text).is_dir():
            raise NotADirectoryError(20, os.strerror(20), text)
        self._native.remove_tree(text).wait()

    def symlink(self, text: Path, path: Path) -> None:
        """Makes a symbolic link at ``path`` with the text ``text``."""
        self._native.symlink(os.fsdecode(text), fspath(path)).wait()

    def link(self, path: Path, new_path: Path) -> None:
        """Makes a hard link to the object at ``path``."""
        self._native.link(fspath(path), fspath(new_path)).wait()

    @overload
    def readlink(self, path: str | os.PathLike[str]) -> str: ...
    @overload
    def readlink(self, path: bytes | os.PathLike[bytes]) -> bytes: ...

    def readlink(self, path: Path) -> str | bytes:
        """Returns the text of a symbolic link, as ``bytes`` if the path is ``bytes``."""
        text: bytes = self._native.read_link(fspath(path)).wait()
        return text if isinstance(os.fspath(path), bytes) else os.fsdecode(text)

    def chmod(self, path: Path, mode: int, *, follow_symlinks: bool = True) -> None:
        """Sets the permissions."""
        self._set(path, follow_symlinks, mode=mode & 0o7777)

    def chown(
        self,
        path: Path,
        owner: int | str | None = None,
        group: int | str | None = None,
        *,
        follow_symlinks: bool = True,
    ) -> None:
        """Sets the owner, the group or both. They are numbers or names that the server knows."""
        named = {
            "owner": None if owner in (None, -1) else str(owner),
            "group": None if group in (None, -1) else str(group),
        }
        self._set(path, follow_symlinks, **named)

    def utime(
        self,
        path: Path,
        times: tuple[float, float] | None = None,
        *,
        ns: tuple[int, int] | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        """Sets the times of access and modification, in seconds or nanoseconds since 1970."""
        if ns is None:
            if times is None:
                raise ValueError("give times or ns")
            ns = (round(times[0] * 1e9), round(times[1] * 1e9))
        self._set(path, follow_symlinks, atime=ns[0], mtime=ns[1])

    def truncate(self, path: Path, length: int) -> None:
        """Truncates or extends a file."""
        self._set(path, True, size=length)

    def _set(self, path: Path, follow: bool, **wanted: Any) -> None:
        self._native.set_attributes(fspath(path), follow, **wanted).wait()

    def access(self, path: Path, mode: int) -> bool:
        """True if this session has the permissions ``os.R_OK``, ``os.W_OK`` and ``os.X_OK`` in
        ``mode``; with ``os.F_OK``, if the object exists."""
        if not self.exists(path):
            return False
        wanted = (mode & os.R_OK and 1) | (mode & os.W_OK and 4)
        if mode & os.X_OK:
            wanted |= 2 if self.is_dir(path) else 0x20
        return self._native.access(fspath(path), wanted).wait() & wanted == wanted  # type: ignore[no-any-return]

    def statvfs(self, path: Path = "/") -> StatVfs:
        """Returns information on the file system that contains a path."""
        return StatVfs(*self._native.space(fspath(path)).wait())

    # ---- fencing ----------------------------------------------------------------------------

    def fence(
        self, path: Path, fence_ids: Sequence[str], *, file_system: bool = False
    ) -> None:
        """Lets only these fence identities access a file or the file system that contains it.
        When it returns, all requests in flight of other clients have ended."""
        self._fence(path, file_system, False, "overwrite", fence_ids)

    def unfence(self, path: Path, *, file_system: bool = False) -> None:
        """Removes the fence, so that all clients may access the object again."""
        self._fence(path, file_system, False, "overwrite", [])

    def fence_allow(
        self, path: Path, fence_ids: Sequence[str], *, file_system: bool = False
    ) -> None:
        """Adds identities to the list."""
        self._fence(path, file_system, False, "append", fence_ids)

    def fence_deny(
        self, path: Path, fence_ids: Sequence[str], *, file_system: bool = False
    ) -> None:
        """Removes identities from the list."""
        self._fence(path, file_system, True, "remove", fence_ids)

    def _fence(
        self, path: Path, file_system: bool, deny: bool, update: str, ids: Sequence[str]
    ) -> None:
        self._native.set_fence(fspath(path), file_system, deny, update, list(ids)).wait()

    def fencing_list(self, path: Path, *, file_system: bool = False) -> list[str]:
        """Returns the fence identities that may access it. If there are none, all clients may."""
        return self._native.fencing_list(fspath(path), file_system).wait()  # type: ignore[no-any-return]


class Batch:
    """Reads and writes that are sent in a few messages and reported together.

    They have no order among each other. Written data is on stable storage when it is reported.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._requests: list[tuple[Any, int, Any, bool]] = []

    def __len__(self) -> int:
        return len(self._requests)

    def read_into(self, file: Any, offset: int, buffer: Any) -> Batch:
        """Adds a read."""
        self._requests.append((native_of(file), offset, buffer, False))
        return self

    def write_from(self, file: Any, offset: int, data: Any) -> Batch:
        """Adds a write."""
        self._requests.append((native_of(file), offset, data, True))
        return self

    def run(self, window: float | None = None) -> list[int | OSError]:
        """Runs all requests and waits. Returns the bytes that each transferred, or its error.

        With ``window``, the server may delay the requests by up to this many seconds.
        """
        requests, self._requests = self._requests, []
        return self._session._native.batch(requests, window).wait()  # type: ignore[no-any-return]


def native_of(file: Any) -> _dafs.File:
    """Returns the native part of an open file."""
    raw = getattr(file, "raw", file)
    if raw is not file and raw.writable():
        file.flush()
    native = getattr(raw, "_native", None)
    if not isinstance(native, _dafs.File):
        raise TypeError(f"not a dafs file: {file!r}")
    return native
