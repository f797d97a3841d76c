"""Channel objects of any backend. This module checks the arguments."""

from __future__ import annotations

from msgq.common import naming, settings
from msgq.common.closing import ClosingContext
from msgq.common.naming import EVENTS_SUFFIX
from msgq.errors import EndpointNameError, InvalidValueError, SchemaMismatchError, StateError
from msgq.impl import backend as backends
from msgq.impl.base.foreign_names import add_advice
from msgq.impl.base.process import process_name
from msgq.impl.channel.core import check_config, check_publisher_settings, check_subscriber_settings

TYPE_CHECKING = False  # avoids the import of `typing`; see msgq/__init__.py
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Literal

    from msgq.common.schema import Schema
    from msgq.common.stats.channel import ChannelStats
    from msgq.impl.channel import ChannelFile, Publisher, Subscriber

#: Modules with the channels of each backend.
BACKEND_MODULES = {"msgq.impl.ring": "msgq.impl.channel", "msgq.impl.fake": "msgq.impl.fake.channel"}
POOL_BYTES_MAX = 1 << 30  # default bytes of a publisher's pool
NODE_NAME_BYTES_MAX = 47
_VALID_NAMES_MAX = 64

_valid_names: set[str] = set()  # a few known ones, because each opening checks its name


@add_advice
class Channel(ClosingContext):
    """A stream of messages from many publishers to many subscribers, in one order (docs/guides/channels.md).

    The first process that opens a channel creates it. The channel stays until `unlink`. The first publisher sets the
    missing parts of the configuration, so programs may start in any order. Publishers and subscribers stay open after
    `close`.

    Any thread may use the object. One thread at a time may use a publisher or a subscriber.

    Args:
        name: name of the channel, at most 229 bytes, without "/" and ":". Events of a work queue have the name
            ``"NAME:events"`` (docs/guides/queues.md).
        capacity: number of messages that stay readable, a power of two, 2 to 8192; default: 64.
        publishers: maximum number of publishers, 1 to 63; default: 63.
        subscribers: maximum number of subscribers, 1 to 64, without passive ones; default: unlimited.
        stamps: True: each message carries its publishing time (22 ns per message). Default: True.
        schema: description of the messages, set if the channel has none.
        strict_schema: True: raise an error if the channel has another schema. False: set `schema_matches` to False.
        create: True: create a new channel only. False: open an existing channel only. None: either.
        passive: True: observe an existing channel read-only, without a trace. No publishers and no views are possible.
        node: name of the node for statistics, at most 47 bytes; None: the name of the process.
        mode: permissions of new files, for example 0o660; None: MSGQ_MODE, else 0o600.
        prefix: prefix of the channel, "" for none; None: OPENPILOT_PREFIX.
        trust: users whose files are accepted besides own files and root's; None: MSGQ_TRUST.

    Raises:
        EndpointNameError, InvalidValueError: an argument is invalid.
        ChannelMismatchError: the channel has another configuration.
        SchemaMismatchError: the channel has another schema, and `strict_schema` is True.
        SegmentError: the files cannot be opened or created.
        CorruptSegmentError: the files are not a channel.
        BackendNotAvailableError: the chosen backend has no channels.

    Attributes:
        name: name of the channel.
        prefix: prefix of the channel; "" is no prefix.
        node: name of the node that the publishers and subscribers of this object belong to.
        closed: True after `close`.
    """

    _backend_module: ModuleType | None = None  # backend of this class; None: the chosen backend

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
        """Open the channel, or create it."""
        self.name: str = name if type(name) is str and name in _valid_names else self._validate_name(name)
        self.prefix: str = settings.resolve_prefix(prefix)
        self.node: str = process_name() if node is None else _validate_node(node, self.name)
        self.closed: bool = False
        self._module = backends.load_backend_module(BACKEND_MODULES, "channels", self._backend_module)
        self._claimed_schema: Schema | None = None
        if self.prefix and not passive and self._module.__name__ == BACKEND_MODULES["msgq.impl.ring"]:
            settings.refuse_bus_prefix(self.prefix, self.name)
        if passive and create:
            raise InvalidValueError(
                "create=True and passive=True exclude each other: a passive handle cannot create a channel", self.name
            )
        check_config(capacity, publishers, subscribers, self.name)
        self._channel_file: ChannelFile = self._module.open_channel_file(
            self.name, self.prefix, False if passive else create, mode, trust, not passive, self.node
        )
        self._channel_file.apply_config(capacity, publishers, subscribers, stamps)
        if schema is not None:
            self._apply_schema(schema, strict_schema)

    def _validate_name(self, name: str | bytes) -> str:
        checked = naming.validate_channel_name(name)
        if ":" in checked and not checked.endswith(EVENTS_SUFFIX):
            raise EndpointNameError(
                f"channel name {checked!r} has a ':', which is reserved for broadcasts and mailboxes (msgq.Node)"
            )
        if len(_valid_names) >= _VALID_NAMES_MAX:
            _valid_names.clear()
        _valid_names.add(checked)
        return checked

    def __repr__(self) -> str:
        return f"<msgq Channel {self.name!r}, {'closed' if self.closed else f'{self.messages} messages published'}>"

    # ---- state ----

    @property
    def capacity(self) -> int | None:
        """Number of messages that stay readable; None: not set yet."""
        return self._channel_file.config[0]

    @property
    def stamps(self) -> bool | None:
        """True if messages carry their publishing time; None: not set yet."""
        return self._channel_file.config[3]

    @property
    def messages(self) -> int:
        """Number of messages published since creation."""
        return self._channel_file.messages

    @property
    def creator(self) -> tuple[str, int]:
        """Name and pid of the process that created the channel."""
        return self._channel_file.creator

    @property
    def created_ns(self) -> int:
        """Creation time in nanoseconds of the host's clock (docs/internals/clock.md)."""
        return self._channel_file.created_ns

    def stats(self) -> ChannelStats:
        """Return the participants, leftovers of dead processes, and holders of views. Changes nothing."""
        return self._channel_file.stats()

    def diagnose(self) -> ChannelStats:
        """Do the same as `stats` (Kickmsg's name)."""
        return self.stats()

    # ---- the schema ----

    @property
    def schema(self) -> Schema | None:
        """Description of the messages; None: not set."""
        return self._channel_file.schema

    @property
    def schema_matches(self) -> bool:
        """True if the channel has the schema that you gave, or if you gave none."""
        return self._claimed_schema is None or self.schema == self._claimed_schema

    def claim_schema(self, schema: Schema) -> bool:
        """Set the schema unless the channel has one. Return True if the channel now has this schema."""
        if self.closed:
            raise self._closed_error()
        self._remember_schema(schema)
        return bool(self._channel_file.set_schema(schema, False) == schema)

    def replace_schema(self, schema: Schema) -> None:
        """Set the schema. Replaces an existing schema."""
        if self.closed:
            raise self._closed_error()
        self._remember_schema(schema)
        self._channel_file.set_schema(schema, True)

    def _remember_schema(self, schema: Schema) -> None:
        from msgq.common.schema import require_schema  # imported late: few channels have a schema

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
        """Set the configuration, or compare the existing one. The parameters are those of `__init__`."""
        check_config(capacity, publishers, subscribers, self.name)
        self._channel_file.apply_config(capacity, publishers, subscribers, stamps)
        if schema is not None:
            self._apply_schema(schema, strict_schema)

    def _apply_schema(self, schema: Schema, strict_schema: bool) -> None:
        self._remember_schema(schema)
        current = (
            self._channel_file.set_schema(schema, False) if self._channel_file.writable else self._channel_file.schema
        )
        if strict_schema and current != schema:
            from msgq.common.schema import schema_diff

            text = f"schema mismatch: expected {schema.name!r}, found "
            text += (
                "none"
                if current is None
                else f"{current.name!r} (differs in {', '.join(schema_diff(current, schema))})"
            )
            raise SchemaMismatchError(text, self.name)

    # ---- taking part ----

    def publisher(
        self, *, slots: int | None = None, slot_bytes: int | None = None, max_bytes: int = POOL_BYTES_MAX
    ) -> Publisher:
        """Create a publisher with its own pool.

        Args:
            slots: number of messages that the pool holds, 1 to 16384. Default: the capacity plus 2, within 64 MiB, at
                least 4. With fewer slots than the capacity, the publisher's oldest messages leave the channel earlier.
            slot_bytes: bytes of each slot; default: 4096. A larger message makes the pool grow.
            max_bytes: maximum bytes of the pool, for any message size; default: 1 GiB.

        Raises:
            TooManyPublishersError: the channel has its maximum number of publishers.
            MessageTooLargeError: the pool would exceed `max_bytes`.
            SegmentError: no memory for the pool, or the channel was removed.
            StateError: the channel object is closed or passive.
            InvalidValueError: an argument is out of range.
        """
        if self.closed:
            raise self._closed_error()
        if not self._channel_file.writable:
            raise StateError("channel was opened passive, and cannot publish; open it without passive=True", self.name)
        check_publisher_settings(slots, slot_bytes, max_bytes, self.name)
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
        """Create a subscriber. The subscriber receives messages that are published from now on.

        Args:
            history: number of earlier messages to receive, as far as the channel still has them.
            max_views: maximum number of views that the subscriber may hold.
            conflate: receive the newest message only. Skipped messages add to `lost`.
            on_lapped: position after publishers overtook the subscriber by more than the capacity. "oldest": the oldest
                message that will stay readable for a moment. "newest": the newest position.
            on_lost: "count": losses add to `lost` only. "raise": the next call raises LostMessagesError, once for each
                loss.
            own: True: also receive messages of publishers that this object created.
            spin_us: microseconds that a receive polls before it sleeps; None: MSGQ_SPIN_US.

        Raises:
            TooManySubscribersError: the channel has its maximum number of subscribers.
            InvalidValueError: an argument is out of range.
            StateError: the channel object is closed.
            SegmentError: the channel was removed.
        """
        if self.closed:
            raise self._closed_error()
        check_subscriber_settings(history, max_views, on_lapped, on_lost, self.name)
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
        """Remove the channel. Open handles continue to exchange messages. A later open creates another channel."""
        self._channel_file.unlink()

    @staticmethod
    def unlink_name(name: str | bytes, prefix: str | None = None) -> None:
        """Remove a channel by its name. Raises the errors of `unlink`."""
        with Channel(name, create=False, prefix=prefix) as channel:
            channel.unlink()

    def close(self) -> None:
        """Close the channel object. Its publishers and subscribers stay open.

        Afterwards, `stats` and the properties describe the channel as it was at the close.
        """
        self.closed = True
        self._channel_file.close()

    def _closed_error(self) -> StateError:
        return StateError("channel is closed; open it again", self.name)


class ReservedChannel(Channel):
    """A broadcast or mailbox: a channel with a ":" in its name, opened by a `Node`."""

    def _validate_name(self, name: str | bytes) -> str:
        return naming.validate_channel_name(name)


def _validate_node(node: str, channel: str) -> str:
    """Return the name of a node. Raises an error if the name is too long."""
    if not isinstance(node, str):
        raise TypeError(f"node name is of type {type(node).__name__}; give a str")
    if "\0" in node or len(node.encode()) > NODE_NAME_BYTES_MAX:
        size = len(node.encode())
        text = f"node name {node[:40]!r} has {size} bytes; give at most {NODE_NAME_BYTES_MAX}, without NUL"
        raise EndpointNameError(text, channel)
    return node
