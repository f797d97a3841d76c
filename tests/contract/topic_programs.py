"""Random programs for topics."""

from __future__ import annotations

import contextlib
from typing import Any

from msgq.common.schema import Schema
from msgq.errors import MsgqError
from tests.contract.random_programs import Kind, Machine


class TopicMachine(Machine):
    """Publishers and subscribers of two topics."""

    def __init__(self, backend: str, token: str) -> None:
        super().__init__(backend, token)
        self._context = self.backend.Context()
        self._sockets: list[Any] = []
        self._used: set[str] = set()

    def pub(self, topic: str, segment_size: int = 0, **options: Any) -> Any:
        return self._connected(self.backend.PubSocket(), topic, segment_size, **options)

    def sub(self, topic: str, **options: Any) -> Any:
        return self._connected(self.backend.SubSocket(), topic, **options)

    def again(self, socket: Any, topic: str) -> None:
        """Connect a socket again, perhaps to another topic."""
        socket.close()
        self._connected(socket, topic)

    def _connected(self, socket: Any, topic: str, *args: Any, **options: Any) -> Any:
        if "schema" in options:
            options["schema"] = Schema(options["schema"], "text")
        self._used.add(topic)
        self._sockets.append(socket)
        socket.connect(self._context, self._token + topic, *args, **options)
        return socket

    def burst(self, pub: Any, messages: list[bytes]) -> None:
        for message in messages:
            pub.send(message)

    def reserve(self, pub: Any, data: bytes, inside: str = "") -> None:
        """Write a message in place. During this, call another method, or raise."""
        with contextlib.suppress(ZeroDivisionError), pub.reserve(len(data)) as view:
            view[:] = data
            if inside == "raise":
                raise ZeroDivisionError
            if inside:
                getattr(pub, inside)(*[b"x"] * (inside == "send"))

    def into(self, sub: Any, size: int) -> Any:
        buffer = bytearray(size)
        return sub.receive_into(buffer, True), buffer

    def tracked(self, sub: Any) -> Any:
        found = sub.receive_tracked(True)
        return found and (found.data, found.origin_time == found.publish_time or found.origin_time)

    def _seen(self, socket: Any) -> Any:
        if isinstance(socket, self.backend.PubSocket):
            return socket.closed, socket.stats()
        return socket.closed, socket.lost, socket.stats()

    def _end(self) -> None:
        for socket in self._sockets:
            socket.close()
        for topic in self._used:
            with contextlib.suppress(MsgqError), self.pub(topic) as pub:
                pub.unlink()


TOPICS = Kind(
    machine=TopicMachine,
    operations={
        "pub = pub({topic}, {RING}, tracked={TRACKED})": 2,
        "pub = pub({topic}, {RING}, tracked={choice}, schema={schema})": 1,
        "pub = pub({topic}, {ring})": 1,
        "sub = sub({topic})": 2,
        "sub = sub({topic}, conflate=True)": 1,
        "sub = sub({topic}, latest=True)": 1,
        "sub = sub({topic}, latest=True, conflate=True)": 1,
        "sub = sub({topic}, passive=True, latest={flag}, conflate={flag})": 1,
        "sub = sub({topic}, segment_size={ring}, spin_us={few})": 1,
        "{pub}.close()": 1,
        "{sub}.close()": 1,
        "again({pub}, {topic})": 1,
        "again({sub}, {topic})": 1,
        "{pub}.unlink()": 1,
        "{pub}.send(message({number}, {size}))": 10,
        "{pub}.send(message({number}, {size}), origin_time={origin})": 2,
        "{pub}.send_many(messages({number}, {small}, {count}))": 4,
        "burst({pub}, messages({number}, {small}, {count}))": 5,
        "reserve({pub}, message({number}, {size}))": 2,
        "reserve({pub}, message({number}, {small}), {inside})": 1,
        "{pub}.all_readers_updated()": 2,
        "{pub}.wait_for_readers(0, n={few})": 1,
        "{pub}.tracked": 1,
        "{sub}.receive(True)": 8,
        "{sub}.receive(timeout=0)": 2,
        "{sub}.receive_many({limit})": 3,
        "into({sub}, {room})": 3,
        "{sub}.receive_array('u8', {limit})": 2,
        "tracked({sub})": 3,
        "poll({sub})": 4,
        "poll({sub}, {sub})": 1,
        "{sub}.tracked": 1,
    },
    values={
        "topic": ["a", "a", "a", "b"],
        "RING": [128, 256, 1024, 1024, 1160, 4096, 30_000],
        "TRACKED": [None, None, True],
        "ring": [0, 0, 128, 256, 1024, 1024, 1160, 4096],
        "size": [0, 1, 8, 8, 60, 64, 100, 200, 330, 336, 400],
        "small": [0, 8, 8, 30, 64, 100],
        "count": [0, 1, 3, 10, 40, 80],
        "limit": [None, None, 0, 1, 5],
        "room": [0, 8, 64, 500],
        "few": [0, 1, 2],
        "origin": [0, 5, 17, -1],
        "choice": [None, False, True, True],
        "flag": [False, True],
        "schema": ["one", "two"],
        "inside": ["raise", "send", "close", "all_readers_updated"],
    },
    start=["pub = pub('a', {RING}, tracked={TRACKED})", "sub = sub('a')", "sub = sub('a', conflate={flag})"],
)
