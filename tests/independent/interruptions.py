"""What another participant does while this one copies, for tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.independent.shared_file import SharedFile


def interrupt_next_read(monkeypatch: pytest.MonkeyPatch, file: SharedFile, act: Callable[[], object]) -> None:
    """Call `act` once, after bytes of a file were copied and before the copy is judged."""
    actions = [act]

    def read(offset: int, size: int) -> bytes:
        data = SharedFile.read(file, offset, size)
        while actions:
            actions.pop()()
        return data

    monkeypatch.setattr(file, "read", read)
