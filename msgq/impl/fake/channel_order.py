"""A channel in this process: one order of messages, and the pools that they lie in.

It does setting the headers of msgq/impl/channel do, step by step, so that the same messages are lost: index_ring.h,
pool.h, file.h, and of publisher.h how a slot is taken. A row has its pool here, and an entry the pool instead of the
row.
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
from msgq.impl.fake.bus import Bus, EndpointState, Inbox, fork_error

ROWS = VIEWERS = SUBSCRIBERS = 64
PUBLISHERS = 63
ANY_SUBSCRIBERS = 255
DEFAULTS = {"capacity": 64, "publishers": PUBLISHERS, "subscribers": ANY_SUBSCRIBERS, "stamps": True}
KEPT_DEAD_POOLS = 8  # that stay for those who have not read their messages yet
KEPT_DEAD_BYTES = 1 << 28
LINE = 64
PAGE = 4096
POOL_HEAD = 192


class Entry(NamedTuple):
    """What the order has at a position. No pool: the message was retracted, or there was none."""

    position: int
    pool: Pool | None
    slot: int


class Slot:
    """Room for a message.

    Attributes
    ----------
    holders : the viewers that look at it.
    """

    __slots__ = ("data", "holders", "origin_time", "publish_time")

    def __init__(self) -> None:
        self.data = b""
        self.publish_time = self.origin_time = 0
        self.holders: list[int] = []


class Order:
    """The messages of all publishers. `capacity` and `tail` are 0 before it begins."""

    def __init__(self) -> None:
        self.capacity = self.tail = 0
        self._entries: list[Entry] = []

    def begin(self, capacity: int) -> None:
        """Begin, once; later calls do nothing."""
        if not self.tail:
            self._entries = [Entry(i, None, 0) for i in range(capacity)]
            self.capacity = self.tail = capacity

    def at(self, position: int) -> Entry:
        """Return the entry at the place of a position; it may be of an earlier or a later one."""
        return self._entries[position & self.capacity - 1]

    def publish(self, pool: Pool, slot: int) -> int:
        """Give the message in a slot its position."""
        position = self.tail
        self._entries[position & self.capacity - 1] = Entry(position, pool, slot)
        self.tail += 1
        return position

    def retract(self, entry: Entry) -> None:
        """Take a message out, which is there."""
        self._entries[entry.position & self.capacity - 1] = Entry(entry.position, None, 0)

    def of_pool(self, pool: Pool) -> list[Entry]:
        """Return the entries that a pool's messages have."""
        return [entry for entry in self._entries if entry.pool is pool]

    def oldest(self) -> int:
        """Return the position of the oldest message that is there."""
        return self.tail - self.capacity


class Pool:
    """The slots of one publisher, and which of them is written next.

    Attributes
    ----------
    file : the object that its publisher was made with.
    living : its publisher publishes from it, or a loan of it is open.
    superseded : its publisher has another one, and counts there.
    ending : it is left when the last loan of it is over.
    open_loans : loans that are open.
    removed : its file would be gone, and who has not mapped it would not find it.
    sent, bytes, refused, evicted : as in `Publisher`.
    """

    def __init__(self, file: ChannelFile, row: int, node: str, slots: int, slot_bytes: int) -> None:
        self.file, self.channel, self.row, self.node = file, file.channel, row, node
        self.slot_bytes = slot_bytes
        self.size = pool_size(slots, slot_bytes)
        self.slots = [Slot() for _ in range(slots)]
        self.living, self.superseded, self.ending, self.removed = True, False, False, False
        self.open_loans = self.sent = self.bytes = self.refused = self.evicted = 0
        self._free = list(range(slots - 1, -1, -1))
        self._limbo: list[int] = []
        self._published: deque[tuple[int, int]] = deque()  # position, slot

    def take(self) -> int | None:
        """Return a slot to write; None: each is held or lent. Messages are retracted only if that frees a slot."""
        if self._free:
            return self._free.pop()
        order = self.channel.order
        while True:
            slot = self._reclaim()
            if slot is None:
                slot = self._leave_limbo()
            if slot is not None or all(self.slots[slot].holders for _, slot in self._published):
                return slot
            order.retract(Entry(self._published[0][0], self, self._published[0][1]))
            self.evicted += 1

    def _reclaim(self) -> int | None:
        """Return the slot of a message that has left the order, unless it is held."""
        while self._published:
            position, slot = self._published[0]
            if self.channel.order.at(position) == (position, self, slot):
                return None
            self._published.popleft()
            if not self.slots[slot].holders:
                return slot
            self._limbo.append(slot)
        return None

    def _leave_limbo(self) -> int | None:
        slot = next((slot for slot in self._limbo if not self.slots[slot].holders), None)
        if slot is not None:
            self._limbo.remove(slot)
        return slot

    def has_room(self) -> bool:
        """Tell whether `take` would return a slot."""
        return bool(self._free) or any(not self.slots[slot].holders for slot in self._slots_in_use())

    def _slots_in_use(self) -> list[int]:
        """Return the slots that have a message, or had one that is held."""
        return [*self._limbo, *(slot for _, slot in self._published)]

    def give_back(self, slot: int) -> None:
        """A slot that was taken has no message."""
        self._free.append(slot)

    def publish(self, number: int, data: bytes, publish_time: int, origin_time: int) -> int:
        """Give a message its position."""
        slot = self.slots[number]
        slot.data, slot.publish_time, slot.origin_time = data, publish_time, origin_time
        position = self.channel.order.publish(self, number)
        self._published.append((position, number))
        self.sent += 1
        self.bytes += len(data)
        return position

    def holders(self) -> list[str]:
        """Return who holds the slots, as texts."""
        count: dict[int, int] = {}
        for slot in self._slots_in_use():
            for viewer in set(self.slots[slot].holders):
                count[viewer] = count.get(viewer, 0) + 1
        texts = [f"{self.channel.viewers[viewer]} holds {count[viewer]}" for viewer in sorted(count)]
        return texts + [f"{self.open_loans} are lent here"] * (self.open_loans > 0)

    def end_loan(self, removes_pool: bool) -> None:
        """A loan is over."""
        self.open_loans -= 1
        if self.ending:
            self.leave(removes_pool)

    def leave(self, removes_pool: bool) -> None:
        """Publish no more from here. Messages that are in the order stay, and the pool with them.

        `removes_pool`: remove it now if there are none; else (as garbage) the next one who joins does.
        """
        if self.living and not self.open_loans:
            self.living = False
            if removes_pool and not self.channel.removed:
                self.channel.remove_dead_pools()


class RegisteredSubscriber(Protocol):
    """A subscriber that is listed, for as long as it holds its row."""

    node: str


class ChannelState(EndpointState[Inbox]):
    """What a channel file has: the order, the configuration, and the participants.

    Attributes
    ----------
    config : capacity, publishers, subscribers (255: any number), stamps (a bool); None: nobody has said it.
    rows, viewers, subscribers : pools of publishers; names of subscribers that take views; those that are listed.
    removed : nobody can join any more.
    sender : the mark of who sent the newest message.
    """

    def __init__(
        self, bus: Bus, name: str, creator: tuple[str, int], route: Callable[[EndpointState[Any]], Any]
    ) -> None:
        super().__init__(f"{CHANNEL_NAME_PREFIX}{name}", route)
        self.bus, self.name, self.creator = bus, name, creator
        self.created_ns = bus.clock.now_ns
        self.order = Order()
        self.config: dict[str, Any] = dict.fromkeys(("capacity", "publishers", "subscribers", "stamps"))
        self.schema: Schema | None = None
        self.rows: list[Pool | None] = [None] * PUBLISHERS
        self.viewers: list[str | None] = [None] * VIEWERS
        self.subscribers: list[RegisteredSubscriber | None] = [None] * SUBSCRIBERS
        self.removed = False
        self.sender: object = None

    # ---- publishers ----

    def living(self) -> list[Pool]:
        """Return the pools of living publishers."""
        return [pool for pool in self.rows if pool is not None and pool.living]

    def remove_dead_pools(self, most: int = KEPT_DEAD_POOLS) -> int:
        """Remove the pools of the dead: those out of reach, and the oldest of too many. Returns how many stay."""
        dead = []
        for row, pool in enumerate(self.rows):
            if pool is not None and not pool.living:
                dead.append((max((entry.position + 1 for entry in self.order.of_pool(pool)), default=0), row, pool))
        dead.sort(key=lambda each: each[:2])
        remaining, size = len(dead), sum(pool.size for *_, pool in dead)
        for newest, row, pool in dead:
            if newest and remaining <= most and size <= KEPT_DEAD_BYTES:
                break
            for entry in self.order.of_pool(pool):
                self.order.retract(entry)
            pool.removed, self.rows[row] = True, None
            remaining, size = remaining - 1, size - pool.size
        return remaining

    def check_limit(self) -> None:
        """Refuse a publisher more than there may be. Pools that stay for loans are of publishers that count once."""
        limit = self.config["publishers"]
        if sum(not pool.superseded for pool in self.living()) >= limit:
            raise TooManyPublishersError(f"has as many publishers as it may ({limit}): {self._publishers()}", self.name)

    def free_row(self, remaining: int) -> int:
        """Return a free row; `remaining` pools are of publishers that left."""
        while None not in self.rows:
            if not remaining:
                text = f"all {PUBLISHERS} rows of publishers are in use: {self._publishers()}"
                raise TooManyPublishersError(text, self.name)
            remaining = self.remove_dead_pools(remaining - 1)
        return self.rows.index(None)

    def _publishers(self) -> str:
        count: dict[str, int] = {}
        for pool in self.living():
            count[pool.node] = count.get(pool.node, 0) + 1
        return ", ".join(f"{node} ({rows} rows)" if rows > 1 else node for node, rows in count.items())

    # ---- subscribers ----

    def listen(self, member: RegisteredSubscriber) -> int | None:
        """Return a row for a subscriber; None: it goes on without one."""
        limit = self.config["subscribers"]
        limited = limit is not None and limit <= SUBSCRIBERS
        rows = self.subscribers[:limit] if limited else self.subscribers
        if None in rows:
            row = rows.index(None)
            self.subscribers[row] = member
            return row
        if limited:
            names = ", ".join(member.node for member in self.subscribers if member is not None)
            raise TooManySubscribersError(f"has as many subscribers as it may ({limit}): {names}", self.name)
        return None

    def view(self, node: str) -> int:
        """Return a row for a subscriber that takes views."""
        if None not in self.viewers:
            text = f"has {VIEWERS} subscribers that take views, and no room for more: receive() copies instead"
            raise TooManySubscribersError(text, self.name)
        row = self.viewers.index(None)
        self.viewers[row] = node
        return row


class ChannelFile:
    """One object's view of a channel."""

    path = ""

    def __init__(self, channel: ChannelState, prefix: str, writable: bool) -> None:
        self.channel, self.name, self.prefix, self.writable = channel, channel.name, prefix, writable

    def lock(self) -> None:
        """Whoever joins or changes something does this first; nobody else is in the way here.

        Raises
        ------
        SegmentError : the channel was removed. ForkedSocketError : it is the parent's.
        """
        if self.channel.inherited:
            raise fork_error(self.name)
        if self.channel.removed:
            text = "the channel was removed, and perhaps made anew; what is open goes on, but nobody can join"
            raise SegmentError(f"{text}: open it again", self.name, errno=errno.ENOENT)

    def close(self) -> None:
        """Nothing here keeps a channel from being removed."""

    # ---- configuration ----

    @property
    def config(self) -> tuple[int | None, int | None, int | None, bool | None]:
        """Capacity, most publishers, most subscribers (None also for any number), stamps; None: nobody has said it."""
        config = self.channel.config
        most = None if config["subscribers"] == ANY_SUBSCRIBERS else config["subscribers"]
        return config["capacity"], config["publishers"], most, config["stamps"]

    def configure(
        self,
        capacity: int | None = None,
        publishers: int | None = None,
        subscribers: int | None = None,
        stamps: bool | None = None,
        publishes: bool = False,
    ) -> None:
        """Agree on a configuration; with a publisher all that nobody has said gets its default."""
        asked = {"capacity": capacity, "publishers": publishers, "subscribers": subscribers}
        asked["stamps"] = None if stamps is None else bool(stamps)
        merged = {setting: self._merge_value(setting, value) for setting, value in asked.items()}
        if publishes:
            merged = {setting: DEFAULTS[setting] if value is None else value for setting, value in merged.items()}
        if merged == self.channel.config:
            return
        if not self.writable:
            raise StateError("was opened passive, and cannot set what is still open of the configuration", self.name)
        self.lock()
        self.channel.config = merged
        if merged["capacity"]:
            self.channel.order.begin(merged["capacity"])

    def _merge_value(self, setting: str, asked: Any) -> Any:
        current = self.channel.config[setting]
        if asked is not None and current not in (None, asked):
            shown = "any number" if current == ANY_SUBSCRIBERS and setting == "subscribers" else current
            text = f"has {setting}={shown}, and {setting}={asked} was asked for"
            raise ChannelMismatchError(
                f"{text}; leave it out to accept the existing value, or remove the channel", self.name
            )
        return current if asked is None else asked

    @property
    def messages(self) -> int:
        """How many were published so far, of all publishers."""
        return self.channel.order.tail - self.channel.order.capacity

    @property
    def creator(self) -> tuple[str, int]:
        """Name and pid of who made it."""
        return self.channel.creator

    @property
    def created_ns(self) -> int:
        """When it was made, in virtual time."""
        return self.channel.created_ns

    @property
    def schema(self) -> Schema | None:
        """What describes the messages."""
        return self.channel.schema

    def describe(self, schema: Schema, replace: bool) -> Schema:
        """Set the schema, unless there is one that is not to be replaced; returns the one that is there then."""
        if not self.writable:
            raise StateError("was opened passive, and cannot describe the messages", self.name)
        self.lock()
        if self.channel.schema is None or replace:
            self.channel.schema = schema
        return self.channel.schema

    def unlink(self) -> None:
        """Remove the channel; who has it open goes on."""
        self.lock()
        for pool in self.channel.rows:
            if pool is not None:
                pool.removed = True
        self.channel.removed = True
        del self.channel.bus.channels[self.prefix, self.name]


def pool_stride(slot_bytes: int) -> int:
    """Return the bytes of a slot with its header."""
    return LINE + (slot_bytes + LINE - 1 & -LINE)


def pool_size(slots: int, slot_bytes: int) -> int:
    """Return the bytes that a pool's file would have."""
    return (POOL_HEAD + slots * LINE + PAGE - 1 & -PAGE) + slots * pool_stride(slot_bytes)
