"""A node: one part of a program, with a name, that takes part in channels. The words are those of Kickmsg."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from msgq.channel.channel import NODE_NAME_BYTES_MAX, Channel, ReservedChannel
from msgq.common import naming
from msgq.errors import EndpointNameError, InvalidTypeError, StateError

if TYPE_CHECKING:
    from msgq.impl.channel import Publisher, Subscriber

HandleType = TypeVar("HandleType", "Publisher", "Subscriber")

CHANNEL_OPTIONS = ("capacity", "publishers", "subscribers", "stamps", "schema", "strict_schema")
OPEN_OPTIONS = ("create", "mode", "passive", "prefix", "trust")  # count when the node opens the channel first
PUBLISHER_OPTIONS = ("slots", "slot_bytes", "max_bytes")
SUBSCRIBER_OPTIONS = ("history", "max_views", "conflate", "on_lapped", "on_lost", "own", "spin_us")


class Broadcast(NamedTuple):
    """Both sides of a node in a broadcast.

    Attributes
    ----------
    publisher, subscriber : the node's own; the subscriber gets the node's own messages only with ``own=True``.
    """

    publisher: Publisher
    subscriber: Subscriber

    def close(self) -> None:
        """Close both."""
        self.publisher.close()
        self.subscriber.close()


class Node:
    """Advertises and subscribes under one name, which others see.

    Each call takes the settings of `Channel`, and those of `Channel.publisher` or `Channel.subscriber`, as keywords: a
    `config` by position, as Kickmsg and ROS have it, is an `InvalidTypeError` that says so. What a call makes is closed
    with the node.

    Attributes
    ----------
    name : of the node.
    channels : the node's channels, by full name: for schemas, `diagnose` and `unlink`, of broadcasts
        (`<name>:broadcast`) and mailboxes (`<owner>:mbx:<tag>`), too. Empty after `close`.
    """

    def __init__(self, name: str, *, prefix: str | None = None, trust: str | None = None) -> None:
        """Have a name.

        Parameters
        ----------
        name : at most 47 bytes, without ":" and "/".
        prefix, trust : for all its channels, as in `Channel`.
        """
        self.name = _validate_plain_name(name, "node", NODE_NAME_BYTES_MAX)
        self.channels: dict[str, Channel] = {}
        self._location_options = {"prefix": prefix, "trust": trust}
        self._open_handles: list[Publisher | Subscriber] = []

    def advertise(self, channel: str | bytes, config: None = None, **settings: Any) -> Publisher:
        """Return a publisher of a channel, of which there may be others."""
        _check_no_config("advertise", config)
        return self._open_publisher(Channel, channel, settings)

    def subscribe(self, channel: str | bytes, config: None = None, **settings: Any) -> Subscriber:
        """Return a subscriber of a channel, which need not have a publisher yet."""
        _check_no_config("subscribe", config)
        return self._open_subscriber(Channel, channel, settings)

    def join_broadcast(self, name: str, config: None = None, *, own: bool = False, **settings: Any) -> Broadcast:
        """Return both sides of a channel in which each node receives the messages of all others.

        Broadcasts and channels have separate names.

        Parameters
        ----------
        name : of the broadcast.
        config : not used; see `advertise`.
        own : whether the subscriber gets the node's own messages.
        settings : of `Channel`, `Channel.publisher` and `Channel.subscriber`.
        """
        _check_no_config("join_broadcast", config)
        common, publishing, subscribing = _split_settings(settings, PUBLISHER_OPTIONS, SUBSCRIBER_OPTIONS)
        channel = self._open_channel(ReservedChannel, f"{_validate_plain_name(name, 'broadcast')}:broadcast", common)
        publisher = self._register_handle(channel.publisher(**publishing))
        subscriber = self._register_handle(channel.subscriber(own=own, **subscribing))
        return Broadcast(publisher, subscriber)

    def create_mailbox(self, tag: str, config: None = None, **settings: Any) -> Subscriber:
        """Return the subscriber of this node's mailbox, of which there is one at a time."""
        _check_no_config("create_mailbox", config)
        return self._open_subscriber(
            ReservedChannel, _make_mailbox_name(self.name, tag), {"subscribers": 1, **settings}
        )

    def open_mailbox(self, owner: str, tag: str, config: None = None, **settings: Any) -> Publisher:
        """Return a publisher for the mailbox of another node, which may create it later."""
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
        """Return the node's one channel of that name, so that `own` means the node."""
        name = naming.validate_channel_name(name)
        channel = self.channels.get(name)
        if channel is None:
            channel = self.channels[name] = kind(name, node=self.name, **{**self._location_options, **settings})
            return channel
        if late := settings.keys() & set(OPEN_OPTIONS):
            text = f"{', '.join(sorted(late))}: counts when the node opens the channel first, which it did before"
            raise StateError(text, name)
        channel._apply_config(**settings)
        return channel

    def _register_handle(self, side: HandleType) -> HandleType:
        self._open_handles.append(side)
        return side

    def close(self) -> None:
        """Close all that the node made."""
        for side in self._open_handles:
            side.close()
        for channel in self.channels.values():
            channel.close()
        self._open_handles.clear()
        self.channels.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _check_no_config(method: str, config: object) -> None:
    """Refuse a configuration by position, and say how settings are given.

    Raises
    ------
    InvalidTypeError : there is one.
    """
    if config is not None:
        text = (
            f"{method} was given {config!r} of type {type(config).__name__} by position, and its settings are keywords"
        )
        example = f"{method}(..., capacity=256, schema=schema)"
        raise InvalidTypeError(f"{text}: {example}; docs/coming-from/kickmsg.md compares the names")


def _split_settings(settings: dict[str, Any], *sides: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the settings of the channel, and those of each side.

    Raises
    ------
    TypeError : there is no setting of such a name.
    """
    known = [(*CHANNEL_OPTIONS, *OPEN_OPTIONS), *sides]
    unknown = settings.keys() - set().union(*known)
    if unknown:
        names = ", ".join(sorted(set().union(*known)))
        raise TypeError(f"no setting here is called {', '.join(map(repr, sorted(unknown)))}; there are {names}")
    return [{name: settings[name] for name in names if name in settings} for names in known]


def _make_mailbox_name(owner: str, tag: str) -> str:
    return f"{_validate_plain_name(owner, 'node', NODE_NAME_BYTES_MAX)}:mbx:{_validate_plain_name(tag, 'tag')}"


def _validate_plain_name(name: str, label: str, most: int = naming.CHANNEL_BYTES_MAX) -> str:
    checked = naming.validate_endpoint_name(name, label, most)
    if ":" in checked:
        raise EndpointNameError(f"{label} {checked!r} has a ':', which parts the names of broadcasts and mailboxes")
    return checked
