"""Channels: many publishers, many subscribers, messages without copies (channels.md)."""

from __future__ import annotations

from msgq.impl import backend

TYPE_CHECKING = False  # avoids the import of `typing`; see msgq/__init__.py
if TYPE_CHECKING:
    from typing import Any

    from msgq.channel.broadcast import Broadcast
    from msgq.channel.channel import Channel
    from msgq.channel.node import Node
else:
    _MODULES = {"Broadcast": "broadcast", "Channel": "channel", "Node": "node"}

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(backend.import_module(f"{__name__}.{_MODULES[name]}"), name)


__all__ = ["Broadcast", "Channel", "Node"]
