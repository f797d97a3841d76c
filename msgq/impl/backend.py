"""Selection of a backend by name, at the first use of a socket or its class."""

from __future__ import annotations

import sys
import time

from msgq.common import settings
from msgq.errors import BackendNotAvailableError, MissingAttributeError
from msgq.impl.base.core import Context

TYPE_CHECKING = False  # avoids the import of `typing`; see msgq/__init__.py
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from types import FrameType, ModuleType
    from typing import Any

BACKEND_MODULES = {"msgq": "msgq.impl.ring", "zmq": "msgq.impl.zeromq", "fake": "msgq.impl.fake"}
CLOCK_MODULE = "msgq.impl.base.clock"
#: Optional module of each backend, and the extra of this distribution that brings it.
BACKEND_EXTRAS = {"zmq": "zmq"}
#: Names that a module of `make_lazy_attributes` takes from the chosen backend.
BACKEND_EXPORTS = ("Context", "Poller", "PubSocket", "SubSocket", "context")

#: Classes that not every backend has: the modules of those that have them.
CLASS_MODULES = {
    "MessageQueue": {"msgq.impl.ring": "msgq.impl.workqueue", "msgq.impl.fake": "msgq.impl.fake.workqueue"}
}
CLASS_MODULES["Job"] = CLASS_MODULES["MessageQueue"]
_RECORDS_MODULES = {"msgq.impl.ring": "msgq.impl.records", "msgq.impl.fake": "msgq.impl.fake.records"}
CLASS_MODULES.update(dict.fromkeys(("Blackboard", "Board", "Seqlock", "SeqlockVector"), _RECORDS_MODULES))

#: The context that `pub_sock` and `sub_sock` use; of one class in all backends.
context = Context()

_current_backend: ModuleType | None = None
_lazy_namespaces: list[dict[str, Any]] = []  # the names of the modules that are lazy


def import_module(name: str) -> ModuleType:
    """Do the same as importlib.import_module, which takes longer to import than this module."""
    __import__(name)
    return sys.modules[name]


class _KnownModules(dict[str, "ModuleType"]):
    """Modules by name, each imported at its first use. A search in `sys.modules` takes longer."""

    def __missing__(self, name: str) -> ModuleType:
        self[name] = module = import_module(name)
        return module


_known_modules = _KnownModules()


def preload() -> None:
    """Import the compiled module of topics, unless the environment selects another backend.

    Each kind of endpoint needs the module. The first socket then opens without an import.
    """
    if settings.get_backend_name() == "msgq":
        import_module(BACKEND_MODULES["msgq"])


def load_backend(name: str | None = None) -> ModuleType:
    """Return the module of a backend, with Context, PubSocket, SubSocket and Poller.

    Args:
        name: "msgq", "zmq" or "fake"; None: the value of MSGQ_BACKEND.

    Raises:
        BackendNotAvailableError: the backend does not exist, or its packages are not installed.
    """
    backend_name = settings.get_backend_name() if name is None else name
    if backend_name not in BACKEND_MODULES:
        setting = "MSGQ_BACKEND" if name is None else "backend"
        raise BackendNotAvailableError(
            f"{setting}={backend_name!r} is not a backend; give one of {', '.join(BACKEND_MODULES)}"
        )
    try:
        return import_module(BACKEND_MODULES[backend_name])
    except ModuleNotFoundError as error:
        if error.name not in BACKEND_EXTRAS:
            raise
        text = (
            f"backend {backend_name!r} needs {error.name}, which is not installed; run: pip "
            f"install 'msgq-bus[{BACKEND_EXTRAS[error.name]}]'"
        )
        raise BackendNotAvailableError(text) from error


def current_backend() -> ModuleType:
    """Return the backend of this process: the value of MSGQ_BACKEND at the first call.

    Raises:
        BackendNotAvailableError: as `load_backend`. The next call tries again.
    """
    global _current_backend
    module = _current_backend
    if module is None:
        loaded = load_backend()
        # Another thread may have chosen a backend during the import, for example the thread of a simulation.
        _current_backend = module = _current_backend or loaded
    return module


def is_fake_backend(backend: ModuleType | None = None) -> bool:
    """Return True if a backend is the fake one.

    `backend`: result of `load_backend`; None: the current backend, or that of the first use. The call selects none.
    """
    module = backend or _current_backend
    return settings.get_backend_name() == "fake" if module is None else module.__name__ == BACKEND_MODULES["fake"]


def resolve_prefix(prefix: str | None = None, backend: ModuleType | None = None) -> str:
    """Return the prefix of the paths of an endpoint: in shared memory, or on the current bus of the fake backend.

    Args:
        prefix: prefix of the endpoint; None: the current prefix, "": no prefix.
        backend: result of `load_backend`; None: the current backend, which the call does not select.
    """
    if not is_fake_backend(backend):
        return settings.resolve_prefix(prefix)
    resolved: str = _known_modules["msgq.impl.fake.bus"].current_bus().resolve_prefix(prefix)
    return resolved


def monotonic() -> float:
    """Return the time of deadlines in seconds: that of `time.monotonic`, or the virtual time of the current bus."""
    if not is_fake_backend():
        return time.monotonic()
    seconds: float = _known_modules["msgq.impl.fake.bus"].current_bus().clock.monotonic()
    return seconds


def find_clock(backend: ModuleType | None = None) -> Any:
    """Return the clock of a backend, with `time_ns` and `new_origin_time`: the host's, or that of the current bus.

    `backend`: result of `load_backend`; None: the current backend, which the call does not select.
    """
    fake = is_fake_backend(backend)
    return _known_modules["msgq.impl.fake.bus"].current_bus().clock if fake else _known_modules[CLOCK_MODULE]


def time_ns(backend: ModuleType | None = None) -> int:
    """Return the time of publish times in nanoseconds, by the clock of `find_clock`."""
    now_ns: int = find_clock(backend).time_ns()
    return now_ns


def set_backend(module: ModuleType | None) -> ModuleType | None:
    """Set the backend of the process, and return the previous one; None: not selected yet.

    Lazy modules then return its classes. A class that is already stored in a variable is not replaced.
    """
    global _current_backend
    previous, _current_backend = _current_backend, module
    for namespace in _lazy_namespaces:
        for name in (*BACKEND_EXPORTS, *CLASS_MODULES):
            namespace.pop(name, None)
    return previous


def load_backend_module(modules: Mapping[str, str], feature: str, backend: ModuleType | None = None) -> ModuleType:
    """Return the module with a feature that only some backends have.

    Args:
        modules: modules of the feature, by the names of the backends' modules.
        feature: name of the feature, for the error.
        backend: result of `load_backend`; None: the current backend.

    Raises:
        BackendNotAvailableError: the backend lacks the feature.
    """
    name = modules.get((backend or _current_backend or current_backend()).__name__)
    if name is None:
        text = f"backend {settings.get_backend_name()!r} has no {feature}; use the backend msgq or fake (MSGQ_BACKEND)"
        raise BackendNotAvailableError(text)
    return _known_modules[name]


def load_backend_class(name: str, backend: ModuleType | None = None) -> Any:
    """Return a class of `CLASS_MODULES` of a backend; None: the current one. Raises as `load_backend_module`."""
    return getattr(load_backend_module(CLASS_MODULES[name], name, backend), name)


def _missing_name_error(module: str, name: str, user: FrameType) -> AttributeError | ImportError:
    """Return the error for a name that a module does not have. `user`: frame that reads the name."""
    from msgq.impl.base.foreign_names import describe_missing_name

    if text := describe_missing_name(module, name):
        return ImportError(text, name=module) if _is_from_import(user) else MissingAttributeError(text)
    return AttributeError(f"module {module!r} has no attribute {name!r}")


def _is_from_import(frame: FrameType) -> bool:
    """Return True if a frame executes `from MODULE import NAME`, which replaces the text of an `AttributeError`."""
    from opcode import opmap

    return frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"]


def make_lazy_attributes(
    namespace: dict[str, Any],
    other_modules: Mapping[str, str] | None = None,
    class_names: Collection[str] = (),
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a module that exports `BACKEND_EXPORTS` of the current backend.

    `__getattr__` finds each name once, and stores the object in the module.

    Args:
        namespace: `globals()` of the module.
        other_modules: modules of names that no backend has. The modules are imported at the first use. A name equal to
            the last part of its module's name stands for the module. None: no such names.
        class_names: names in `CLASS_MODULES` to export, too.
    """
    _lazy_namespaces.append(namespace)

    def resolve_name(name: str) -> Any:
        if other_modules and name in other_modules:
            source_module = import_module(other_modules[name])
            is_submodule = source_module.__name__ == f"{namespace['__name__']}.{name}"
            namespace[name] = value = source_module if is_submodule else getattr(source_module, name)
            return value
        if name not in BACKEND_EXPORTS and name not in class_names:
            raise _missing_name_error(namespace["__name__"], name, sys._getframe(1))
        module = current_backend()
        value = (
            context if name == "context" else load_backend_class(name) if name in class_names else getattr(module, name)
        )
        namespace[name] = value
        # Another thread may have changed the backend, and may have cleared `namespace` before this assignment.
        if module is not _current_backend:
            namespace.pop(name, None)
        return value

    return resolve_name, lambda: sorted(namespace["__all__"])
