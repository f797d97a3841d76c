"""The backend of frames: shared memory, or the fake backend's bus.

Clients and servers know only this module. The package registers the fake backend here, because that stands above them.
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
    """Return what the fake backend has of this name; None: another backend is chosen."""
    return getattr(_load_fake(), name) if _load_fake is not None and backend.is_fake_backend() else None
