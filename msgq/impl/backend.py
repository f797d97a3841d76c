"""Choosing a backend by name, when the first socket or its class is asked for."""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType, ModuleType

from msgq.common import settings
from msgq.errors import BackendNotAvailableError
from msgq.impl.base.core import Context

TYPE_CHECKING = False  # as in __init__.py
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import Any

MODULES = {"msgq": "msgq.impl.ring", "zmq": "msgq.impl.zeromq", "fake": "msgq.impl.fake"}
#: What a backend needs that is not always installed: the module, and the extra of this distribution that brings it.
EXTRAS = {"zmq": "zmq"}
#: What a module that is `lazy` has of the chosen backend.
NAMES = ("Context", "Poller", "PubSocket", "SubSocket", "context")

#: Classes that not every backend has: the modules of those that have them.
BACKEND_CLASSES = {
    "MessageQueue": {"msgq.impl.ring": "msgq.impl.workqueue", "msgq.impl.fake": "msgq.impl.fake.workqueue"}
}
BACKEND_CLASSES["Job"] = BACKEND_CLASSES["MessageQueue"]
_RECORDS = {"msgq.impl.ring": "msgq.impl.records", "msgq.impl.fake": "msgq.impl.fake.records"}
BACKEND_CLASSES.update(dict.fromkeys(("Blackboard", "Board", "Seqlock", "SeqlockVector"), _RECORDS))

#: The context that `pub_sock` and `sub_sock` use; of one class in all backends.
context = Context()

_current: ModuleType | None = None
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
    wanted = settings.get_backend_name() if name is None else name
    if wanted not in MODULES:
        setting = "MSGQ_BACKEND" if name is None else "backend"
        raise BackendNotAvailableError(f"{setting}={wanted!r}: not available; there is {', '.join(MODULES)}")
    try:
        return import_module(MODULES[wanted])
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        text = f"the backend {wanted!r} needs {error.name}: pip install 'msgq-bus[{EXTRAS[error.name]}]'"
        raise BackendNotAvailableError(text) from error


def current() -> ModuleType:
    """Return the backend of this process: the one that MSGQ_BACKEND named when this was called first.

    Raises
    ------
    BackendNotAvailableError : as `load`; the next call tries again.
    """
    global _current
    module = _current
    if module is None:
        loaded = load()
        _current = module = _current or loaded  # another thread may have chosen meanwhile, a simulation's for instance
    return module


def is_fake() -> bool:
    """Return whether the fake backend is chosen, or will be; it chooses none."""
    return _current.__name__ == MODULES["fake"] if _current is not None else settings.get_backend_name() == "fake"


def choose(module: ModuleType | None) -> ModuleType | None:
    """Let this be the backend of the process, and return the former one. None: none is chosen yet.

    Lazy modules have its classes from now on. A class that somebody has in a variable stays what it is.
    """
    global _current
    former, _current = _current, module
    for names in _lazy:
        for name in (*NAMES, *BACKEND_CLASSES):
            names.pop(name, None)
    return former


def implementation(modules: Mapping[str, str], feature: str, backend: ModuleType | None = None) -> ModuleType:
    """Return the module with what not every backend has.

    Parameters
    ----------
    modules : where backends have it, by the backends' own modules.
    feature : its name, for the error.
    backend : as `load` returns it; None: the chosen one.

    Raises
    ------
    BackendNotAvailableError : the backend has none.
    """
    module = modules.get((backend or current()).__name__)
    if module is None:
        text = f"the backend {settings.get_backend_name()!r} has no {feature}; msgq and fake have (MSGQ_BACKEND)"
        raise BackendNotAvailableError(text)
    return import_module(module)


def backend_class(name: str, backend: ModuleType | None = None) -> Any:
    """Return a class of `BACKEND_CLASSES`, of a backend (None: the current one). Raises as `implementation`."""
    return getattr(implementation(BACKEND_CLASSES[name], name, backend), name)


def lazy(
    names: dict[str, Any], elsewhere: Mapping[str, str] = MappingProxyType({}), pieces: Collection[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a module that has `NAMES` of the chosen backend.

    Each name is looked up once and stays in the module, so that further uses cost nothing.

    Parameters
    ----------
    names : the module's, `globals()`.
    elsewhere : names that other modules have, whatever the backend, which would cost time at import; and their modules.
        A name that ends its module's is that module.
    pieces : names of `BACKEND_CLASSES` that it has as well.
    """
    _lazy.append(names)

    def find(name: str) -> Any:
        if name in elsewhere:
            source_module = import_module(elsewhere[name])
            names[name] = value = (
                source_module
                if source_module.__name__ == f"{names['__name__']}.{name}"
                else getattr(source_module, name)
            )
            return value
        if name not in NAMES and name not in pieces:
            raise AttributeError(f"module {names['__name__']!r} has no attribute {name!r}")
        module = current()
        value = context if name == "context" else backend_class(name) if name in pieces else getattr(module, name)
        names[name] = value
        if module is not _current:  # another thread chose meanwhile, and may have emptied `names` before this came in
            names.pop(name, None)
        return value

    return find, lambda: sorted(names["__all__"])
