"""The websocket of `msgq serve`: channels, messages, slow clients, and the end of endpoints."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import msgq
from msgq.impl.base.process import process_name
from tests.serve.foxglove_client import FoxgloveClient, Server, connect, watch_states
from tests.support import wait_until


def run_client(server: Server, use: Callable[[FoxgloveClient], Awaitable[None]]) -> None:
    """Connect a client, and use it."""

    async def use_client() -> None:
        async with connect(server) as client:
            await use(client)

    asyncio.run(use_client())


def publish(endpoint: str, schema: msgq.Schema | None, **options: Any) -> msgq.PubSocket:
    """Return a publisher of a topic with a schema. The options are those of `PubSocket.connect`."""
    pub = msgq.PubSocket()
    pub.connect(msgq.context, endpoint, schema=schema, **options)
    return pub


def test_client_receives_exact_payloads_and_publish_times_of_tracked_topic(prefix: str) -> None:
    schema = msgq.Schema("Pose", "json")
    with publish("pose", schema, tracked=True) as pub, msgq.sub_sock("pose") as sub, Server() as server:

        async def use(client: FoxgloveClient) -> None:
            await client.subscribe("pose", subscription=7)
            await client.take_after(lambda: pub.send(b"{}"))
            sent = [b'{"x": %d}' % number for number in range(20)]
            pub.send_many(sent)
            expected: list[tuple[int, int, bytes]] = []
            while len(expected) < len(sent):
                message = sub.receive_tracked(non_blocking=True)
                assert message is not None
                if message.data != b"{}":
                    expected.append((7, message.publish_time, message.data))
            received = await client.take()
            while received[-1].payload != sent[-1]:
                received += await client.take()
            assert [message for message in received if message.payload != b"{}"] == expected

        run_client(server, use)


def test_removed_endpoint_is_unadvertised_and_new_endpoint_is_advertised(prefix: str) -> None:
    with Server() as server:

        async def use(client: FoxgloveClient) -> None:
            assert client.server_info["capabilities"] == ["connectionGraph"]
            quotes = msgq.SeqlockVector("quotes", "f8", 10)
            await client.wait_for(lambda: "records/quotes" in client.channels)
            quotes.unlink()
            await client.wait_for(lambda: "records/quotes" not in client.channels)

        run_client(server, use)


def test_each_kind_of_endpoint_has_channel_with_its_messages(prefix: str) -> None:
    point = [("x", "f8"), ("y", "<i4")]
    with (
        publish("raw", None) as raw,
        publish("point", msgq.Schema("Point", "struct", json.dumps(point).encode())) as struct_topic,
        msgq.MessageQueue("jobs", events="payload") as jobs,
        msgq.Node("node") as node,
        Server() as server,
    ):
        alerts = node.advertise("alerts")
        vector = msgq.SeqlockVector("quotes", point, 4)
        board = msgq.Board("settings")
        entry = board.declare("key")
        sends: dict[str, tuple[Callable[[], object], object]] = {
            "raw": (lambda: raw.send(b"\xff"), {"payload": "/w==", "bytes": 1}),
            "point": (lambda: struct_topic.send(struct.pack("<di", 1.5, -2)), {"x": 1.5, "y": -2}),
            "channel/alerts": (lambda: alerts.send(b"\xff"), {"payload": "/w==", "bytes": 1}),
            "queue/jobs": (lambda: jobs.send(b"job"), None),
            "records/quotes": (lambda: vector.__setitem__(0, (1.5, -2)), None),
            "records/settings": (lambda: entry.write(b"\xff"), {"payload": "/w==", "bytes": 1}),
        }

        async def use(client: FoxgloveClient) -> None:
            for number, (topic, (send, expected)) in enumerate(sends.items()):
                send()
                await client.subscribe(topic, number)
                message = await client.take_after(send)
                while message.subscription != number:
                    message = await client.take_after(send)
                value = json.loads(message.payload)
                assert client.channels[topic]["encoding"] == "json"
                if expected is not None:
                    assert value == expected
                elif topic == "queue/jobs":
                    assert (value["event"], value["payload"]) == ("sent", "am9i")
                else:
                    assert (value["index"], value["value"]) == (0, {"x": 1.5, "y": -2})
                await client.unsubscribe(number)
            assert json.loads(client.channels["point"]["schema"])["properties"]["y"] == {"type": "integer"}

        run_client(server, use)
        vector.unlink()
        board.unlink()


def test_other_schema_replaces_channel(prefix: str) -> None:
    with Server() as server:

        async def use(client: FoxgloveClient) -> None:
            with publish("pose", msgq.Schema("First", "json")):
                await client.wait_for(lambda: "pose" in client.channels)
            first = client.channels["pose"]
            assert first["schemaName"] == "First"
            await client.subscribe("pose")
            with publish("pose", msgq.Schema("Second", "json")) as pub:
                pub.send(b"1")
                await client.wait_for(lambda: client.channels.get("pose", first)["schemaName"] == "Second")
                assert client.channels["pose"]["id"] != first["id"]
                await client.subscribe("pose", 2)
                assert (await client.take_after(lambda: pub.send(b"2"))).subscription == 2

        run_client(server, use)


def test_messages_before_other_schema_are_delivered(prefix: str) -> None:
    first, second = (msgq.Schema(name, "json") for name in ("First", "Second"))
    with publish("pose", first) as former, Server() as server:

        async def use(client: FoxgloveClient) -> None:
            await client.subscribe("pose")
            await client.take_after(lambda: former.send(b"0"))
            os.kill(server.process.pid, signal.SIGSTOP)
            former.send(b"1")
            with publish("pose", second) as latter:
                latter.send(b"2")
                os.kill(server.process.pid, signal.SIGCONT)
                received: set[bytes] = set()
                while b"1" not in received:
                    received |= {message.payload for message in await client.take()}
                assert received <= {b"0", b"1"}
                await client.wait_for(lambda: client.channels.get("pose", {}).get("schemaName") == "Second")

        run_client(server, use)


def test_invalid_requests_and_publishing_are_answered_with_errors(prefix: str) -> None:
    requests = [
        ("", "not a valid request"),
        ("[]", "not a valid request"),
        ('{"op": "subscribe"}', "not a valid request"),
        ('{"op": "subscribe", "subscriptions": [{"id": -1, "channelId": 1}]}', "-1 is not a number"),
        ('{"op": "unsubscribe", "subscriptionIds": [true]}', "True is not a number"),
        ('{"op": "advertise", "channels": []}', "read-only"),
        ('{"op": "setParameters", "parameters": []}', "read-only"),
    ]
    with publish("pose", None) as pub, Server() as server:

        async def use(client: FoxgloveClient) -> None:
            for request, expected in requests:
                await client.socket.send_str(request)
                await client.wait_for(lambda: client.statuses)
                assert expected in client.statuses.pop()
            await client.socket.send_bytes(b"\x01\0\0\0\0payload")
            await client.wait_for(lambda: client.statuses)
            assert "not a valid request" in client.statuses.pop()
            await client.subscribe("pose")
            await client.subscribe("pose", 2)
            await client.wait_for(lambda: client.statuses)
            assert "exists already" in client.statuses.pop()
            await client.take_after(lambda: pub.send(b"x"))

        run_client(server, use)


def test_client_without_subprotocol_is_closed(prefix: str) -> None:
    async def use(server: Server) -> None:
        async with aiohttp.ClientSession() as session, session.ws_connect(server.websocket) as socket:
            assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE

    with Server() as server:
        asyncio.run(use(server))


def test_slow_client_loses_counted_messages_and_other_client_receives_all(prefix: str) -> None:
    payload = bytes(200_000)

    async def use(server: Server) -> None:
        async with connect(server) as slow, connect(server) as fast:
            await slow.subscribe("blob")
            await slow.take_after(lambda: pub.send(b"{}"))
            await fast.subscribe("blob")
            await fast.take_after(lambda: pub.send(b"{}"))
            async with watch_states(server) as states:
                count = 0
                async for state in states:
                    if any(client["dropped"] for client in state["clients"]):
                        break
                    numbers = range(count, count + 20)
                    for number in numbers:
                        pub.send(b"%d" % number + payload)
                    messages = await fast.take(len(numbers))
                    while messages[0].payload == b"{}":
                        messages = [*messages[1:], *await fast.take()]
                    assert [int(message.payload[: -len(payload)]) for message in messages] == list(numbers)
                    count += len(numbers)
            await slow.wait_for(lambda: any("too slow" in text for text in slow.statuses))
            assert not fast.statuses

    with publish("blob", msgq.Schema("Blob", "json"), segment_size=16 << 20) as pub, Server() as server:
        asyncio.run(use(server))


def test_second_client_receives_after_first_left_and_unused_server_maps_nothing(prefix: str) -> None:
    async def use(server: Server) -> None:
        async with connect(server) as stays:
            await stays.subscribe("pose")
            async with connect(server) as leaves:
                await leaves.subscribe("pose")
                await leaves.take_after(lambda: pub.send(b"first"))
            async with watch_states(server) as states:
                async for state in states:
                    if len(state["clients"]) == 1:
                        break
            pub.send(b"second")
            while (await stays.take())[0].payload != b"second":
                pass
            assert is_mapped()

    with publish("pose", msgq.Schema("Pose", "json")) as pub, Server() as server:
        maps = Path(f"/proc/{server.process.pid}/maps")

        def is_mapped() -> bool:
            return f"msgq_{prefix}" in maps.read_text()

        assert not is_mapped()
        asyncio.run(use(server))
        wait_until(lambda: not is_mapped(), "the server closed the topic")


def test_subscription_continues_with_first_message_of_recreated_endpoint(prefix: str) -> None:
    schema = msgq.Schema("Pose", "json")
    with Server() as server:

        async def use(client: FoxgloveClient) -> None:
            with publish("pose", schema) as pub:
                await client.subscribe("pose")
                await client.take_after(lambda: pub.send(b"before"))
            for directory in ("msgq_", "msgqside_"):
                os.unlink(f"/dev/shm/{directory}{prefix}/pose")
            with publish("pose", schema) as pub:
                pub.send_many([b"1", b"2", b"3"])
                received = [message.payload for message in await client.take(1)]
                while received[-1] != b"3":
                    received += [message.payload for message in await client.take(1)]
            assert [payload for payload in received if payload != b"before"] == [b"1", b"2", b"3"]

        run_client(server, use)


def test_subscription_continues_after_restart_of_publisher(prefix: str) -> None:
    schema = msgq.Schema("Pose", "json")
    with Server() as server:

        async def use(client: FoxgloveClient) -> None:
            with publish("pose", schema) as pub:
                await client.subscribe("pose")
                await client.take_after(lambda: pub.send(b"before"))
            number = client.channels["pose"]["id"]
            with publish("pose", schema) as pub:
                pub.send(b"after")
                while (await client.take())[0].payload != b"after":
                    pass
            assert client.channels["pose"]["id"] == number

        run_client(server, use)


def test_connection_graph_follows_participants(prefix: str) -> None:
    me = [f"{process_name()} {os.getpid()}"]

    async def use(client: FoxgloveClient) -> None:
        await client.socket.send_json({"op": "subscribeConnectionGraph"})
        with publish("pose", None):
            await client.wait_for(lambda: client.publishers.get("pose") == me)
            assert client.subscribers["pose"] == []
            with msgq.sub_sock("pose"):
                await client.wait_for(lambda: client.subscribers["pose"] == me)
            await client.wait_for(lambda: client.subscribers["pose"] == [])
        for directory in ("msgq_", "msgqside_"):
            os.unlink(f"/dev/shm/{directory}{prefix}/pose")
        await client.wait_for(lambda: "pose" not in client.publishers)
        await client.wait_for(lambda: client.publishers.get("stays") == me)

    with Server() as server, publish("stays", None):
        run_client(server, use)
        maps = Path(f"/proc/{server.process.pid}/maps")
        wait_until(lambda: f"msgq_{prefix}" not in maps.read_text(), "the server closed the topics")


def test_messages_that_the_server_misses_are_reported(prefix: str) -> None:
    schema = msgq.Schema("Pose", "json")
    with publish("pose", schema) as pub, Server() as server:

        async def use(client: FoxgloveClient) -> None:
            await client.subscribe("pose")
            await client.take_after(lambda: pub.send(b"{}"))
            while not any("the server is too slow" in text for text in client.statuses):
                for _ in range(100):
                    pub.send(bytes(100_000))  # together more than the ring holds
                await client.read()
            async with watch_states(server) as states:
                async for state in states:
                    if state["server_lost"].get("pose"):
                        break

        run_client(server, use)


def test_publisher_does_not_notice_subscriptions(prefix: str) -> None:
    schema = msgq.Schema("Pose", "json")
    with publish("pose", schema) as pub, msgq.Node("node") as node, Server() as server:
        alerts = node.advertise("alerts", schema=schema)

        async def use(client: FoxgloveClient) -> None:
            await client.subscribe("pose", 1)
            await client.take_after(lambda: pub.send(b"{}"))
            await client.subscribe("channel/alerts", 2)
            while (await client.take_after(lambda: alerts.send(b"{}"))).subscription != 2:
                pass
            topic, channel = msgq.stats.topic("pose"), msgq.stats.channel("alerts")
            assert (topic.subscribers, topic.stock_subscribers, topic.unlisted) == ((), 0, False)
            assert (channel.subscribers, channel.viewers) == ((), ())

        run_client(server, use)


def test_other_endpoint_continues_after_truncation_of_endpoint(prefix: str) -> None:
    with publish("cut", None) as cut, publish("whole", None) as whole, Server() as server:

        async def use(client: FoxgloveClient) -> None:
            await client.subscribe("cut", 1)
            await client.subscribe("whole", 2)
            await client.take_after(lambda: cut.send(b"x"))
            for directory in ("msgq_", "msgqside_"):
                os.truncate(f"/dev/shm/{directory}{prefix}/cut", 0)
            while (await client.take_after(lambda: whole.send(b"y"))).subscription != 2:
                pass

        run_client(server, use)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_server_with_connected_client(prefix: str, number: signal.Signals) -> None:
    with msgq.pub_sock("pose"), Server() as server:

        async def use(client: FoxgloveClient) -> None:
            await client.subscribe("pose")
            server.process.send_signal(number)
            message = await client.socket.receive()
            while message.type is not message.type.CLOSED and message.type is not message.type.CLOSE:
                message = await client.socket.receive()

        run_client(server, use)
        assert server.process.end() == ([], "")
