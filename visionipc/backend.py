"""Which frames there are: of shared memory, or on the fake backend's bus (visionipc/fake.py)."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from msgq import backend


def on_fake(name: str) -> Any:
    """Return what the fake backend has of this name, if that is the chosen one; None: it is not.

    By its name, as it stands above those who ask.
    """
    return getattr(import_module("visionipc.fake"), name) if backend.is_fake() else None
