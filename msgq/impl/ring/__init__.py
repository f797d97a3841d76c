"""The msgq backend: publish and subscribe through a shared-memory ring (docs/internals/topic-protocol.md)."""

from msgq.impl.base.core import Context
from msgq.impl.ring.core import PubSocket, SubSocket

TYPE_CHECKING = False  # avoids the import of `typing`; see msgq/__init__.py
if TYPE_CHECKING:
    from msgq.impl.ring.poller import Poller
else:

    def __getattr__(name):
        """Import the poller at its first use, because most programs have none."""
        if name != "Poller":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from msgq.impl.ring.poller import Poller

        globals()[name] = Poller
        return Poller


__all__ = ["Context", "Poller", "PubSocket", "SubSocket"]
