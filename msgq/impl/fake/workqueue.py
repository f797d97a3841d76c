"""Work queues on the bus: the handles of the real core, and what a simulation does during a send.

A message is in the queue when `send` returns, also in a simulation, unless a fault delays it. The simulation then holds
the send between its two steps: the message has its slot, and no consumer sees it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from msgq.common import naming
from msgq.common.naming import QUEUE_NAME_PREFIX
from msgq.impl.fake.bus import InProcessBus, current_bus
from msgq.impl.fake.endpoint_state import EndpointState, Inbox
from msgq.impl.fake.handle import OnBus
from msgq.impl.workqueue import core
from msgq.impl.workqueue.core import HeldSend, Job
from msgq.impl.workqueue.message import Message
from msgq.impl.workqueue.removal import remove_events

if TYPE_CHECKING:
    from msgq.impl.fake.endpoint_state import MessageHandler

__all__ = ["Job", "Message", "MessageQueue"]


class HeldInbox(Inbox):
    """The sends to a queue that a simulation holds."""

    def can_receive(self) -> bool:
        """See `Inbox`."""
        return False

    def has_pending_messages(self) -> bool:
        """See `Inbox`."""
        return False


class QueueState(EndpointState[Inbox]):
    """A work queue in a simulation. A message on its way ends with its `HeldSend`.

    Attributes
    ----------
    handles : open handles, in their order.
    numbers : number of the message in each slot, from 1.
    """

    delivers_exactly_once = True

    def __init__(self, name: str, choose_route: Callable[[EndpointState[Any]], MessageHandler]) -> None:
        super().__init__(QUEUE_NAME_PREFIX + name, choose_route)
        self.handles: list[weakref.ref[MessageQueue]] = []
        self.numbers: dict[int, int] = {}
        self.add_inbox(HeldInbox(lambda message: message[-1].commit()))

    def send(self, held: HeldSend) -> None:
        """Let the simulation commit the message, now or later."""
        self.add_message(held.slot)
        self.deliver_message((self.published_count, held.data, held))

    def add_message(self, slot: int) -> None:
        """Number a message that has this slot."""
        self.published_count += 1
        self.numbers[slot] = self.published_count

    def recover(self) -> None:
        """Return what a killed handle has taken, as the next consumer that looks would do."""
        for reference in self.handles:
            if (handle := reference()) is not None:
                handle._recover()
                return


class MessageQueue(OnBus, core.MessageQueue):
    """One handle of a queue of a bus. The stub msgq/impl/workqueue/core.pyi documents the methods."""

    _state: QueueState
    _simulation: InProcessBus

    def _enter_simulation(self, bus: InProcessBus) -> None:
        """See `OnBus`."""
        self._simulation = bus
        self._state = bus.find_source(self._file_number, lambda route: QueueState(self.name, route))
        self._state.handles.append(weakref.ref(self, self._state.handles.remove))
        self._observe()

    def _leave_simulation(self) -> None:
        """See `OnBus`."""
        self._state.handles.remove(weakref.ref(self))

    def _abandon_handle(self) -> None:
        super()._abandon_handle()
        self._state.recover()

    def _on_sent(self, send: HeldSend) -> None:
        self._state.send(send)

    def _on_delayed(self, slot: int) -> None:
        self._state.add_message(slot)

    def _on_taken(self, slot: int) -> None:
        self._simulation.on_message_taken(self._state, self._state.numbers.get(slot, 0))

    @staticmethod
    def _load_event_publisher() -> Any:
        from msgq.impl.fake.channel import Publisher  # imported late: few queues have events

        return Publisher

    def _reopen_function(self) -> Callable[..., MessageQueue]:
        return reopen_pickled_queue

    def unlink(self) -> None:
        """Remove the queue's name. Open handles continue."""
        remove_queue(cast("InProcessBus", self._bus), self.prefix, self.name)

    @staticmethod
    def unlink_name(name: str | bytes, prefix: str | None = None) -> None:
        """Remove a queue's name, without opening the queue."""
        remove_queue(current_bus(), prefix, naming.validate_queue_name(name))


def remove_queue(bus: InProcessBus, prefix: str | None, name: str) -> None:
    """Remove a queue's name, and its events channel."""
    in_prefix = bus.resolve_prefix(prefix)
    core.unlink_queue(name, in_prefix)
    remove_events(name, in_prefix)


def reopen_pickled_queue(
    name: str, prefix: str, trust: str | None, read: bool, write: bool, block: bool
) -> MessageQueue:
    """Return a handle for a pickled queue."""
    queue = MessageQueue(name, 0, read=read, write=write, prefix=prefix, trust=trust)
    queue.block = block
    return queue
