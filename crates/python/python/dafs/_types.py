"""The types of arguments and results."""

from __future__ import annotations

import os
import posixpath
import stat as _stat
from typing import Any, Literal, NamedTuple, TypedDict

#: An object's attributes as the native part returns them.
RawStat = tuple[int, int, int, int, int, int, int, int, str, str, int]


class ConnectOptions(TypedDict, total=False):
    """The options of :func:`dafs.connect`, where they are documented."""

    transport: Literal["auto", "shm", "tcp"]
    login: Literal["auto", "none", "kerberos", "password"]
    user: str | None
    password: str | None
    credits: int
    channels: int
    checksums: bool
    fence_id: str
    client_name: str
    delegations: bool
    own_memory: Literal["auto", "straight"]
    recovery: float | None
    answer_timeout: float | None
    tls_ca: str | None
    tls_certificate: str | None
    tls_key: str | None
    tls_name: str | None


class Stat(NamedTuple):
    """The attributes of an object, with the names of ``os.stat_result``."""

    st_mode: int
    st_ino: int
    st_nlink: int
    #: The size in bytes.
    st_size: int
    st_atime_ns: int
    st_mtime_ns: int
    st_ctime_ns: int
    #: The allocated storage in bytes.
    space_used: int
    #: A decimal number or a name.
    owner: str
    group: str
    #: A value that differs after every change.
    change: int

    @property
    def st_atime(self) -> float:
        """The time of the last read, in seconds since 1970."""
        return self.st_atime_ns / 1e9

    @property
    def st_mtime(self) -> float:
        """The time of the last change of data, in seconds since 1970."""
        return self.st_mtime_ns / 1e9

    @property
    def st_ctime(self) -> float:
        """The time of the last change of data or attributes, in seconds since 1970."""
        return self.st_ctime_ns / 1e9

    @property
    def st_uid(self) -> int:
        """The owner's number; -1 if the server's name for it is not a number."""
        return int(self.owner) if self.owner.isdecimal() else -1

    @property
    def st_gid(self) -> int:
        """The group's number; -1 if the server's name for it is not a number."""
        return int(self.group) if self.group.isdecimal() else -1

    @property
    def st_blocks(self) -> int:
        """The allocated storage in blocks of 512 bytes."""
        return -(-self.space_used // 512)

    def is_dir(self) -> bool:
        """True if this is a directory."""
        return _stat.S_ISDIR(self.st_mode)

    def is_file(self) -> bool:
        """True if this is a regular file."""
        return _stat.S_ISREG(self.st_mode)

    def is_symlink(self) -> bool:
        """True if this is a symbolic link."""
        return _stat.S_ISLNK(self.st_mode)


class DirEntry(os.PathLike[str]):
    """A directory entry with the attributes that were read together with its name."""

    __slots__ = ("_stat", "name", "path")

    def __init__(self, directory: str, name: str, stat: RawStat | None) -> None:
        self.name = name
        self.path = posixpath.join(directory, name)
        self._stat = None if stat is None else Stat(*stat)

    def stat(self, *, follow_symlinks: bool = False) -> Stat:
        """Returns the attributes of the entry itself."""
        if follow_symlinks and self.is_symlink():
            raise ValueError("an entry has the attributes of a link, not of its target")
        if self._stat is None:
            raise FileNotFoundError(2, "the object was removed during the listing", self.path)
        return self._stat

    def is_dir(self, *, follow_symlinks: bool = False) -> bool:
        """True if this is a directory."""
        return self._stat is not None and self._stat.is_dir()

    def is_file(self, *, follow_symlinks: bool = False) -> bool:
        """True if this is a regular file."""
        return self._stat is not None and self._stat.is_file()

    def is_symlink(self) -> bool:
        """True if this is a symbolic link."""
        return self._stat is not None and self._stat.is_symlink()

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"<dafs.DirEntry {self.path!r}>"


class StatVfs(NamedTuple):
    """Information on a file system, in bytes instead of blocks."""

    total: int
    free: int
    available: int
    files: int
    files_free: int
    name_max: int


class LockHolder(NamedTuple):
    """A conflicting lock."""

    owner: bytes
    exclusive: bool
    offset: int
    #: ``None`` if the lock extends to the end of the file.
    length: int | None


class Counters(NamedTuple):
    """Statistics of a session's transfers."""

    #: The number of reads and writes without a copy in this process.
    straight: int
    straight_bytes: int
    #: The number of copies within this process.
    copies: int
    copied_bytes: int
    #: The number of times that memory was registered for a single call.
    registrations: int


class Mode(NamedTuple):
    """The parsed mode of ``open``."""

    access: int
    create: bool
    exclusive: bool
    truncate: bool
    append: bool
    text: bool

    @classmethod
    def parse(cls, mode: str) -> Mode:
        kinds = [letter for letter in mode if letter in "rwax"]
        rest = sorted(letter for letter in mode if letter not in "rwax")
        if len(kinds) != 1 or len(set(rest)) != len(rest) or set(rest) - set("bt+"):
            raise ValueError(f"invalid mode: {mode!r}")
        if "b" in rest and "t" in rest:
            raise ValueError("can't have text and binary mode at once")
        kind = kinds[0]
        access = 3 if "+" in rest else (1 if kind == "r" else 2)
        return cls(
            access=access,
            create=kind in "wa",
            exclusive=kind == "x",
            truncate=kind == "w",
            append=kind == "a",
            text="b" not in rest,
        )


_DENY = {"": 0, "r": 1, "w": 2, "rw": 3, "wr": 3}


def open_arguments(
    mode: Mode, permissions: int, deny: str, key: int | None, keep_name: bool
) -> dict[str, Any]:
    """Returns the arguments for ``open`` in the native part."""
    if deny not in _DENY:
        raise ValueError(f"deny must be '', 'r', 'w' or 'rw', not {deny!r}")
    return {
        "create": mode.create,
        "exclusive": mode.exclusive,
        "truncate": mode.truncate,
        "mode": permissions,
        "deny": _DENY[deny],
        "key": key,
        "keep_name": keep_name,
    }


#: Options of locks (draft 4.4.1).
PERSIST, AUTO_RECOVERY, REPAIR = 2, 4, 8
#: The length of a range that extends to the end of the file.
TO_END = 2**64 - 1


def lock_options(persist: bool, autorecover: bool, repair: bool) -> int:
    return persist * PERSIST | autorecover * AUTO_RECOVERY | repair * REPAIR


def lock_holder(raw: tuple[bytes, bool, int, int] | None) -> LockHolder | None:
    if raw is None:
        return None
    owner, exclusive, offset, length = raw
    return LockHolder(owner, exclusive, offset, None if length == TO_END else length)


#: A path on a server. Bytes that are not UTF-8 are surrogates in ``str``, as with
#: ``os.fsdecode``.
Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]


def fspath(path: Path) -> str:
    """Returns a path as text. A relative path starts at the server's root."""
    text = os.fsdecode(path)
    if "\0" in text:
        raise ValueError("embedded null character")
    return text if text.startswith("/") else "/" + text
