"""Handles of the real core on the current bus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgq.impl.fake.bus import current_bus

if TYPE_CHECKING:
    from msgq.impl.base.core import Bus
    from msgq.impl.fake.endpoint_state import EndpointState, SimulationBus, SubscriberInbox


class OnBus:
    """Lets a handle of the real core open its endpoint on the current bus, instead of shared memory."""

    __slots__ = ()

    def _choose_bus(self) -> Bus:
        """See `ForkAwareHandle`."""
        return current_bus()

    def _enter_simulation(self, bus: SimulationBus) -> None:
        """Called when the handle was opened on the bus of a simulation."""

    def _leave_simulation(self) -> None:
        """Called when the handle was closed, after `_enter_simulation`."""


class PublisherOnBus(OnBus):
    """A publisher. The bus of a simulation takes its messages by `_read_published`, and passes them to `_state`."""

    __slots__ = ()

    _state: EndpointState[Any]


class SubscriberOnBus(OnBus):
    """A subscriber. In a simulation, `_inbox` has the messages on their way to it."""

    __slots__ = ()

    _inbox: SubscriberInbox

    def _leave_simulation(self) -> None:
        """See `OnBus`."""
        self._inbox.close()
