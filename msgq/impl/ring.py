"""The msgq backend: publish and subscribe through a shared-memory ring (docs/protocol.md)."""

from msgq.impl.context import Context
from msgq.impl.publisher import PubSocket
from msgq.impl.subscriber import Poller, SubSocket

__all__ = ["Context", "Poller", "PubSocket", "SubSocket"]
