"""``dafs://`` for fsspec, which pandas, pyarrow, DuckDB, zarr, xarray and others use.

A file system has two sessions, which are made when needed: one in fsspec's event loop, for
concurrent operations, and a blocking one, for open files.

Three rules prevent data loss:

- A walk never follows a symbolic link, and a removal uses the handles of directories, so that a
  symbolic link cannot replace a directory meanwhile.
- A removal or a move applies to the given name if it exists, even if it contains pattern
  characters.
- A copy opens its source first and then its target without truncating it. It truncates the target
  only after both are known to be different files.
"""

from __future__ import annotations

import asyncio
import errno
import io
import os
import posixpath
import secrets
import shutil
import stat
import weakref
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from fsspec.asyn import AsyncFileSystem, sync
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.core import has_magic
from fsspec.utils import other_paths

from . import aio, connect
from ._session import Session
from ._types import DirEntry, Stat

__all__ = ["DafsFile", "DafsFileSystem"]

#: The number of bytes per transfer between a server and local files.
_PIECE = 4 << 20
_SCHEMES = ("dafs", "dafs+tls", "dafs+verbs", "dafs+shm")


class DafsFileSystem(AsyncFileSystem):  # type: ignore[misc]
    """The file system of a DAFS server.

    :param server: URL of the server, by default ``dafs://localhost``. A URL as path sets it
        (``fsspec.open("dafs://host:2050/x")``).
    :param options: options of :func:`dafs.connect`.
    :param auto_mkdir: create missing parent directories of a new file.
    """

    protocol = _SCHEMES
    root_marker = "/"
    cachable = True
    # Listings are not cached, because other clients may change directories.
    use_listings_cache = False

    def __init__(
        self,
        server: str = "dafs://localhost",
        options: dict[str, Any] | None = None,
        auto_mkdir: bool = True,
        asynchronous: bool = False,
        loop: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(asynchronous=asynchronous, loop=loop, **kwargs)
        self.server = server
        self.options = dict(options or {})
        self.auto_mkdir = auto_mkdir
        self._blocking: Session | None = None
        self._sessions: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, asyncio.Future[aio.Session]
        ] = weakref.WeakKeyDictionary()

    # ---- URLs ---------------------------------------------------------------------------

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        text = os.fspath(path)
        scheme, separator, rest = text.partition("://")
        if separator and scheme == "dafs+shm":
            _, _, text = rest.partition("!")
        elif separator and scheme in _SCHEMES:
            _, slash, below = rest.partition("/")
            text = slash + below
        text = posixpath.normpath("/" + text.lstrip("/")) if text.strip("/") else "/"
        return text

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        scheme, separator, rest = path.partition("://")
        if not separator or scheme not in _SCHEMES:
            return {}
        if scheme == "dafs+shm":
            return {"server": f"{scheme}://{rest.partition('!')[0]}!/"}
        host = urlsplit(path).netloc
        return {"server": f"{scheme}://{host}"} if host else {}

    def unstrip_protocol(self, name: str) -> str:
        path = self._strip_protocol(name)
        return f"{self.server.removesuffix('/')}{path}"

    # ---- sessions -----------------------------------------------------------------------

    async def set_session(self) -> aio.Session:
        """Returns the session of the running loop."""
        loop = asyncio.get_running_loop()
        connecting = self._sessions.get(loop)
        if connecting is None or (connecting.done() and _is_of_no_use(connecting)):
            connecting = loop.create_task(aio.connect(self.server, **self.options))
            self._sessions[loop] = connecting
        # Cancelling one waiting task must not cancel the connection for the others.
        return await asyncio.shield(connecting)

    @property
    def session(self) -> Session:
        """The blocking session."""
        if self._blocking is None or self._blocking.lost:
            self._blocking = connect(self.server, **self.options)
        return self._blocking

    # ---- attributes and listings --------------------------------------------------------

    async def _info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        session = await self.set_session()
        found = await session.stat(path, follow_symlinks=False)
        return await self._described(session, path, found)

    async def _ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        path = self._strip_protocol(path)
        session = await self.set_session()
        try:
            entries = await session.scandir(path)
        except NotADirectoryError:
            info = await self._info(path)
            return [info] if detail else [path]
        if not detail:
            return sorted(entry.path for entry in entries)
        entries.sort(key=lambda entry: entry.name)
        found = [await self._entry(session, entry) for entry in entries]
        return [info for info in found if info is not None]

    async def _entry(self, session: aio.Session, entry: DirEntry) -> dict[str, Any] | None:
        try:
            info = await self._described(session, entry.path, entry.stat())
        except FileNotFoundError:
            # It was removed during the listing.
            return None
        if info["islink"] and info["type"] == "directory":
            # fsspec would walk into the target of the link, perhaps out of the tree or in a cycle.
            # `info` of the link itself returns the type of its target.
            info["type"] = "link"
        return info

    async def _described(self, session: aio.Session, path: str, stat: Stat) -> dict[str, Any]:
        is_link = stat.is_symlink()
        destination = None
        if is_link:
            destination = await session.readlink(path)
            try:
                stat = await session.stat(path)
            except FileNotFoundError:
                # A dangling link: return the attributes of the link.
                pass
        info = {
            "name": path,
            "size": None if stat.is_dir() else stat.st_size,
            "type": "directory" if stat.is_dir() else "file" if stat.is_file() else "other",
            "mode": stat.st_mode,
            "uid": stat.owner,
            "gid": stat.group,
            "ino": stat.st_ino,
            "nlink": stat.st_nlink,
            "mtime": stat.st_mtime,
            "created": stat.st_ctime,
            "islink": is_link,
        }
        if stat.is_dir():
            info["size"] = 0
        if destination is not None:
            info["destination"] = destination
        return info

    async def _exists(self, path: str, **kwargs: Any) -> bool:
        return await (await self.set_session()).exists(self._strip_protocol(path))

    def modified(self, path: str) -> Any:
        import datetime

        found = self.info(path)["mtime"]
        return datetime.datetime.fromtimestamp(found, tz=datetime.timezone.utc)

    def created(self, path: str) -> Any:
        import datetime

        found = self.info(path)["created"]
        return datetime.datetime.fromtimestamp(found, tz=datetime.timezone.utc)

    def ukey(self, path: str) -> str:
        # The change attribute differs after every change.
        found = self.session.stat(self._strip_protocol(path))
        return f"{found.st_ino:x}-{found.change:x}"

    async def _lexists(self, path: str, **kwargs: Any) -> bool:
        session = await self.set_session()
        try:
            await session.stat(self._strip_protocol(path), follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    async def _named(self, path: Any) -> list[str]:
        """Returns the names that a path, a pattern or a list of them matches, without following
        links."""
        paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
        named: dict[str, None] = {}
        for one in paths:
            one = self._strip_protocol(one)
            if await self._lexists(one):
                named[one] = None
                continue
            matching = await self._glob(one) if has_magic(one) else []
            if not matching:
                raise FileNotFoundError(2, os.strerror(2), one)
            named.update(dict.fromkeys(matching))
        return list(named)

    # ---- data ---------------------------------------------------------------------------

    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        path = self._strip_protocol(path)
        session = await self.set_session()
        if start is None and end is None:
            return await session.read_bytes(path)
        async with await session.open(path) as file:
            if start is None or start < 0 or end is None or end < 0:
                size = (await file.stat()).st_size
                start = 0 if start is None else start if start >= 0 else max(size + start, 0)
                end = size if end is None else end if end >= 0 else size + end
            return await file.read(end - start, start) if end > start else b""

    async def _cat(
        self,
        path: Any,
        recursive: bool = False,
        on_error: str = "raise",
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> Any:
        # Read all files in one call, which keeps as many in flight as the server grants credits
        # for. fsspec's own method makes a task for each.
        paths = await self._expand_path(path, recursive=recursive)
        if kwargs:
            return await super()._cat(path, recursive, on_error, batch_size, **kwargs)
        if recursive:
            paths = [one for one in paths if not await self._isdir(one)]
        session = await self.set_session()
        read = dict(zip(paths, await session.read_files(paths), strict=True))
        failed = next((one for one in read.values() if isinstance(one, OSError)), None)
        if failed is not None and on_error == "raise":
            raise failed
        if on_error == "omit":
            read = {name: one for name, one in read.items() if not isinstance(one, OSError)}
        is_many = len(paths) > 1 or isinstance(path, list)
        if is_many or paths[0] != self._strip_protocol(path):
            return read
        return next(iter(read.values()), None)

    async def _pipe_file(
        self, path: str, value: Any, mode: str = "overwrite", **kwargs: Any
    ) -> None:
        path = self._strip_protocol(path)
        session = await self.set_session()
        writing = {"exclusive": mode == "create"}
        try:
            await session.write_bytes(path, value, **writing)
        except FileNotFoundError:
            if not await self._make_parent(session, path):
                raise
            await session.write_bytes(path, value, **writing)

    async def _make_parent(self, session: aio.Session, path: str) -> bool:
        """Creates the parent directory of a file. Returns False if that is disabled."""
        if self.auto_mkdir:
            await session.makedirs(posixpath.dirname(path), exist_ok=True)
        return self.auto_mkdir

    async def _create(self, session: aio.Session, path: str, mode: str) -> aio.File:
        try:
            return await session.open(path, mode)
        except FileNotFoundError:
            if not await self._make_parent(session, path):
                raise
            return await session.open(path, mode)

    async def _replace(self, session: aio.Session, path: str, source: Any) -> aio.File:
        """Opens the target of a copy and truncates it if it is not the source.

        :raises shutil.SameFileError: if it is the source, by any name. Then nothing is changed.
        """
        for _ in range(_LOOKS_MAX):
            try:
                target = await session.open(path, "r+b")
            except FileNotFoundError:
                try:
                    return await self._create(session, path, "xb")
                except FileExistsError:
                    # Another client has created it meanwhile.
                    continue
            except PermissionError:
                # It may be writable but not readable.
                if await _is_same(source, await session.stat(path)):
                    raise _same_file(source, path) from None
                return await session.open(path, "wb")
            try:
                if await _is_same(source, target):
                    raise _same_file(source, path)
                await target.truncate(0)
            except BaseException:
                await target.close()
                raise
            return target
        raise FileExistsError(17, "other clients keep creating and removing it", path)

    async def _cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        session = await self.set_session()
        if (await session.stat(path1)).is_dir():
            return await session.makedirs(path2, exist_ok=True)
        piece = await session.alloc(_PIECE, zeroed=False)
        async with await session.open(path1) as source:
            # If the source cannot be read, the target must not be changed.
            count = await source.readinto(piece, 0)
            async with await self._replace(session, path2, source) as target:
                offset = 0
                while count:
                    await target.write(memoryview(piece)[:count], offset)
                    offset += count
                    count = await source.readinto(piece, offset)

    async def _get_file(
        self, rpath: str, lpath: Any, callback: Any = DEFAULT_CALLBACK, **kwargs: Any
    ) -> None:
        rpath = self._strip_protocol(rpath)
        session = await self.set_session()
        found = await session.stat(rpath)
        if found.is_dir():
            return os.makedirs(lpath, exist_ok=True)
        callback.set_size(found.st_size)
        piece = await session.alloc(min(_PIECE, found.st_size + 1), zeroed=False)
        async with await session.open(rpath) as source:
            count = await source.readinto(piece, 0)
            is_path = isinstance(lpath, (str, bytes, os.PathLike))
            local = await _replace_local(lpath, source) if is_path else lpath
            try:
                offset = 0
                while count:
                    _write_all(local, memoryview(piece)[:count])
                    callback.relative_update(count)
                    offset += count
                    count = await source.readinto(piece, offset)
            finally:
                if is_path:
                    local.close()

    async def _put_file(
        self,
        lpath: Any,
        rpath: str,
        mode: str = "overwrite",
        callback: Any = DEFAULT_CALLBACK,
        **kwargs: Any,
    ) -> None:
        rpath = self._strip_protocol(rpath)
        session = await self.set_session()
        if os.path.isdir(lpath):
            return await session.makedirs(rpath, exist_ok=True)
        with open(lpath, "rb", buffering=0) as local:
            size = os.fstat(local.fileno()).st_size
            callback.set_size(size)
            piece = await session.alloc(min(_PIECE, max(size, _PIPE) + 1), zeroed=False)
            view = memoryview(piece)
            count = local.readinto(view)
            if mode == "create":
                target = await self._create(session, rpath, "xb")
            else:
                target = await self._replace(session, rpath, local)
            async with target:
                offset = 0
                while count:
                    await target.write(view[:count], offset)
                    callback.relative_update(count)
                    offset += count
                    count = local.readinto(view)

    # ---- names --------------------------------------------------------------------------

    async def _mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        session = await self.set_session()
        if create_parents:
            await session.makedirs(posixpath.dirname(path), exist_ok=True)
        await session.mkdir(path)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        session = await self.set_session()
        await session.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    async def _rm_file(self, path: str, **kwargs: Any) -> None:
        await (await self.set_session()).remove(self._strip_protocol(path))

    async def _rmdir(self, path: str) -> None:
        path = self._strip_protocol(path)
        session = await self.set_session()
        if not (await session.stat(path, follow_symlinks=False)).is_dir():
            raise NotADirectoryError(20, os.strerror(20), path)
        await session.remove(path)

    async def _rm(
        self,
        path: Any,
        recursive: bool = False,
        batch_size: int | None = None,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        session = await self.set_session()
        tops = await self._named(path)
        if recursive and "/" in tops:
            # Check before anything is removed, like rm without --no-preserve-root.
            raise OSError(
                errno.EBUSY, "the root of a server cannot be removed; name its entries instead", "/"
            )
        for top in tops:
            if recursive:
                await session.rmtree(top, depth=maxdepth)
            else:
                await session.remove(top)

    async def _mv_file(self, path1: str, path2: str) -> None:
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        await (await self.set_session()).rename(path1, path2)

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        if create_parents:
            self.session.makedirs(posixpath.dirname(path), exist_ok=True)
        self.session.mkdir(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self.session.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        self.session.rmdir(self._strip_protocol(path))

    def mv(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Renames without copying. If the target is a directory, the source moves into it."""
        if not isinstance(path1, list) and not isinstance(path2, list):
            if self._strip_protocol(path1) == self._strip_protocol(path2):
                return
        sources = sync(self.loop, self._named, path1)
        if isinstance(path2, list):
            targets = [self._strip_protocol(one) for one in path2]
        elif len(sources) > 1 or str(path2).endswith("/") or self.isdir(path2):
            base = self._strip_protocol(path2)
            targets = [posixpath.join(base, posixpath.basename(one)) for one in sources]
        else:
            targets = other_paths(sources, self._strip_protocol(path2), exists=False)
        for source, target in zip(sources, targets, strict=True):
            self.session.rename(source, target)

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        with self._open(path, "wb" if truncate else "ab"):
            pass
        if not truncate:
            import time

            now = time.time_ns()
            self.session.utime(path, ns=(now, now))

    # ---- open files ---------------------------------------------------------------------

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: Any = None,
        autocommit: bool = True,
        cache_options: Any = None,
        **kwargs: Any,
    ) -> DafsFile:
        path = self._strip_protocol(path)
        if self.auto_mkdir and mode[0] in "wax":
            try:
                return DafsFile(self, path, mode, autocommit)
            except FileNotFoundError:
                self.session.makedirs(posixpath.dirname(path), exist_ok=True)
        return DafsFile(self, path, mode, autocommit)


class DafsFile(io.IOBase):
    """An open file of a file system. It wraps a buffered file of :mod:`dafs`, whose large reads
    and writes bypass the buffer."""

    def __init__(self, fs: DafsFileSystem, path: str, mode: str, autocommit: bool) -> None:
        self.fs, self.path, self.mode, self.autocommit = fs, path, mode, autocommit
        self.blocksize = _PIECE
        self._written_to = path
        if not autocommit and mode[0] in "wx":
            if mode[0] == "x" and fs.session.exists(path):
                raise FileExistsError(17, os.strerror(17), path)
            # In the same directory, so that a rename can give it its final name.
            name = f".{posixpath.basename(path)}.{secrets.token_hex(6)}"
            self._written_to = posixpath.join(posixpath.dirname(path), name)
        self.f = fs.session.open(self._written_to, mode if "b" in mode else mode + "b")

    @property
    def name(self) -> str:
        """The path of the file."""
        return self.path

    @property
    def full_name(self) -> str:
        """The URL of the file."""
        return self.fs.unstrip_protocol(self.path)

    @property
    def size(self) -> int:
        """The current size in bytes."""
        return int(self.f.stat().st_size)

    @property
    def details(self) -> dict[str, Any]:
        """The result of :meth:`DafsFileSystem.info`."""
        return self.fs.info(self.path)  # type: ignore[no-any-return]

    def commit(self) -> None:
        """Renames a file that was opened without autocommit to its final name."""
        self.close()
        if self._written_to != self.path:
            self.fs.session.rename(self._written_to, self.path)
            self._written_to = self.path

    def discard(self) -> None:
        """Removes a file that was opened without autocommit."""
        self.close()
        if self._written_to != self.path:
            self.fs.session.unlink(self._written_to)

    # ---- the io module's ----------------------------------------------------------------

    def read(self, size: int | None = -1) -> bytes:
        """Reads ``size`` bytes, or up to the end."""
        return self.f.read(size)  # type: ignore[no-any-return]

    def read1(self, size: int = -1) -> bytes:
        """Reads buffered data, or with at most one request."""
        return self.f.read1(size)  # type: ignore[no-any-return]

    def readinto(self, buffer: Any) -> int:
        """Reads into a buffer."""
        return self.f.readinto(buffer)  # type: ignore[no-any-return]

    def readinto1(self, buffer: Any) -> int:
        """Reads into a buffer, from buffered data or with at most one request."""
        return self.f.readinto1(buffer)  # type: ignore[no-any-return]

    def readline(self, size: int | None = -1) -> bytes:
        return self.f.readline(-1 if size is None else size)  # type: ignore[no-any-return]

    def readlines(self, hint: int | None = -1) -> list[bytes]:
        return self.f.readlines(-1 if hint is None else hint)  # type: ignore[no-any-return]

    def write(self, data: Any) -> int:
        """Writes a whole buffer."""
        return self.f.write(data)  # type: ignore[no-any-return]

    def writelines(self, lines: Iterable[Any]) -> None:
        self.f.writelines(lines)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.f.seek(offset, whence)  # type: ignore[no-any-return]

    def tell(self) -> int:
        return self.f.tell()  # type: ignore[no-any-return]

    def truncate(self, size: int | None = None) -> int:
        return self.f.truncate(size)  # type: ignore[no-any-return]

    def flush(self, force: bool = False) -> None:
        if not self.f.closed:
            self.f.flush()

    def readable(self) -> bool:
        return self.f.readable()  # type: ignore[no-any-return]

    def writable(self) -> bool:
        return self.f.writable()  # type: ignore[no-any-return]

    def seekable(self) -> bool:
        return True

    @property
    def closed(self) -> bool:
        """True if :meth:`close` was called."""
        return bool(self.f.closed)

    def close(self) -> None:
        self.f.close()

    def __enter__(self) -> DafsFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Any:
        return iter(self.f)

    def __next__(self) -> bytes:
        return next(self.f)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<DafsFile {self.full_name!r} mode={self.mode!r}>"

    def __reduce__(self) -> Any:
        if "r" not in self.mode:
            raise ValueError("a file that is open for writing cannot be pickled")
        return _reopen, (self.fs, self.path, self.mode, self.tell())


def _reopen(fs: DafsFileSystem, path: str, mode: str, position: int) -> DafsFile:
    file = DafsFile(fs, path, mode, True)
    file.seek(position)
    return file


def _is_of_no_use(connected: asyncio.Future[aio.Session]) -> bool:
    if connected.cancelled() or connected.exception() is not None:
        return True
    return connected.result().lost


async def _attributes(what: Any) -> tuple[int, int, bool]:
    """Returns the inode number and the change time, and True for a local file."""
    if isinstance(what, Stat):
        return what.st_ino, what.st_ctime_ns, False
    if isinstance(what, aio.File):
        found = await what.stat()
        return found.st_ino, found.st_ctime_ns, False
    local = os.fstat(what.fileno())
    return local.st_ino, local.st_ctime_ns, True


async def _is_same(one: Any, other: Any) -> bool:
    """True if two open files, remote or local, are the same object.

    Objects on different file systems may have equal inode numbers, but they were not changed in
    the same nanosecond. A server that has not written back a change reports another change time
    than its disk. So changes are committed, and both files are checked again, until two
    consecutive checks agree.

    :raises OSError: if no two checks agree.
    """
    for _ in range(_LOOKS_MAX):
        own, others = await _attributes(one), await _attributes(other)
        if own[:2] == others[:2]:
            return True
        if own[0] != others[0]:
            return False
        for end in (one, other):
            if isinstance(end, aio.File):
                try:
                    await end.commit()
                except OSError:
                    # A file opened for reading has no changes to write back.
                    pass
        if (await _attributes(one), await _attributes(other)) == (own, others):
            return False
    raise OSError(
        16, "it changes all the time, so it is not possible to check whether it is the source"
    )


def _same_file(source: Any, path: Any) -> shutil.SameFileError:
    name = source.name if isinstance(source, aio.File) else os.fspath(source.name)
    return shutil.SameFileError(f"{name!r} and {path!r} are the same file")


async def _replace_local(path: Any, source: aio.File) -> Any:
    """Opens a local target and truncates it if it is not the source."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    local = open(descriptor, "wb", buffering=0)
    try:
        if await _is_same(source, local):
            raise _same_file(source, os.fspath(path))
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.ftruncate(descriptor, 0)
    except BaseException:
        local.close()
        raise
    return local


def _write_all(local: Any, view: memoryview) -> None:
    while view:
        view = view[local.write(view) :]


#: The maximum number of checks of changing files, or attempts to open one that comes and goes.
_LOOKS_MAX = 8
#: The minimum number of bytes to read at once from a source of unknown size.
_PIPE = 64 << 10
