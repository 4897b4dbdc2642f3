"""The exceptions of this package.

Every exception is an ``OSError`` with its errno. Errors for which Python has a class are of that
class (``FileNotFoundError``, ``PermissionError``, ...). Errors specific to this package are also
an :class:`Error`. ``status`` is the name of the protocol's status if the server returned one.
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
    """The base class of errors that are specific to this package."""

    #: The name of the protocol's status, if the server returned one.
    status: str | None = None


class ConnectFailed(Error, ConnectionRefusedError):
    """No connection could be made."""


class LoginFailed(Error, PermissionError):
    """The server refused the login of this client."""


class ConnectionLost(Error, ConnectionResetError):
    """The session has ended and could not reconnect. Connect again."""


class OutcomeUnknown(ConnectionLost):
    """The connection broke, and it is unknown whether the request was executed. Check first."""


class ProtocolError(Error):
    """The server has sent an invalid reply."""


class Cancelled(Error):
    """The operation was cancelled before its end."""


class TimedOut(Error, TimeoutError):
    """The operation did not complete within the timeout."""


class DataLost(Error):
    """The server has lost data that was written but not committed. Write it again."""


class LockBroken(Error, BlockingIOError):
    """The holder of the lock has failed. Check and repair the data, and lock with ``repair``."""


class Locked(Error, BlockingIOError):
    """Another client has locked the range."""


class Deadlock(Error):
    """Waiting for the lock would be a deadlock."""


class Closed(Error, ValueError):
    """The file or the session was closed."""


class Forked(Error):
    """The session was made by the parent process, before ``fork()``. Connect again."""


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
    """Returns the exception for a failure in the native part."""
    if kind == "argument":
        return ValueError(text)
    named = _STATUSES.get(status or "") if kind == "status" else _KINDS.get(kind)
    # OSError chooses the subclass for an errno.
    kind_of = named or OSError
    error = kind_of(errno, text) if subject is None else kind_of(errno, text, subject)
    if status is not None:
        error.status = status  # type: ignore[attr-defined]
    return error
