"""A channel, on any backend: arguments are checked here; the rest is the backend's own."""

from __future__ import annotations

from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from msgq.common import naming, settings
from msgq.common.queue_events import EVENTS_SUFFIX
from msgq.common.schema import Schema, require_schema, schema_diff
from msgq.errors import EndpointNameError, InvalidValueError, SchemaMismatchError, StateError
from msgq.impl import backend as backends
from msgq.impl.base.process import process_name

if TYPE_CHECKING:
    from msgq.common.stats.channel import ChannelStats
    from msgq.impl.channel import ChannelFile, Publisher, Subscriber

#: Where backends have their channels.
BACKEND_MODULES = {"msgq.impl.ring": "msgq.impl.channel", "msgq.impl.fake": "msgq.impl.fake.channel"}
CAPACITY_MAX = 8192
PUBLISHERS_MAX = 63
SUBSCRIBERS_MAX = 64
VIEWS_MAX = 16384
SLOTS_MAX = 16384
SLOT_BYTES_MAX = 1 << 40
POOL_BYTES_MAX = 1 << 30  # by default
NODE_NAME_BYTES_MAX = 47


class Channel:
    """Messages of many publishers for many subscribers, in one order, without copies if wanted (channels.md).

    Whoever opens a channel first makes it, and it stays until it is unlinked. The first publisher
    sets what is still open of the configuration, so programs may start in any order. Publishers and subscribers that
    were made here stay open after `close`.

    Any thread may use the object; a publisher or a subscriber serves one thread at a time.

    Attributes
    ----------
    name, prefix, node : of the channel; the prefix that it lives in, "" for none; whose publishers and subscribers are
        made here.
    closed : whether none are made any more.
    """

    _backend_module: ModuleType | None = None  # whose it is; None: the chosen one's

    def __init__(
        self,
        name: str | bytes,
        *,
        capacity: int | None = None,
        publishers: int | None = None,
        subscribers: int | None = None,
        stamps: bool | None = None,
        schema: Schema | None = None,
        strict_schema: bool = False,
        create: bool | None = None,
        passive: bool = False,
        node: str | None = None,
        mode: int | None = None,
        prefix: str | None = None,
        trust: str | None = None,
    ) -> None:
        """Open the channel, or make it.

        Parameters
        ----------
        name : at most 229 bytes, without "/" and ":"; but the events of a work queue are ``"NAME:events"`` (queues.md).
        capacity : messages that stay for slower subscribers, a power of two, 2 to 8192; 64 by default.
        publishers : so many at most at a time, 1 to 63; 63 by default.
        subscribers : so many at most at a time, 1 to 64, passive ones aside; any number by default.
        stamps : whether messages have the time when they were published (22 ns each); True by default.
        schema : describes the messages; it is set if there is none.
        strict_schema : raise when current is another schema; else `schema_matches` is False.
        create : True: only make it; False: only open it; None: either.
        passive : only look on: the channel must be current, its files are opened for reading, and get no trace of us.
            There are no publishers then, and no views.
        node : whose publishers and subscribers they are, for people, at most 47 bytes; the process's name by default.
        mode : permissions of a new channel's files; None: MSGQ_MODE, or 600.
        prefix : instead of OPENPILOT_PREFIX, "" for none.
        trust : whose files are used as one's own are; None: MSGQ_TRUST.

        Raises
        ------
        EndpointNameError, InvalidValueError : an argument makes no sense.
        ChannelMismatchError : another configuration was requested before.
        SchemaMismatchError : current is another schema, and it was to be strict.
        SegmentError : the files cannot be opened or made. CorruptSegmentError: they are no channel.
        BackendNotAvailableError : the chosen backend has no channels.
        """
        self.name = self._validate_name(name)
        self.prefix = settings.resolve_prefix(prefix)
        self.node = _validate_node(node, self.name)
        self.closed = False
        self._module = backends.load_backend_module(BACKEND_MODULES, "channels", self._backend_module)
        self._claimed_schema: Schema | None = None
        if passive and create:
            raise InvalidValueError("create=True and passive=True: who only looks on makes no channel", self.name)
        _check_config(capacity, publishers, subscribers, self.name)
        with settings.overrides(trust=trust):
            self._channel_file: ChannelFile = self._module.open_channel_file(
                self.name, self.prefix, False if passive else create, mode, trust, not passive, self.node
            )
        self._apply_config(capacity, publishers, subscribers, stamps, schema, strict_schema)

    def _validate_name(self, name: str | bytes) -> str:
        checked = naming.validate_channel_name(name)
        if ":" in checked and not checked.endswith(EVENTS_SUFFIX):
            raise EndpointNameError(f"channel {checked!r} has a ':', which broadcasts and mailboxes have (msgq.Node)")
        return checked

    def __repr__(self) -> str:
        return f"<msgq Channel {self.name!r}, {'closed' if self.closed else f'{self.messages} messages published'}>"

    # ---- state ----

    @property
    def capacity(self) -> int | None:
        """Messages that stay for slower subscribers; None: not set yet."""
        return self._channel_file.config[0]

    @property
    def stamps(self) -> bool | None:
        """Whether messages have the time when they were published; None as with `capacity`."""
        return self._channel_file.config[3]

    @property
    def messages(self) -> int:
        """How many were published so far."""
        return self._channel_file.messages

    @property
    def creator(self) -> tuple[str, int]:
        """Name and pid of who made the channel."""
        return self._channel_file.creator

    @property
    def created_ns(self) -> int:
        """When it was made, nanoseconds of the host's clock (clock.md)."""
        return self._channel_file.created_ns

    def stats(self) -> ChannelStats:
        """Return the participants, what dead processes left, and the holders of views. Changes nothing."""
        return self._channel_file.stats()

    def diagnose(self) -> ChannelStats:
        """Do what `stats` does; this is Kickmsg's name."""
        return self.stats()

    # ---- the schema ----

    @property
    def schema(self) -> Schema | None:
        """What describes the messages."""
        return self._channel_file.schema

    @property
    def schema_matches(self) -> bool:
        """Whether the schema is the one that was given here; True when none was."""
        return self._claimed_schema is None or self.schema == self._claimed_schema

    def claim_schema(self, schema: Schema) -> bool:
        """Describe the messages, unless they are described. Returns whether the schema is this one now."""
        self._remember_schema(schema)
        return bool(self._channel_file.set_schema(schema, False) == schema)

    def replace_schema(self, schema: Schema) -> None:
        """Set the schema, and replace an existing one."""
        self._remember_schema(schema)
        self._channel_file.set_schema(schema, True)

    def _remember_schema(self, schema: Schema) -> None:
        require_schema(schema)
        self._claimed_schema = schema

    def _apply_config(
        self,
        capacity: int | None = None,
        publishers: int | None = None,
        subscribers: int | None = None,
        stamps: bool | None = None,
        schema: Schema | None = None,
        strict_schema: bool = False,
    ) -> None:
        """Set the configuration, or compare it with the existing one. The parameters are those of `__init__`."""
        _check_config(capacity, publishers, subscribers, self.name)
        requested = (capacity, publishers, subscribers, stamps)
        if any(value is not None for value in requested):
            self._channel_file.apply_config(*requested)
        if schema is None:
            return
        self._remember_schema(schema)
        current = (
            self._channel_file.set_schema(schema, False) if self._channel_file.writable else self._channel_file.schema
        )
        if strict_schema and current != schema:
            text = f"was to have the schema {schema.name!r}, and has "
            text += (
                "none"
                if current is None
                else f"{current.name!r}, with another {', '.join(schema_diff(current, schema))}"
            )
            raise SchemaMismatchError(text, self.name)

    # ---- taking part ----

    def publisher(
        self, *, slots: int | None = None, slot_bytes: int | None = None, max_bytes: int = POOL_BYTES_MAX
    ) -> Publisher:
        """Return a new publisher, with a pool of its own.

        Parameters
        ----------
        slots : messages that the pool holds, 1 to 16384; by default the capacity and two, in at most 64 MiB, and at
            least 4. With fewer than the capacity its older messages leave the channel earlier.
        slot_bytes : of each; 4096 by default. A larger message makes the pool grow.
        max_bytes : of the pool, however large its messages are; 1 GiB by default.

        Raises
        ------
        TooManyPublishersError : the channel has as many as it may.
        MessageTooLargeError : the pool would be larger than `max_bytes`.
        SegmentError : no space for the pool, or the channel was removed.
        StateError : the channel is closed or passive.
        """
        self._check_not_closed()
        if not self._channel_file.writable:
            raise StateError("was opened passive, and cannot publish", self.name)
        _check_setting_range("slots", slots, 1, SLOTS_MAX, self.name)
        _check_setting_range("slot_bytes", slot_bytes, 1, SLOT_BYTES_MAX, self.name)
        _check_setting_range("max_bytes", max_bytes, 1, SLOT_BYTES_MAX, self.name)
        publisher: Publisher = self._module.open_publisher(self._channel_file, self.node, slots, slot_bytes, max_bytes)
        return publisher

    def subscriber(
        self,
        *,
        history: int = 0,
        max_views: int = 8,
        conflate: bool = False,
        on_lapped: Literal["oldest", "newest"] = "oldest",
        on_lost: Literal["count", "raise"] = "count",
        own: bool = True,
        spin_us: int | None = None,
    ) -> Subscriber:
        """Return a new subscriber, which receives messages published from now on.

        Parameters
        ----------
        history : messages before that, as many as are still current.
        max_views : so many it may hold at once.
        conflate : receive the newest message only; skipped messages add to `lost`.
        on_lapped : where it goes on when publishers overtook it by more than the capacity: at the oldest message that
            will still be current a moment later, or at the present.
        on_lost : "count": only `lost` tells; "raise": the next call raises LostMessagesError, once for each loss.
        own : whether it gets messages of publishers that were made by this object.
        spin_us : microseconds that a receive spins before it sleeps; None: MSGQ_SPIN_US.

        Raises
        ------
        TooManySubscribersError : the channel has as many as it may.
        InvalidValueError, StateError, SegmentError : an argument makes no sense; closed; removed.
        """
        self._check_not_closed()
        _check_setting_range("history", history, 0, 2**62, self.name)
        _check_setting_range("max_views", max_views, 0, VIEWS_MAX, self.name)
        _check_setting_choice("on_lapped", on_lapped, ("oldest", "newest"), self.name)
        _check_setting_choice("on_lost", on_lost, ("count", "raise"), self.name)
        subscriber: Subscriber = self._module.open_subscriber(
            self._channel_file,
            self.node,
            history,
            max_views,
            conflate,
            on_lapped == "newest",
            on_lost == "raise",
            own,
            spin_us,
        )
        return subscriber

    # ---- the end ----

    def unlink(self) -> None:
        """Remove the channel. Those that have it open go on among themselves; who opens it then makes another one."""
        self._channel_file.unlink()

    @staticmethod
    def unlink_name(name: str | bytes, prefix: str | None = None) -> None:
        """Remove a channel by its name. The errors are those of `unlink`."""
        with Channel(name, create=False, prefix=prefix) as channel:
            channel.unlink()

    def close(self) -> None:
        """Make no more publishers and subscribers here. Those that were made stay open."""
        self.closed = True
        self._channel_file.close()

    def _check_not_closed(self) -> None:
        if self.closed:
            raise StateError("the channel object was closed; open the channel again", self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ReservedChannel(Channel):
    """A channel with a ":" in its name: a broadcast or a mailbox, which a Node names."""

    def _validate_name(self, name: str | bytes) -> str:
        return naming.validate_channel_name(name)


def _validate_node(node: str | None, channel: str) -> str:
    """Return the name of a node, cut to nothing: it is refused when it does not fit."""
    name = process_name() if node is None else node
    if not isinstance(name, str):
        raise TypeError(f"a node's name is str, not {type(name).__name__}")
    if "\0" in name or len(name.encode()) > NODE_NAME_BYTES_MAX:
        size = len(name.encode())
        text = f"node {name[:40]!r} has {size} bytes; at most {NODE_NAME_BYTES_MAX} are allowed, without NUL"
        raise EndpointNameError(text, channel)
    return name


def _check_config(capacity: int | None, publishers: int | None, subscribers: int | None, name: str) -> None:
    _check_setting_range("capacity", capacity, 2, CAPACITY_MAX, name)
    if capacity is not None and capacity & capacity - 1:
        raise InvalidValueError(f"capacity is {capacity}; give a power of two, 2 to {CAPACITY_MAX}", name)
    _check_setting_range("publishers", publishers, 1, PUBLISHERS_MAX, name)
    _check_setting_range("subscribers", subscribers, 1, SUBSCRIBERS_MAX, name)


def _check_setting_range(setting: str, value: Any, least: int, most: int, name: str) -> None:
    if value is not None and not (isinstance(value, int) and least <= value <= most):
        raise InvalidValueError(f"{setting} is {value!r}; give {least} to {most}", name)


def _check_setting_choice(setting: str, value: str, known: tuple[str, ...], name: str) -> None:
    if value not in known:
        raise InvalidValueError(f"{setting} is {value!r}; give {' or '.join(map(repr, known))}", name)
