"""What goes wrong, as exceptions.

Everything is an ``OSError`` with its errno. What the system has a class for is of that class
(``FileNotFoundError``, ``PermissionError``, ...); what only this package can meet is an
:class:`Error` besides. ``status`` names the protocol's status where the server gave one.
"""

from __future__ import annotations

__all__ = [
    "Cancelled",
    "Closed",
    "ConnectFailed",
    "ConnectionLost",
    "DataLost",
    "Deadlock",
    "Error",
    "Forked",
    "LockBroken",
    "Locked",
    "LoginFailed",
    "OutcomeUnknown",
    "ProtocolError",
    "TimedOut",
]


class Error(OSError):
    """What only this package can meet."""

    #: The protocol's status, where the server gave one.
    status: str | None = None


class ConnectFailed(Error, ConnectionRefusedError):
    """No connection could be made."""


class LoginFailed(Error, PermissionError):
    """The server does not let this client in."""


class ConnectionLost(Error, ConnectionResetError):
    """The session has ended, and could not come back. Connect anew."""


class OutcomeUnknown(ConnectionLost):
    """The connection broke, and the server does not know whether this was done: look first."""


class ProtocolError(Error):
    """The server has sent something that is no answer to what was asked."""


class Cancelled(Error):
    """It was cancelled before its end."""


class TimedOut(Error, TimeoutError):
    """Not done in the time given."""


class DataLost(Error):
    """The server has lost data that was written and not committed: write it again."""


class LockBroken(Error, BlockingIOError):
    """Whoever held the lock has failed: look after the data, and lock with ``repair``."""


class Locked(Error, BlockingIOError):
    """Somebody else has locked the range."""


class Deadlock(Error):
    """Waiting for the lock would never end."""


class Closed(Error, ValueError):
    """The file or the session was closed."""


class Forked(Error):
    """The session was made before ``fork()``, by the parent process: connect anew."""


_KINDS: dict[str, type[Error]] = {
    "connect": ConnectFailed,
    "login": LoginFailed,
    "lost": ConnectionLost,
    "unknown": OutcomeUnknown,
    "protocol": ProtocolError,
    "cancelled": Cancelled,
    "timeout": TimedOut,
    "data_lost": DataLost,
    "closed": Closed,
    "forked": Forked,
}

_STATUSES: dict[str, type[Error]] = {
    "LockBroken": LockBroken,
    "Locked": Locked,
    "Denied": Locked,
    "Deadlock": Deadlock,
}


def make(
    kind: str, errno: int, text: str, subject: str | None, status: str | None
) -> BaseException:
    """The exception for what the native part calls by these names."""
    if kind == "argument":
        return ValueError(text)
    named = _STATUSES.get(status or "") if kind == "status" else _KINDS.get(kind)
    # OSError chooses the subclass for an errno by itself.
    kind_of = named or OSError
    error = kind_of(errno, text) if subject is None else kind_of(errno, text, subject)
    if status is not None:
        error.status = status  # type: ignore[attr-defined]
    return error
