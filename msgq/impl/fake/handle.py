"""Handles of the real core on the current bus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgq.impl.fake.bus import current_bus

if TYPE_CHECKING:
    from msgq.impl.base.core import Bus
    from msgq.impl.fake.bus import InProcessBus
    from msgq.impl.fake.endpoint_state import EndpointState


class OnBus:
    """Lets a handle of the real core open its endpoint on the current bus, instead of shared memory."""

    __slots__ = ()

    def _find_bus(self) -> Bus:
        """See `ForkAwareHandle`."""
        return current_bus()

    def _enter_simulation(self, bus: InProcessBus) -> None:
        """Called when the handle was opened on the bus of a simulation."""

    def _leave_simulation(self) -> None:
        """Called when the handle was closed, after `_enter_simulation`."""

    def _publish_in_simulation(self) -> None:
        """Called after each message or batch of an observed publisher."""

    def _is_last_sender(self, _source: EndpointState[Any]) -> bool:
        """See `BusMember`."""
        return False
