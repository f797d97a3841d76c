"""State of a channel in this process: the messages of all publishers in one order, and the pools with their payloads.

The steps are those of the headers of msgq/impl/channel, so that the same messages are lost: index_ring.h, pool.h,
file.h, and the slot selection of publisher.h. Here a row has its pool object, and an entry refers to the pool instead
of the row.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from msgq.common.naming import CHANNEL_NAME_PREFIX
from msgq.common.schema import Schema
from msgq.errors import (
    ChannelMismatchError,
    SegmentError,
    StateError,
    TooManyPublishersError,
    TooManySubscribersError,
)
from msgq.impl.fake.bus import InProcessBus
from msgq.impl.fake.endpoint_state import EndpointState, Inbox, fork_error

VIEWER_ROWS = SUBSCRIBER_ROWS = 64
PUBLISHER_ROWS = 63
UNLIMITED_SUBSCRIBERS = 255
DEFAULT_CONFIG = {"capacity": 64, "publishers": PUBLISHER_ROWS, "subscribers": UNLIMITED_SUBSCRIBERS, "stamps": True}
KEPT_DEAD_POOLS = 8  # kept for subscribers that have not read the messages yet
KEPT_DEAD_BYTES = 1 << 28
CACHE_LINE_BYTES = 64
PAGE_BYTES = 4096
POOL_HEADER_BYTES = 192


class IndexEntry(NamedTuple):
    """Entry of the index ring at a position. Without a pool: the message was retracted, or none was published."""

    position: int
    pool: PublisherPool | None
    slot: int


class PoolSlot:
    """Slot for a message.

    Attributes
    ----------
    viewer_rows : rows of the viewers that pin the slot.
    """

    __slots__ = ("data", "origin_time", "publish_time", "viewer_rows")

    def __init__(self) -> None:
        self.data = b""
        self.publish_time = self.origin_time = 0
        self.viewer_rows: list[int] = []


class IndexRing:
    """Ring with the messages of all publishers. `capacity` and `tail` are 0 before the capacity is set."""

    def __init__(self) -> None:
        self.capacity = self.tail = 0
        self._entries: list[IndexEntry] = []

    def allocate_entries(self, capacity: int) -> None:
        """Set the capacity. Later calls have no effect."""
        if not self.tail:
            self._entries = [IndexEntry(i, None, 0) for i in range(capacity)]
            self.capacity = self.tail = capacity

    def read_entry(self, position: int) -> IndexEntry:
        """Return the entry in the element of a position. The entry may belong to an earlier or later position."""
        return self._entries[position & self.capacity - 1]

    def append_entry(self, pool: PublisherPool, slot: int) -> int:
        """Append the message in a slot, and return its position."""
        position = self.tail
        self._entries[position & self.capacity - 1] = IndexEntry(position, pool, slot)
        self.tail += 1
        return position

    def retract_entry(self, entry: IndexEntry) -> None:
        """Retract an existing message."""
        self._entries[entry.position & self.capacity - 1] = IndexEntry(entry.position, None, 0)

    def find_pool_entries(self, pool: PublisherPool) -> list[IndexEntry]:
        """Return the entries with messages of a pool."""
        return [entry for entry in self._entries if entry.pool is pool]

    def oldest_position(self) -> int:
        """Return the position of the oldest message in the channel."""
        return self.tail - self.capacity


class PublisherPool:
    """Slots of one publisher, and the selection of the next slot.

    Attributes
    ----------
    file : channel object of the publisher.
    is_living : True: the publisher publishes from this pool, or a loan of it is open.
    is_superseded : True: the publisher has another pool.
    leaves_after_loans : True: the pool is retired when its last loan ends.
    open_loan_count : number of open loans.
    is_removed : True: the file would be removed, and new participants could not map it.
    sent, bytes, refused, evicted : as in `Publisher`.
    """

    def __init__(self, file: ChannelFile, row: int, node: str, slots: int, slot_bytes: int) -> None:
        self.file, self.channel, self.row, self.node = file, file.channel, row, node
        self.slot_bytes = slot_bytes
        self.file_bytes = pool_file_bytes(slots, slot_bytes)
        self.slots = [PoolSlot() for _ in range(slots)]
        self.is_living, self.is_superseded, self.leaves_after_loans, self.is_removed = True, False, False, False
        self.open_loan_count = self.sent = self.bytes = self.refused = self.evicted = 0
        self._free_slots = list(range(slots - 1, -1, -1))
        self._held_slots: list[int] = []
        self._published_slots: deque[tuple[int, int]] = deque()  # position, slot

    def acquire_slot(self) -> int | None:
        """Return a slot to write; None: all are pinned or lent. Messages are retracted only if that frees a slot."""
        if self._free_slots:
            return self._free_slots.pop()
        index_ring = self.channel.index_ring
        while True:
            slot = self._take_evicted_slot()
            if slot is None:
                slot = self._reclaim_released_slot()
            if slot is not None or all(self.slots[slot].viewer_rows for _, slot in self._published_slots):
                return slot
            index_ring.retract_entry(IndexEntry(self._published_slots[0][0], self, self._published_slots[0][1]))
            self.evicted += 1

    def _take_evicted_slot(self) -> int | None:
        """Return the unpinned slot of a message that has left the channel."""
        while self._published_slots:
            position, slot = self._published_slots[0]
            if self.channel.index_ring.read_entry(position) == (position, self, slot):
                return None
            self._published_slots.popleft()
            if not self.slots[slot].viewer_rows:
                return slot
            self._held_slots.append(slot)
        return None

    def _reclaim_released_slot(self) -> int | None:
        slot = next((slot for slot in self._held_slots if not self.slots[slot].viewer_rows), None)
        if slot is not None:
            self._held_slots.remove(slot)
        return slot

    def has_free_slot(self) -> bool:
        """Return True if `acquire_slot` would return a slot."""
        return bool(self._free_slots) or any(not self.slots[slot].viewer_rows for slot in self._find_slots_in_use())

    def _find_slots_in_use(self) -> list[int]:
        """Return the slots with a message, or with a pinned former message."""
        return [*self._held_slots, *(slot for _, slot in self._published_slots)]

    def return_slot(self, slot: int) -> None:
        """Return an acquired slot without a message."""
        self._free_slots.append(slot)

    def publish_slot(self, number: int, data: bytes, publish_time: int, origin_time: int) -> int:
        """Publish the message in a slot, and return its position."""
        slot = self.slots[number]
        slot.data, slot.publish_time, slot.origin_time = data, publish_time, origin_time
        position = self.channel.index_ring.append_entry(self, number)
        self._published_slots.append((position, number))
        self.sent += 1
        self.bytes += len(data)
        return position

    def describe_holders(self) -> list[str]:
        """Return texts about the holders of slots."""
        slot_counts: dict[int, int] = {}
        for slot in self._find_slots_in_use():
            for viewer in set(self.slots[slot].viewer_rows):
                slot_counts[viewer] = slot_counts.get(viewer, 0) + 1
        texts = [f"{self.channel.viewer_names[viewer]} holds {slot_counts[viewer]}" for viewer in sorted(slot_counts)]
        return texts + [f"{self.open_loan_count} in open loans of this publisher"] * (self.open_loan_count > 0)

    def end_loan(self, removes_pool: bool) -> None:
        """End a loan."""
        self.open_loan_count -= 1
        if self.leaves_after_loans:
            self.retire_pool(removes_pool)

    def retire_pool(self, removes_pool: bool) -> None:
        """Stop publishing from this pool. The pool stays while the channel contains its messages.

        `removes_pool`: True: remove a pool without messages now. False: leave the removal to the next participant that
        joins.
        """
        if self.is_living and not self.open_loan_count:
            self.is_living = False
            if removes_pool and not self.channel.is_removed:
                self.channel.remove_dead_pools()


class RegisteredSubscriber(Protocol):
    """A subscriber with a row."""

    node: str


class ChannelState(EndpointState[Inbox]):
    """Content of a channel file: messages, configuration, and participants.

    Attributes
    ----------
    config : capacity, publishers, subscribers (255: any number), stamps (a bool); None: not set.
    publisher_pools : pool by row; None: free row.
    viewer_names : names of subscribers with views, by row.
    registered_subscribers : subscribers by row.
    is_removed : True: no process can join.
    last_sender : mark of the sender of the newest message.
    """

    def __init__(
        self, bus: InProcessBus, name: str, creator: tuple[str, int], choose_route: Callable[[EndpointState[Any]], Any]
    ) -> None:
        super().__init__(f"{CHANNEL_NAME_PREFIX}{name}", choose_route)
        self.bus, self.name, self.creator = bus, name, creator
        self.created_ns = bus.clock.now_ns
        self.index_ring = IndexRing()
        self.config: dict[str, Any] = dict.fromkeys(("capacity", "publishers", "subscribers", "stamps"))
        self.schema: Schema | None = None
        self.publisher_pools: list[PublisherPool | None] = [None] * PUBLISHER_ROWS
        self.viewer_names: list[str | None] = [None] * VIEWER_ROWS
        self.registered_subscribers: list[RegisteredSubscriber | None] = [None] * SUBSCRIBER_ROWS
        self.is_removed = False
        self.last_sender: object = None

    # ---- publishers ----

    def find_living_pools(self) -> list[PublisherPool]:
        """Return the pools of living publishers."""
        return [pool for pool in self.publisher_pools if pool is not None and pool.is_living]

    def remove_dead_pools(self, kept_count_max: int = KEPT_DEAD_POOLS) -> int:
        """Remove pools of dead publishers: unreachable pools, and the oldest excess pools.

        Return the number of remaining ones.
        """
        dead_pools = []
        for row, pool in enumerate(self.publisher_pools):
            if pool is not None and not pool.is_living:
                dead_pools.append(
                    (
                        max((entry.position + 1 for entry in self.index_ring.find_pool_entries(pool)), default=0),
                        row,
                        pool,
                    )
                )
        dead_pools.sort(key=lambda dead_pool: dead_pool[:2])
        dead_count, dead_bytes = len(dead_pools), sum(pool.file_bytes for *_, pool in dead_pools)
        for newest, row, pool in dead_pools:
            if newest and dead_count <= kept_count_max and dead_bytes <= KEPT_DEAD_BYTES:
                break
            for entry in self.index_ring.find_pool_entries(pool):
                self.index_ring.retract_entry(entry)
            pool.is_removed, self.publisher_pools[row] = True, None
            dead_count, dead_bytes = dead_count - 1, dead_bytes - pool.file_bytes
        return dead_count

    def check_publisher_limit(self) -> None:
        """Raise an error if the channel has its maximum of publishers.

        Pools that stay only for loans do not count separately.
        """
        limit = self.config["publishers"]
        if sum(not pool.is_superseded for pool in self.find_living_pools()) >= limit:
            raise TooManyPublishersError(
                f"number of publishers is at its limit ({limit}): {self._describe_publishers()}", self.name
            )

    def find_free_publisher_row(self, dead_count: int) -> int:
        """Return a free row. `dead_count`: number of pools of publishers that left."""
        while None not in self.publisher_pools:
            if not dead_count:
                text = f"all {PUBLISHER_ROWS} rows of publishers are in use: {self._describe_publishers()}"
                raise TooManyPublishersError(text, self.name)
            dead_count = self.remove_dead_pools(dead_count - 1)
        return self.publisher_pools.index(None)

    def _describe_publishers(self) -> str:
        row_counts: dict[str, int] = {}
        for pool in self.find_living_pools():
            row_counts[pool.node] = row_counts.get(pool.node, 0) + 1
        return ", ".join(f"{node} ({rows} rows)" if rows > 1 else node for node, rows in row_counts.items())

    # ---- subscribers ----

    def register_subscriber(self, subscriber: RegisteredSubscriber) -> int | None:
        """Return a row for a subscriber; None: no free row, and the subscriber continues without one."""
        limit = self.config["subscribers"]
        limited = limit is not None and limit <= SUBSCRIBER_ROWS
        rows = self.registered_subscribers[:limit] if limited else self.registered_subscribers
        if None in rows:
            row = rows.index(None)
            self.registered_subscribers[row] = subscriber
            return row
        if limited:
            names = ", ".join(subscriber.node for subscriber in self.registered_subscribers if subscriber is not None)
            raise TooManySubscribersError(f"number of subscribers is at its limit ({limit}): {names}", self.name)
        return None

    def register_viewer(self, node: str) -> int:
        """Return a row for a subscriber with views."""
        if None not in self.viewer_names:
            text = f"has {VIEWER_ROWS} subscribers with views, its limit; use receive(), which copies"
            raise TooManySubscribersError(text, self.name)
        row = self.viewer_names.index(None)
        self.viewer_names[row] = node
        return row


class ChannelFile:
    """A channel as seen by one object."""

    path = ""

    def __init__(self, channel: ChannelState, prefix: str, writable: bool) -> None:
        self.channel, self.name, self.prefix, self.writable = channel, channel.name, prefix, writable

    def lock(self) -> None:
        """Called before a participant joins or changes the channel. In one process, no lock is necessary.

        Raises
        ------
        SegmentError : the channel was removed.
        ForkedSocketError : the channel belongs to the parent.
        """
        if self.channel.inherited_by_fork:
            raise fork_error(self.name)
        if self.channel.is_removed:
            text = "channel was removed, and perhaps created again; open handles continue, but cannot join the channel"
            raise SegmentError(f"{text}: open it again", self.name, errno=errno.ENOENT)

    def close(self) -> None:
        """Do nothing, because an open object does not prevent a removal here."""

    # ---- configuration ----

    @property
    def config(self) -> tuple[int | None, int | None, int | None, bool | None]:
        """Capacity, publisher limit, subscriber limit (None: also any number), stamps; None: not set."""
        config = self.channel.config
        subscribers_max = None if config["subscribers"] == UNLIMITED_SUBSCRIBERS else config["subscribers"]
        return config["capacity"], config["publishers"], subscribers_max, config["stamps"]

    def apply_config(
        self,
        capacity: int | None = None,
        publishers: int | None = None,
        subscribers: int | None = None,
        stamps: bool | None = None,
        publishes: bool = False,
    ) -> None:
        """Set or compare the configuration. For a publisher, missing values get their defaults."""
        requested = {"capacity": capacity, "publishers": publishers, "subscribers": subscribers}
        requested["stamps"] = None if stamps is None else bool(stamps)
        merged = {setting: self._merge_setting(setting, value) for setting, value in requested.items()}
        if publishes:
            merged = {setting: DEFAULT_CONFIG[setting] if value is None else value for setting, value in merged.items()}
        if merged == self.channel.config:
            return
        if not self.writable:
            raise StateError(
                "has no complete configuration yet, and a passive handle cannot set it; open it without passive=True",
                self.name,
            )
        self.lock()
        self.channel.config = merged
        if merged["capacity"]:
            self.channel.index_ring.allocate_entries(merged["capacity"])

    def _merge_setting(self, setting: str, requested: Any) -> Any:
        current = self.channel.config[setting]
        if requested is not None and current not in (None, requested):
            shown = "any number" if current == UNLIMITED_SUBSCRIBERS and setting == "subscribers" else current
            text = f"has {setting}={shown}, but {setting}={requested} was requested"
            raise ChannelMismatchError(
                f"{text}; omit the option to use the existing value, or remove the channel", self.name
            )
        return current if requested is None else requested

    @property
    def messages(self) -> int:
        """Number of messages published by all publishers."""
        return self.channel.index_ring.tail - self.channel.index_ring.capacity

    @property
    def creator(self) -> tuple[str, int]:
        """Name and pid of the creator."""
        return self.channel.creator

    @property
    def created_ns(self) -> int:
        """Creation time, in virtual time."""
        return self.channel.created_ns

    @property
    def schema(self) -> Schema | None:
        """Schema of the messages."""
        return self.channel.schema

    def set_schema(self, schema: Schema, replace: bool) -> Schema:
        """Set the schema. `replace`: True to replace an existing one. Return the schema after the call."""
        if not self.writable:
            raise StateError("was opened passive, and cannot set a schema; open it without passive=True", self.name)
        self.lock()
        if self.channel.schema is None or replace:
            self.channel.schema = schema
        return self.channel.schema

    def unlink(self) -> None:
        """Remove the channel. Open objects continue to use it."""
        self.lock()
        for pool in self.channel.publisher_pools:
            if pool is not None:
                pool.is_removed = True
        self.channel.is_removed = True
        del self.channel.bus.channels[self.prefix, self.name]


def slot_stride_bytes(slot_bytes: int) -> int:
    """Return the bytes of a slot with its header."""
    return CACHE_LINE_BYTES + (slot_bytes + CACHE_LINE_BYTES - 1 & -CACHE_LINE_BYTES)


def pool_file_bytes(slots: int, slot_bytes: int) -> int:
    """Return the bytes of the pool's file in shared memory."""
    return (POOL_HEADER_BYTES + slots * CACHE_LINE_BYTES + PAGE_BYTES - 1 & -PAGE_BYTES) + slots * slot_stride_bytes(
        slot_bytes
    )
