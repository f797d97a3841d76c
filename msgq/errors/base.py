"""The two base classes of the errors."""

from __future__ import annotations


class MsgqError(Exception):
    """Base class of all errors of msgq.

    Args:
        message: description of the problem.
        endpoint: see the attributes.
        errno: see the attributes.

    Attributes:
        endpoint: name of the endpoint, or "" if the error concerns no endpoint.
        errno: error number of the system; None if no number fits.
    """

    __module__ = "msgq.errors"  # public module of the class

    errno: int | None = None

    def __init__(self, message: str, endpoint: str | bytes | None = "", errno: int | None = None) -> None:
        name = endpoint.decode(errors="replace") if isinstance(endpoint, bytes) else endpoint or ""
        text = f"{name!r}: {message}" if name else message
        super().__init__(text)
        self.args = (text,)  # OSError.__init__ leaves what __new__ got
        self.endpoint = name
        if errno is not None:
            self.errno = errno


class IpcError(MsgqError):
    """Base class of all errors of sockets, handles, gates and servers.

    Args:
        message: description of the problem. Stock's only argument is accepted here, too: the endpoint as bytes, or
            nothing.
        endpoint: see the attributes.
        errno: see the attributes.
    """

    __module__ = "msgq.errors"  # public module of the class

    def __init__(
        self, message: str | bytes | None = None, endpoint: str | bytes | None = "", errno: int | None = None
    ) -> None:
        if isinstance(message, bytes):
            message, endpoint = None, message
        super().__init__("messaging failure" if message is None else message, endpoint, errno)
