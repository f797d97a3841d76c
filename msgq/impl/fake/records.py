"""Records on the bus: the vectors and boards of the real core, and what a simulation does with their writes.

A write takes effect before the call returns, unless a fault stops or kills the writer in the middle of the write. The
element then is in the state that a real process would leave (msgq/impl/records/buswrite.pxi). The node goes on; the
later writes of the stopped handle follow the stopped one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgq.common import naming
from msgq.common.schema import Schema
from msgq.impl.fake.bus import current_bus
from msgq.impl.fake.endpoint_state import EndpointState, Inbox
from msgq.impl.fake.handle import OnBus
from msgq.impl.records import core

if TYPE_CHECKING:
    from msgq.common.stats.records import RecordStats
    from msgq.impl.fake.endpoint_state import SimulationBus
    from msgq.impl.records.core import RecordWrite


class RecordsState(EndpointState["WriterInbox"]):
    """A vector or board in a simulation. The messages are `RecordWrite` objects. Each handle has an inbox.

    Attributes:
        schema: schema of the values; None: a board without a schema.
        dtype: dtype of a vector's elements; None: a board.
    """

    is_shared = True

    def __init__(self, handle: Any, bus: SimulationBus) -> None:
        super().__init__(naming.RECORDS_NAME_PREFIX + handle.name, bus)
        self.schema: Schema | None = handle.schema
        self.dtype = getattr(handle, "dtype", None)
        self._file_memory: object = handle._file_memory  # no later file is taken for this one
        self._options: RecordStats | None = None
        self._begun_counts: dict[int, int] = {}
        self._late_writes: list[RecordWrite] = []  # due writes whose elements other writers hold

    def read_options(self, handle: Any) -> RecordStats:
        """Return the statistics from the time of the first write, for the options of the file."""
        if self._options is None:
            self._options = handle.stats()
        return self._options

    def count_begun_write(self, index: int) -> int:
        """Count a write of an element. The write may then be stopped or killed in the middle."""
        self._begun_counts[index] = count = self._begun_counts.get(index, 0) + 1
        return count

    def find_inbox(self, message: RecordWrite) -> WriterInbox:
        """See `EndpointState`."""
        handle: Any = message.handle
        inbox: WriterInbox = handle._inbox
        return inbox

    # ---- writes that were stopped ----

    def has_late_write(self, handle: Any) -> bool:
        """Return True if a write of the handle waits for an element."""
        return any(write.handle is handle for write in self._late_writes)

    def finish_write(self, write: RecordWrite) -> None:
        """Finish a write that was stopped, as soon as no other writer has its elements."""
        self._late_writes.append(write)
        self.finish_late_writes()

    def finish_late_writes(self) -> None:
        """Finish the writes that can go on, those of one handle in their order."""
        is_done = True
        while is_done:  # a finished write releases elements, for which other writes may wait
            is_done = False
            waiting: list[RecordWrite] = []
            for write in self._late_writes:
                if any(earlier.handle is write.handle for earlier in waiting) or not write.finish():
                    waiting.append(write)
                else:
                    is_done = True
            self._late_writes = waiting

    def forget_writes(self, handle: Any) -> None:
        """Forget the late writes of a handle whose node was killed. Other writers take its elements."""
        self._late_writes = [write for write in self._late_writes if write.handle is not handle]
        self.finish_late_writes()


class WriterInbox(Inbox):
    """Writes of one handle that a simulation stops."""

    def __init__(self, state: RecordsState) -> None:
        super().__init__(state.endpoint)
        self._state = state

    def _is_writer_stopped(self, write: RecordWrite) -> bool:
        return bool(self.undelivered) or self._state.has_late_write(write.handle)

    def deliver(self, message: RecordWrite) -> None:
        """See `Inbox`. Do the write, or what is left of it."""
        write: Any = message
        if write.is_held or self._is_writer_stopped(write):
            if not write.is_held:
                write.hold()
            self._state.finish_write(write)
        elif write.handle._bus.can_wait():
            write.complete()
        else:  # if another writer has an element, the call returns, and the write goes on after that writer
            write.hold()
            self._state.finish_write(write)

    def add_undelivered(self, message: RecordWrite) -> None:
        """See `Inbox`. Stop the writer in the middle of the write, or before it if it is stopped already."""
        self._stop_in_middle(message)
        message.hold()

    def drop_message(self, message: RecordWrite) -> None:
        """See `Inbox`. Kill the writer in the middle of the write, or before it if it is stopped."""
        if self._stop_in_middle(message):
            message.abandon()

    def _stop_in_middle(self, write: Any) -> bool:
        """Do the first step of the write. Return False if the writer, or that of its element, is stopped already."""
        is_next = not self._is_writer_stopped(write) and (write.handle._bus.can_wait() or write.is_unlocked())
        if is_next:
            write.stop_in_middle()
        return is_next


class WatcherOnBus(OnBus):
    """Waits for changes on a bus."""

    __slots__ = ()

    def _receive_now(self) -> Any:
        """Return the changes for a generator of a simulation; None: no change."""
        return self.receive(0)  # type: ignore[attr-defined]

    def _default_timeout_ns(self) -> int | None:
        return None


class RecordsOnBus(WatcherOnBus):
    """A handle of a vector or board of a bus."""

    __slots__ = ()

    def _enter_simulation(self, bus: SimulationBus) -> None:
        """See `OnBus`."""
        handle: Any = self  # a handle of the real core, too
        state = bus.find_state(handle.identity[1], lambda: RecordsState(handle, bus))
        handle._observe(state)
        handle._inbox = WriterInbox(state)

    def _leave_simulation(self) -> None:
        """See `OnBus`."""
        handle: Any = self
        if handle._state is not None and not handle._held_writes:
            handle._inbox.undelivered.clear()  # the node was killed; a closed handle first ends its writes
            handle._state.forget_writes(self)

    @staticmethod
    def unlink_name(name: str | bytes, prefix: str | None = None) -> None:
        """Remove a name without opening it."""
        core.unlink_records(naming.validate_records_name(name), current_bus().resolve_prefix(prefix))


class SeqlockVector(RecordsOnBus, core.SeqlockVector):
    """A vector of a bus. The stub msgq/impl/records/core.pyi documents the methods."""

    __slots__ = ("_inbox",)


class Seqlock(RecordsOnBus, core.Seqlock):
    """A record of a bus. The stub msgq/impl/records/core.pyi documents the methods."""

    __slots__ = ("_inbox",)


class KeyObserver(WatcherOnBus, core.KeyObserver):
    """Reads one key of a board of a bus. The stub msgq/impl/records/core.pyi documents the methods."""

    __slots__ = ()

    def __init__(self, _board: Board, _key: str) -> None:
        handle: Any = self
        handle._bus.on_opened(self)


class Board(RecordsOnBus, core.Board):
    """A board of a bus. The stub msgq/impl/records/core.pyi documents the methods."""

    __slots__ = ("_inbox",)

    def observe(self, key: str) -> KeyObserver:
        """Return an observer that reads a key and waits for it."""
        return KeyObserver(self, key)


#: The name of Kickmsg and iceoryx2.
Blackboard = Board
Entry = core.Entry

__all__ = ["Blackboard", "Board", "Entry", "KeyObserver", "Seqlock", "SeqlockVector"]
