"""The msgq backend: publish and subscribe through a shared-memory ring (docs/protocol.md)."""

from msgq.impl import poller
from msgq.impl.context import Context
from msgq.impl.habits import Registrations
from msgq.impl.publisher import PubSocket
from msgq.impl.subscriber import SubSocket


class Poller(Registrations, poller.Poller):
    """Waits for several subscribers, and descriptors, at once."""


__all__ = ["Context", "Poller", "PubSocket", "SubSocket"]
