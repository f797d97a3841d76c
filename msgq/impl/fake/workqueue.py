"""Work queues on the bus: the handles of the real core, and what a simulation does during a send.

A message is in the queue when `send` returns, also in a simulation, unless a fault delays it. The simulation then holds
the send between its two steps: the message has its slot, and no consumer sees it.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from msgq.common import naming
from msgq.common.naming import QUEUE_NAME_PREFIX
from msgq.impl.fake.bus import current_bus
from msgq.impl.fake.endpoint_state import EndpointState, Inbox
from msgq.impl.fake.handle import OnBus
from msgq.impl.workqueue import core
from msgq.impl.workqueue.core import HeldSend, Job
from msgq.impl.workqueue.message import Message

if TYPE_CHECKING:
    from msgq.impl.fake.endpoint_state import SimulationBus

__all__ = ["Job", "Message", "MessageQueue"]


class HeldInbox(Inbox):
    """The sends to a queue that a simulation holds. Its messages are `HeldSend` objects."""

    def deliver(self, message: HeldSend) -> None:
        """See `Inbox`."""
        message.commit()


class QueueState(EndpointState[HeldInbox]):
    """A work queue in a simulation.

    Attributes:
        handles: open handles, in their order.
        numbers: number of the message in each slot, from 1.
    """

    is_shared = restarts_consumer = True

    def __init__(self, name: str, bus: SimulationBus) -> None:
        super().__init__(QUEUE_NAME_PREFIX + name, bus)
        self.handles: list[weakref.ref[MessageQueue]] = []
        self.numbers: dict[int, int] = {}
        self.inboxes.append(HeldInbox(self.endpoint))

    def publish(self, sender: MessageQueue, message: HeldSend) -> None:
        """See `EndpointState`. The simulation commits the message, now or later."""
        self.numbers[message.slot] = self.published_count + 1
        super().publish(sender, message)

    def count_delayed(self, slot: int) -> None:
        """Count a message that is in the queue, but not visible before its time."""
        self.published_count += 1
        self.numbers[slot] = self.published_count

    def on_taken(self, slot: int) -> None:
        """Report to the simulation that a consumer has taken the message in this slot."""
        self._bus.on_message_taken(self, self.numbers.get(slot, 0))

    def recover(self) -> None:
        """Return what a killed handle has taken, as the next consumer that looks would do. Without one, do nothing."""
        for reference in self.handles:
            if (handle := reference()) is not None:
                handle._recover()
                return


class MessageQueue(OnBus, core.MessageQueue):
    """One handle of a queue of a bus. The stub msgq/impl/workqueue/core.pyi documents the methods."""

    _state: QueueState

    def _enter_simulation(self, bus: SimulationBus) -> None:
        """See `OnBus`."""
        self._state = bus.find_state(self._file_number, lambda: QueueState(self.name, bus))
        self._state.handles.append(weakref.ref(self, self._state.handles.remove))
        self._observe()

    def _leave_simulation(self) -> None:
        """See `OnBus`."""
        self._state.handles.remove(weakref.ref(self))
        self._state.recover()

    def _on_sent(self, send: HeldSend) -> None:
        self._state.publish(self, send)

    def _on_delayed(self, slot: int) -> None:
        self._state.count_delayed(slot)

    def _on_taken(self, slot: int) -> None:
        self._state.on_taken(slot)

    @staticmethod
    def _load_event_publisher() -> Any:
        from msgq.impl.fake.channel import Publisher  # imported late: few queues have events

        return Publisher

    @staticmethod
    def unlink_name(name: str | bytes, prefix: str | None = None) -> None:
        """Remove a queue's name, without opening the queue."""
        core.unlink_queue(naming.validate_queue_name(name), current_bus().resolve_prefix(prefix))
