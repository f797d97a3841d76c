"""Common base of the handles of vectors and boards on the fake backend: names, opening, closing, waiting."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from msgq.common import file_permissions, naming, settings
from msgq.errors import EndpointClosedError
from msgq.impl.base.argument_checks import not_connected_error, timeout_ns, warn_in_event_loop
from msgq.impl.fake.bus import InProcessBus, current_bus
from msgq.impl.fake.endpoint_state import EndpointState, fork_error
from msgq.impl.fake.records_stats import read_record_stats
from msgq.impl.fake.records_store import RecordHandleRow, RecordStore
from msgq.impl.fake.waiting import SharedWaitable
from msgq.impl.records import options
from msgq.impl.records.values import ChangeIterator

if TYPE_CHECKING:
    from msgq.common.schema import Schema
    from msgq.common.stats.records import RecordStats


class RecordWatcher(SharedWaitable):
    """An object that can wait for changes: a handle, or an observer of a key."""

    _handle_row: RecordHandleRow | None = None

    @property
    def closed(self) -> bool:
        """True if the object is closed."""
        return self._handle_row is None or self._handle_row.closed

    def close(self) -> None:
        """Close the object."""
        if self._handle_row is not None and not self._handle_row.closed:
            self._handle_row.close_handle()
            self._end_all_waits()

    def _get_usable_row(self) -> RecordHandleRow:
        """Return the row. Raises an error if the object may not be used now."""
        row = self._handle_row
        if row is None or row.closed:
            raise not_connected_error(self._endpoint)
        if row.store.inherited_by_fork:
            raise fork_error(self._endpoint)
        return row

    # ---- waits ----

    def _check_usable(self) -> RecordHandleRow:
        return self._get_usable_row()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a change. Return False at the timeout."""
        wait_ns = timeout_ns(timeout, self._endpoint)
        row = self._get_usable_row()
        if not row.can_receive() and wait_ns:
            limit = None if wait_ns < 0 else wait_ns
            warn_in_event_loop()
            self._bus.wait_until(lambda: row.closed or row.can_receive(), limit, f"a change of {self._endpoint!r}")
            if row.closed:
                raise EndpointClosedError("was closed during the wait", self._endpoint)
        return row.can_receive()

    def receive(self, timeout: float | None = None) -> Any:
        """Return the new values, after a wait of up to `timeout` seconds; None: no change."""
        return self._read_newest() if self.wait(timeout) else None

    def watch(self, timeout: float | None = None) -> ChangeIterator[Any]:
        """Iterate over new values."""
        timeout_ns(timeout, self._endpoint)
        return ChangeIterator(self, timeout)

    def arecv(self) -> Coroutine[Any, Any, Any]:
        """Return the new values, in a task of an asyncio loop."""
        from msgq.impl.base import event_loop

        return event_loop.receive_async(self, 0.0)

    __anext__ = arecv

    def _receive_now(self) -> Any:  # a generator of a simulation gets it
        return self.receive(0)

    def _read_newest(self) -> Any:
        """Return the new values, and mark them as seen."""
        raise NotImplementedError


class RecordHandle(RecordWatcher):
    """An open vector or board."""

    _store: RecordStore

    def __init__(self, name: str, prefix: str | None, trust: str | None, passive: bool, spin_us: int | None) -> None:
        super().__init__()
        self._endpoint, self._passive = name, passive
        self._prefix, self._trust = settings.resolve_prefix(prefix) if name else "", trust
        with settings.overrides(trust=trust):
            file_permissions.trusted_users(name)
        settings.resolve_spin_us(spin_us, name)

    def _is_last_sender(self, source: EndpointState[Any]) -> bool:
        """See `BusMember`."""
        return source is self._store and self._store.last_writer is self._handle_row

    # ---- properties ----

    @property
    def name(self) -> str | None:
        """Name of the records; None: private memory."""
        return self._endpoint or None

    @property
    def prefix(self) -> str:
        """Prefix of the records; "": none."""
        return self._prefix

    @property
    def passive(self) -> bool:
        """True if the handle only observes."""
        return self._passive

    @property
    def path(self) -> str:
        """Empty, because no file exists."""
        return ""

    @property
    def mode(self) -> int:
        """Permissions given at the creation."""
        return self._store.mode

    @property
    def schema(self) -> Schema | None:
        """Schema of the records."""
        return self._store.schema

    @property
    def identity(self) -> tuple[int, int] | None:
        """Unique identity of the records; None: private memory."""
        return self._store.identity if self._endpoint else None

    @property
    def created_ns(self) -> int:
        """Creation time, in virtual time."""
        return self._store.created_ns

    @property
    def creator(self) -> tuple[str, int]:
        """Name and pid of the creator."""
        return self._store.creator

    # ---- coming and going ----

    def stats(self) -> RecordStats:
        """Return writers, counters and, for a board, keys."""
        self._get_usable_row()
        return read_record_stats(self._store, self._prefix)

    def unlink(self) -> None:
        """Remove the name, if any. Open handles continue."""
        self._get_usable_row()
        if self._endpoint:
            remove_records(self._bus, self._prefix, self._endpoint)

    @staticmethod
    def unlink_name(name: str | bytes, prefix: str | None = None) -> None:
        """Remove a name without opening it."""
        remove_records(current_bus(), settings.resolve_prefix(prefix), naming.validate_records_name(name))

    def _get_writable_row(self) -> RecordHandleRow:
        """Return the row. Raises an error if the handle may not write now."""
        row = self._get_usable_row()
        if self._passive:
            raise options.passive_writer_error(self._endpoint)
        return row


def remove_records(bus: InProcessBus, prefix: str, name: str) -> None:
    """Remove the name of a vector or board."""
    if bus.records.pop((prefix, name), None) is None:
        raise options.records_missing_error(name)
