"""DAFS: files on a server, transferred directly to and from the program's memory.

>>> import dafs
>>> with dafs.connect("dafs://localhost/") as session:
...     with session.open("/model.bin", "rb") as file:
...         header = file.read(4096)

:mod:`dafs.aio` is the interface for asyncio, :mod:`dafs.fsspec` for pandas, pyarrow and other
users of fsspec, and :mod:`dafs.torch` for PyTorch.
"""

from __future__ import annotations

from typing import Unpack

from . import _dafs
from ._dafs import STRAIGHT_MIN, Memory
from ._dafs import __version__ as __version__
from ._errors import (
    Cancelled,
    Closed,
    ConnectFailed,
    ConnectionLost,
    DataLost,
    Deadlock,
    Error,
    Forked,
    LockBroken,
    Locked,
    LoginFailed,
    OutcomeUnknown,
    ProtocolError,
    TimedOut,
)
from ._file import BufferedRandom, BufferedReader, BufferedWriter, Lock, RawFile
from ._session import Batch, Session
from ._types import ConnectOptions, Counters, DirEntry, LockHolder, Stat, StatVfs

__all__ = [
    "STRAIGHT_MIN",
    "Batch",
    "BufferedRandom",
    "BufferedReader",
    "BufferedWriter",
    "Cancelled",
    "Closed",
    "ConnectFailed",
    "ConnectOptions",
    "ConnectionLost",
    "Counters",
    "DataLost",
    "Deadlock",
    "DirEntry",
    "Error",
    "Forked",
    "Lock",
    "LockBroken",
    "LockHolder",
    "Locked",
    "LoginFailed",
    "Memory",
    "OutcomeUnknown",
    "ProtocolError",
    "RawFile",
    "Session",
    "Stat",
    "StatVfs",
    "TimedOut",
    "connect",
]


def connect(url: str, **options: Unpack[ConnectOptions]) -> Session:
    """Connects to the server of a URL: ``dafs://[user@]host[:port]/``, ``dafs+tls://``,
    ``dafs+verbs://``, or ``dafs+shm:///socket!/``.

    :param transport: ``auto`` (shared memory if the server is on this host), ``shm`` or ``tcp``.
    :param login: ``auto``, ``none``, ``kerberos`` or ``password``.
    :param user: the user name, by default the one in the URL.
    :param password: the user's password.
    :param credits: the maximum number of outstanding requests.
    :param channels: the maximum number of connections for reads and writes, at most 8. The
        server may use fewer. Transfers of one file use one connection.
    :param checksums: use checksums on every message and all data.
    :param fence_id: the fence identity of this client.
    :param client_name: the name of this client across connections; random if empty.
    :param delegations: cache file data as long as no other client changes the file.
    :param own_memory: ``straight`` lets servers on this host access the program's own memory, so
        that nothing is copied in this process. ``auto`` copies there, which is faster.
    :param recovery: seconds for which a lost session tries to reconnect; ``None`` disables this.
    :param answer_timeout: seconds without a reply after which the connection is given up.
    :param tls_ca: PEM file of the authorities that sign server certificates, for ``dafs+tls://``.
    :param tls_certificate: PEM file of this client's certificate.
    :param tls_key: PEM file of the certificate's key.
    :param tls_name: the name in the server's certificate, by default the host.
    :raises ConnectFailed: with every address that was tried and the reason why it failed.
    :raises LoginFailed: if the server refuses the login.
    """
    return Session(_dafs.connect(url, **options))
