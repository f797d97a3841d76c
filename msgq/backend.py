"""Choosing a backend by name."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from msgq import naming
from msgq.errors import BackendNotAvailableError

MODULES = {"msgq": "msgq.impl.ring", "zmq": "msgq.impl.zeromq", "fake": "msgq.impl.fake"}
#: What a backend needs that is not always installed: the module, and the extra of this distribution that brings it.
EXTRAS = {"zmq": "zmq"}


def load(name: str | None = None) -> ModuleType:
    """Return the module that implements a backend: Context, PubSocket, SubSocket and Poller.

    Parameters
    ----------
    name : "msgq", "zmq" or "fake"; None takes the one that MSGQ_BACKEND names.

    Raises
    ------
    BackendNotAvailableError : there is no backend of this name, or what it needs is not installed.
    """
    wanted = naming.backend_name() if name is None else name
    if wanted not in MODULES:
        raise BackendNotAvailableError(f"MSGQ_BACKEND={wanted!r}: not available; there is {', '.join(MODULES)}")
    try:
        return import_module(MODULES[wanted])
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        text = f"the backend {wanted!r} needs {error.name}: pip install 'msgq-bus[{EXTRAS[error.name]}]'"
        raise BackendNotAvailableError(text) from error
