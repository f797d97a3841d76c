"""A node: a named part of a program that takes part in channels. The names are those of Kickmsg."""

from __future__ import annotations

from msgq.channel.channel import NODE_NAME_BYTES_MAX, Channel, ReservedChannel
from msgq.common import naming
from msgq.common.closing import ClosingContext
from msgq.common.texts import format_count_noun, join_first_texts
from msgq.errors import EndpointNameError, InvalidTypeError, StateError
from msgq.impl.base.foreign_names import add_advice

TYPE_CHECKING = False  # avoids the import of `typing`; see msgq/__init__.py
if TYPE_CHECKING:
    from typing import Any, TypeVar

    from msgq.channel.broadcast import Broadcast
    from msgq.impl.channel import Publisher, Subscriber

    HandleType = TypeVar("HandleType", Publisher, Subscriber)

CHANNEL_OPTIONS = ("capacity", "publishers", "subscribers", "stamps", "schema", "strict_schema")
OPEN_OPTIONS = ("create", "mode", "passive", "prefix", "trust")  # count when the node opens the channel first
PUBLISHER_OPTIONS = ("slots", "slot_bytes", "max_bytes")
SUBSCRIBER_OPTIONS = ("history", "max_views", "conflate", "on_lapped", "on_lost", "own", "spin_us")


@add_advice
class Node(ClosingContext):
    """Opens publishers and subscribers under one name, which statistics show.

    Each method accepts the settings of `Channel`, and of `Channel.publisher` or `Channel.subscriber`, as keywords. A
    positional `config`, as in Kickmsg and ROS, raises `InvalidTypeError`. `close` closes all handles of the node.

    Attributes:
        name: name of the node.
        channels: open channels by full name, for schemas, `diagnose` and `unlink`. Includes broadcasts
            (`<name>:broadcast`) and mailboxes (`<owner>:mbx:<tag>`). Empty after `close`.
    """

    def __init__(self, name: str, *, prefix: str | None = None, trust: str | None = None) -> None:
        """Create a node.

        Args:
            name: name of the node, at most 47 bytes, without ":" and "/".
            prefix: prefix of all channels, as in `Channel`.
            trust: trust in all channels, as in `Channel`.
        """
        self.name: str = _validate_plain_name(name, "node", NODE_NAME_BYTES_MAX)
        self.channels: dict[str, Channel] = {}
        self._location_options = {"prefix": prefix, "trust": trust}
        self._open_handles: list[Publisher | Subscriber] = []

    def __repr__(self) -> str:
        if not self.channels:
            return f"<msgq Node {self.name!r}, no channels>"
        handles = format_count_noun(len(self._open_handles), "handle")
        return f"<msgq Node {self.name!r}, {handles} of {join_first_texts(map(repr, self.channels))}>"

    def advertise(self, channel: str | bytes, config: None = None, **settings: Any) -> Publisher:
        """Return a publisher of a channel. A channel may have several publishers."""
        _check_no_config("advertise", config)
        return self._open_publisher(Channel, channel, settings)

    def subscribe(self, channel: str | bytes, config: None = None, **settings: Any) -> Subscriber:
        """Return a subscriber of a channel. The channel may have no publisher yet."""
        _check_no_config("subscribe", config)
        return self._open_subscriber(Channel, channel, settings)

    def join_broadcast(self, name: str, config: None = None, *, own: bool = False, **settings: Any) -> Broadcast:
        """Return publisher and subscriber of a broadcast. Each node receives the messages of all other nodes.

        Broadcasts and channels have separate names.

        Args:
            name: name of the broadcast.
            config: unused; see `Node`.
            own: True: the subscriber also receives the node's own messages.
            settings: settings of `Channel`, `Channel.publisher` and `Channel.subscriber`.
        """
        from msgq.channel.broadcast import Broadcast  # late: the import of typing needs more memory than a node

        _check_no_config("join_broadcast", config)
        common, publishing, subscribing = _split_settings(settings, PUBLISHER_OPTIONS, SUBSCRIBER_OPTIONS)
        channel = self._open_channel(ReservedChannel, f"{_validate_plain_name(name, 'broadcast')}:broadcast", common)
        publisher = self._register_handle(channel.publisher(**publishing))
        subscriber = self._register_handle(channel.subscriber(own=own, **subscribing))
        return Broadcast(publisher, subscriber)

    def create_mailbox(self, tag: str, config: None = None, **settings: Any) -> Subscriber:
        """Return the subscriber of a mailbox of this node. A mailbox has one subscriber at a time."""
        _check_no_config("create_mailbox", config)
        return self._open_subscriber(
            ReservedChannel, _make_mailbox_name(self.name, tag), {"subscribers": 1, **settings}
        )

    def open_mailbox(self, owner: str, tag: str, config: None = None, **settings: Any) -> Publisher:
        """Return a publisher for the mailbox of another node. The other node may create the mailbox later."""
        _check_no_config("open_mailbox", config)
        return self._open_publisher(ReservedChannel, _make_mailbox_name(owner, tag), {"subscribers": 1, **settings})

    def _open_publisher(self, kind: type[Channel], name: str | bytes, settings: dict[str, Any]) -> Publisher:
        common, publishing = _split_settings(settings, PUBLISHER_OPTIONS)
        channel = self._open_channel(kind, name, common)
        return self._register_handle(channel.publisher(**publishing))

    def _open_subscriber(self, kind: type[Channel], name: str | bytes, settings: dict[str, Any]) -> Subscriber:
        common, subscribing = _split_settings(settings, SUBSCRIBER_OPTIONS)
        channel = self._open_channel(kind, name, common)
        return self._register_handle(channel.subscriber(**subscribing))

    def _open_channel(self, kind: type[Channel], name: str | bytes, settings: dict[str, Any]) -> Channel:
        """Return the node's only channel object of that name, so that `own` refers to the node."""
        name = naming.validate_channel_name(name)
        channel = self.channels.get(name)
        if channel is None:
            channel = self.channels[name] = kind(name, node=self.name, **{**self._location_options, **settings})
            return channel
        if late := settings.keys() & set(OPEN_OPTIONS):
            text = (
                f"{', '.join(sorted(late))} cannot change: the node has opened the channel; give it in the first call"
            )
            raise StateError(text, name)
        channel._apply_config(**settings)
        return channel

    def _register_handle(self, side: HandleType) -> HandleType:
        self._open_handles.append(side)
        return side

    def close(self) -> None:
        """Close all handles of the node."""
        for side in self._open_handles:
            side.close()
        for channel in self.channels.values():
            channel.close()
        self._open_handles.clear()
        self.channels.clear()


def _check_no_config(method: str, config: object) -> None:
    """Refuse a positional configuration, and name the keywords.

    Raises:
        InvalidTypeError: `config` is not None.
    """
    if config is not None:
        text = f"{method} got {config!r} of type {type(config).__name__} by position, but takes settings by keyword"
        example = f"{method}(..., capacity=256, schema=schema)"
        raise InvalidTypeError(f"{text}; write {example} (docs/coming-from/kickmsg.md compares the names)")


def _split_settings(settings: dict[str, Any], *sides: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the settings of the channel, and the settings of each side.

    Raises:
        TypeError: a setting is unknown.
    """
    option_sets = [(*CHANNEL_OPTIONS, *OPEN_OPTIONS), *sides]
    unknown = settings.keys() - set().union(*option_sets)
    if unknown:
        names = ", ".join(sorted(set().union(*option_sets)))
        raise TypeError(f"unknown settings {', '.join(map(repr, sorted(unknown)))}; known settings are {names}")
    return [{name: settings[name] for name in names if name in settings} for names in option_sets]


def _make_mailbox_name(owner: str, tag: str) -> str:
    return f"{_validate_plain_name(owner, 'node', NODE_NAME_BYTES_MAX)}:mbx:{_validate_plain_name(tag, 'tag')}"


def _validate_plain_name(name: str, label: str, most: int = naming.CHANNEL_BYTES_MAX) -> str:
    checked = naming.validate_endpoint_name(name, label, most)
    if ":" in checked:
        raise EndpointNameError(
            f"{label} {checked!r} has a ':', which is reserved for broadcasts and mailboxes; give a name without ':'"
        )
    return checked
