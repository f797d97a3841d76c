"""Choosing a backend by name."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from msgq import naming
from msgq.errors import BackendNotAvailableError

MODULES = {"msgq": "msgq.impl.ring", "fake": "msgq.impl.fake"}


def load(name: str | None = None) -> ModuleType:
    """Return the module that implements a backend: Context, PubSocket, SubSocket and Poller.

    Parameters
    ----------
    name : "msgq" or "fake"; None takes the one that MSGQ_BACKEND names.

    Raises
    ------
    BackendNotAvailableError : there is no backend of this name.
    """
    wanted = naming.backend_name() if name is None else name
    if wanted not in MODULES:
        raise BackendNotAvailableError(f"MSGQ_BACKEND={wanted!r}: not available; there is {', '.join(MODULES)}")
    return import_module(MODULES[wanted])
