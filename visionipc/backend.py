"""Backend of frames: shared memory, or the bus of the fake backend.

Clients and servers use this module only. The package registers the fake backend here, because the fake backend imports
clients and servers.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from msgq.impl import backend

_load_fake: Callable[[], ModuleType] | None = None


def register_fake(load: Callable[[], ModuleType]) -> None:
    """Set the function that imports and returns the module of the fake backend."""
    global _load_fake
    _load_fake = load


def on_fake(name: str) -> Any:
    """Return an object of the fake backend by its name; None: another backend is chosen."""
    return getattr(_load_fake(), name) if _load_fake is not None and backend.is_fake_backend() else None
