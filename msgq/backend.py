"""Choosing a backend by name, when the first socket or its class is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import Any

from msgq import naming
from msgq.errors import BackendNotAvailableError
from msgq.impl.ground.context import Context

MODULES = {"msgq": "msgq.impl.ring", "zmq": "msgq.impl.zeromq", "fake": "msgq.impl.fake"}
#: What a backend needs that is not always installed: the module, and the extra of this distribution that brings it.
EXTRAS = {"zmq": "zmq"}
#: What a module that is `lazy` has of the chosen backend.
NAMES = ("Context", "Poller", "PubSocket", "SubSocket", "context")

#: The context that `pub_sock` and `sub_sock` use; of one class in all backends.
context = Context()

_chosen: ModuleType | None = None
_lazy: list[dict[str, Any]] = []  # the names of the modules that are lazy


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
        who = "MSGQ_BACKEND" if name is None else "backend"
        raise BackendNotAvailableError(f"{who}={wanted!r}: not available; there is {', '.join(MODULES)}")
    try:
        return import_module(MODULES[wanted])
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        text = f"the backend {wanted!r} needs {error.name}: pip install 'msgq-bus[{EXTRAS[error.name]}]'"
        raise BackendNotAvailableError(text) from error


def chosen() -> ModuleType:
    """Return the backend of this process: the one that MSGQ_BACKEND named when this was called first.

    Raises
    ------
    BackendNotAvailableError : as `load`; the next call tries again.
    """
    global _chosen
    module = _chosen
    if module is None:
        loaded = load()
        _chosen = module = _chosen or loaded  # another thread may have chosen meanwhile, a simulation's for instance
    return module


def choose(module: ModuleType | None) -> ModuleType | None:
    """Let this be the backend of the process, and return the former one. None: none is chosen yet.

    Lazy modules have its classes from now on. A class that somebody has in a variable stays what it is.
    """
    global _chosen
    former, _chosen = _chosen, module
    for names in _lazy:
        for name in NAMES:
            names.pop(name, None)
    return former


def lazy(
    names: dict[str, Any], elsewhere: Mapping[str, str] = MappingProxyType({})
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a module that has `NAMES` of the chosen backend.

    Each name is looked up once and stays in the module, so that further uses cost nothing.

    Parameters
    ----------
    names : the module's, `globals()`.
    elsewhere : names that other modules have, whatever the backend, which would cost time at import; and their modules.
    """
    _lazy.append(names)

    def find(name: str) -> Any:
        if name in elsewhere:
            names[name] = value = getattr(import_module(elsewhere[name]), name)
            return value
        if name not in NAMES:
            raise AttributeError(f"module {names['__name__']!r} has no attribute {name!r}")
        module = chosen()
        names[name] = value = context if name == "context" else getattr(module, name)
        if module is not _chosen:  # another thread chose meanwhile, and may have emptied `names` before this came in
            names.pop(name, None)
        return value

    return find, lambda: sorted({*names, *NAMES, *elsewhere})
