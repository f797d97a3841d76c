"""Random programs for channels."""

from __future__ import annotations

import contextlib
from typing import Any

from msgq.channel import Channel
from msgq.common.schema import Schema
from msgq.errors import MsgqError
from tests.contract.random_programs import Kind, Machine

PUBLISHED = ("sent", "bytes", "refused", "evicted", "slots", "slot_bytes", "closed")
SUBSCRIBED = ("lost", "received", "resets", "position", "views_held", "closed", "passive", "last")


class ChannelMachine(Machine):
    """Publishers and subscribers of two channels, with loans and views."""

    def __init__(self, backend: str, token: str) -> None:
        super().__init__(backend, token)
        self._handles: list[Any] = []

    def channel(self, name: str, **options: Any) -> Any:
        if options.get("schema"):
            options["schema"] = Schema(options["schema"], "text")
        return self._kept(Channel(self._token + name, **options))

    def publisher(self, channel: Any, **options: Any) -> Any:
        return self._kept(channel.publisher(**options))

    def subscriber(self, channel: Any, **options: Any) -> Any:
        return self._kept(channel.subscriber(**options))

    def view_of(self, sub: Any) -> Any:
        return self._kept(sub.receive_view(0))

    def loan_of(self, pub: Any, message: bytes) -> Any:
        loan = self._kept(pub.loan(len(message)))
        memoryview(loan)[:] = message
        return loan

    def _kept(self, handle: Any) -> Any:
        self._handles.append(handle)
        return handle

    def into(self, sub: Any, size: int) -> Any:
        buffer = bytearray(size)
        return sub.receive_into(buffer, 0), buffer

    def array(self, sub: Any, limit: int | None) -> Any:
        publishers: list[Any] = []
        return sub.receive_array("u8", limit, publishers=publishers), publishers

    def _seen(self, handle: Any) -> Any:
        if hasattr(handle, "evicted"):
            return [getattr(handle, name) for name in PUBLISHED]
        if hasattr(handle, "lost"):
            return [getattr(handle, name) for name in SUBSCRIBED]
        if hasattr(handle, "release"):
            return bytes(handle), handle.position, handle.origin_time, handle.publisher
        if hasattr(handle, "discard"):
            return handle.position
        return None if handle is None else (handle.capacity, handle.stamps, handle.messages, handle.schema_matches)

    def _end(self) -> None:
        for handle in reversed(self._handles):
            for method in ("discard", "release", "close"):
                getattr(handle, method, lambda: None)()
        for name in "ab":
            with contextlib.suppress(MsgqError):
                Channel.unlink_name(self._token + name)


CHANNELS = Kind(
    machine=ChannelMachine,
    operations={
        "channel = channel({name})": 2,
        "channel = channel({name}, capacity={capacity}, stamps={choice}, create={choice})": 1,
        "channel = channel({name}, publishers={few}, subscribers={few})": 1,
        "channel = channel({name}, schema={schema}, strict_schema={flag}, passive={flag}, node='n')": 1,
        "{channel}.close()": 1,
        "{channel}.unlink()": 1,
        "{channel}.stats()": 3,
        "pub = publisher({channel})": 3,
        "pub = publisher({channel}, slots={slots}, slot_bytes={bytes}, max_bytes={most})": 3,
        "{pub}.close()": 2,
        "{pub}.send(message({number}, {size}))": 10,
        "{pub}.send(message({number}, {size}), origin_time={origin})": 2,
        "{pub}.send_many(messages({number}, {size}, {count}))": 5,
        "{pub}.stats()": 1,
        "loan = loan_of({pub}, message({number}, {size}))": 2,
        "{loan}.publish({room})": 1,
        "{loan}.publish()": 1,
        "{loan}.discard()": 1,
        "sub = subscriber({channel})": 2,
        "sub = subscriber({channel}, history={history}, max_views={views}, own={flag})": 2,
        "sub = subscriber({channel}, conflate=True, history={history}, spin_us={few})": 1,
        "sub = subscriber({channel}, on_lapped={lapped}, on_lost={lost})": 2,
        "{sub}.close()": 2,
        "{sub}.receive(0)": 8,
        "{sub}.receive_many({limit})": 3,
        "{sub}.stats()": 1,
        "into({sub}, {room})": 3,
        "array({sub}, {limit})": 2,
        "poll({sub})": 3,
        "poll({sub}, {sub})": 1,
        "view = view_of({sub})": 4,
        "{view}.release()": 2,
    },
    values={
        "name": ["a", "a", "a", "b"],
        "capacity": [None, 2, 4, 16, 5],
        "CAPACITY": [2, 4, 8, 16],
        "STAMPS": [None, False],
        "few": [None, 1, 3],
        "choice": [None, None, False, True],
        "flag": [False, True],
        "schema": ["one", "two"],
        "slots": [None, 1, 2, 3, 5, 40],
        "bytes": [None, 1, 8, 64],
        "most": [1 << 30, 1 << 30, 700],
        "size": [0, 1, 3, 8, 8, 8, 30, 64],
        "origin": [0, 5, 17, -1],
        "count": [0, 1, 3, 10, 40],
        "history": [0, 0, 3, 1000],
        "views": [0, 1, 3, 8],
        "lapped": ["oldest", "newest"],
        "lost": ["count", "raise"],
        "limit": [None, None, 0, 1, 5],
        "room": [0, 5, 8, 100],
    },
    start=[
        "channel = channel('a', capacity={CAPACITY}, stamps={STAMPS})",
        "pub = publisher({channel})",
        "sub = subscriber({channel})",
        "sub = subscriber({channel}, on_lapped={lapped}, conflate={flag})",
    ],
)
