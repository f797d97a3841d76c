"""A node: its name, what it takes part in, and its end."""

from __future__ import annotations

from typing import Any

import pytest

import msgq
from msgq.errors import EndpointClosedError, EndpointNameError, InvalidTypeError, StateError


@pytest.mark.parametrize("name", ["", "a/b", "a:b", "x" * 48, "\u00e4" * 24])
def test_node_refuses_invalid_name_immediately(name: str) -> None:
    with pytest.raises(EndpointNameError):
        msgq.Node(name)


def test_error_for_invalid_node_name_contains_the_name(prefix: str) -> None:
    with pytest.raises(TypeError, match="node None is of type NoneType; give str or bytes"):
        msgq.Node(None)  # type: ignore[arg-type]
    with pytest.raises(EndpointNameError, match="node '' has 0 bytes"):
        msgq.Node("a").open_mailbox("", "questions")
    with pytest.raises(EndpointNameError, match="tag 'a:b' has a ':'"):
        msgq.Node("a").create_mailbox("a:b")


def test_node_with_unknown_setting_raises_with_known_settings(prefix: str) -> None:
    with msgq.Node("a") as node:
        for again in (False, True):
            with pytest.raises(TypeError, match=r"unknown settings 'history'; known settings are .*slots"):
                node.advertise("x", history=1)
            with pytest.raises(TypeError, match=r"unknown settings 'hist'; known settings are .*history"):
                node.subscribe("x", hist=1)
            assert again == bool(node.channels)
            node.advertise(b"x")
        assert list(node.channels) == ["x"]
        with pytest.raises(StateError, match="prefix cannot change: the node has opened the channel"):
            node.advertise("x", prefix="other")


def test_node_lists_its_channels_by_full_name(prefix: str) -> None:
    with msgq.Node("a" * 47) as node:
        node.advertise("lidar")
        node.join_broadcast("chat")
        node.create_mailbox("answers")
        node.open_mailbox("b", "questions")
        assert sorted(node.channels) == ["a" * 47 + ":mbx:answers", "b:mbx:questions", "chat:broadcast", "lidar"]
        for channel in node.channels.values():
            channel.unlink()
        with pytest.raises(msgq.errors.SegmentError):
            msgq.Channel("lidar", create=False)


def test_node_close_closes_its_publishers_and_subscribers(prefix: str) -> None:
    node = msgq.Node("a")
    publisher, subscriber = node.advertise("x"), node.subscribe("x")
    channel = node.channels["x"]
    node.close()
    assert publisher.closed
    assert subscriber.closed
    assert node.channels == {}
    with pytest.raises(EndpointClosedError):
        publisher.send(b"")
    with pytest.raises(StateError):
        channel.publisher()


@pytest.mark.parametrize("config", [{"capacity": 8}, int, object()])
def test_node_refuses_positional_configuration_and_lists_keywords(prefix: str, config: Any) -> None:
    with msgq.Node("a") as node:
        calls = {
            "advertise": ["x"],
            "subscribe": ["x"],
            "join_broadcast": ["x"],
            "create_mailbox": ["x"],
            "open_mailbox": ["b", "x"],
        }
        for method, words in calls.items():
            with pytest.raises(
                InvalidTypeError, match=rf"{method} .*{type(config).__name__}.*{method}\(\.\.\., capacity="
            ):
                getattr(node, method)(*words, config)
        assert node.channels == {}


@pytest.mark.parametrize(("settings", "heard"), [({}, None), ({"own": False}, None), ({"own": True}, b"me")])
def test_broadcast_returns_own_messages_only_on_request(
    prefix: str, settings: dict[str, Any], heard: bytes | None
) -> None:
    with msgq.Node("a") as node:
        both = node.join_broadcast("chat", **settings)
        both.publisher.send(b"me")
        assert both.subscriber.receive(0) == heard
        node.channels["chat:broadcast"].unlink()
