"""DAFS: files of a server, read and written straight into memory of your own.

>>> import dafs
>>> with dafs.connect("dafs://localhost/") as session:
...     with session.open("/model.bin", "rb") as file:
...         header = file.read(4096)

:mod:`dafs.aio` is the same for asyncio, :mod:`dafs.fsspec` for pandas, pyarrow and the like,
:mod:`dafs.torch` for PyTorch.
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
    :param user: who this is; otherwise as the URL says.
    :param password: the user's password.
    :param credits: the most requests to have outstanding.
    :param channels: the most connections to spread reads and writes over, as far as the server
        has use for them; those of one file go over one of them. 8 are the most.
    :param checksums: checksums on every message and all data.
    :param fence_id: name for fencing.
    :param client_name: names this client across connections; random if empty.
    :param delegations: keep what was read of files as long as nobody changes them.
    :param own_memory: ``straight`` lends memory of the program's own to servers on this host, too,
        so that nothing is copied in this process; ``auto`` copies there, which is faster.
    :param recovery: seconds for which a lost session tries to come back; ``None`` for not at all.
    :param answer_timeout: seconds of silence after which the connection is given up.
    :param tls_ca: PEM file of the authorities that vouch for servers, for ``dafs+tls://``.
    :param tls_certificate: PEM file of this side's own certificate.
    :param tls_key: PEM file of its key.
    :param tls_name: whose certificate the server must show, if not the host's.
    :raises ConnectFailed: with every address tried and why it failed.
    :raises LoginFailed: if the server refuses the identity.
    """
    return Session(_dafs.connect(url, **options))
