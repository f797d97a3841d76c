"""The public names and signatures of channels, pinned as those of `test_public_names` are."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import msgq
import msgq.channel
from msgq.impl.channel import Publisher, Subscriber
from msgq.impl.channel.core import Loan, Sample
from tests.meta.test_public_names import plain_signature, public

# What makes one ("": only another object does), its methods; "" is a property.
NAMES: dict[Any, dict[str, str]] = {
    msgq.Channel: {
        "": "(name, *, capacity=None, publishers=None, subscribers=None, stamps=None, schema=None, "
        "strict_schema=False, create=None, passive=False, node=None, mode=None, prefix=None, trust=None)",
        **dict.fromkeys(["capacity", "stamps", "messages", "creator", "created_ns", "schema", "schema_matches"], ""),
        "claim_schema": "(self, schema)",
        "close": "(self)",
        "diagnose": "(self)",
        "stats": "(self)",
        "unlink_name": "(name, prefix=None)",
        "publisher": "(self, *, slots=None, slot_bytes=None, max_bytes=1073741824)",
        "replace_schema": "(self, schema)",
        "subscriber": "(self, *, history=0, max_views=8, conflate=False, on_lapped='oldest', on_lost='count', "
        "own=True, spin_us=None)",
        "unlink": "(self)",
    },
    msgq.Node: {
        "": "(name, *, prefix=None, trust=None)",
        "advertise": "(self, channel, config=None, **settings)",
        "close": "(self)",
        "create_mailbox": "(self, tag, config=None, **settings)",
        "join_broadcast": "(self, name, config=None, *, own=False, **settings)",
        "open_mailbox": "(self, owner, tag, config=None, **settings)",
        "subscribe": "(self, channel, config=None, **settings)",
    },
    Publisher: {
        **dict.fromkeys(["endpoint", "name", "closed", "slots", "slot_bytes"], ""),
        **dict.fromkeys(["sent", "bytes", "refused", "evicted"], ""),
        "close": "(self, /)",
        "loan": "(self, size, /, *, timeout=0.0)",
        "stats": "(self, /)",
        "send": "(self, data, /, *, timeout=0.0, origin_time=0)",
        "send_many": "(self, messages, /, *, origin_time=0)",
    },
    Loan: {"position": "", "origin_time": "", "publish": "(self, /, size=None)", "discard": "(self, /)"},
    Subscriber: {
        **dict.fromkeys(["endpoint", "name", "closed", "passive", "max_views", "views_held"], ""),
        **dict.fromkeys(["received", "lost", "resets", "position", "last"], ""),
        "areceive": "(self, /)",
        "arecv": "(self, /)",
        "stats": "(self, /)",
        "close": "(self, /)",
        "fileno": "(self, /)",
        "receive": "(self, /, timeout=None)",
        "receive_array": "(self, /, dtype, limit=None, *, timeout=0.0, publishers=None)",
        "receive_into": "(self, /, buffer, timeout=None)",
        "receive_many": "(self, /, limit=None)",
        "receive_view": "(self, /, timeout=None)",
    },
    Sample: {
        **dict.fromkeys(["position", "publish_time", "origin_time", "publisher"], ""),
        "release": "(self, /)",
    },
}


def test_channel_package_has_pinned_names() -> None:
    assert set(msgq.channel.__all__) == {"Broadcast", "Channel", "Node"}
    assert msgq.channel.Broadcast._fields == ("publisher", "subscriber")
    assert msgq.Channel is msgq.channel.Channel
    assert msgq.Node is msgq.channel.Node


@pytest.mark.parametrize("kind", NAMES, ids=lambda kind: kind.__name__)
def test_channel_classes_have_pinned_signatures(kind: Any) -> None:
    members = {name: inspect.getattr_static(kind, name) for name in public(kind)}
    found = {name: plain_signature(member) if callable(member) else "" for name, member in members.items()}
    if "" in NAMES[kind]:
        found[""] = plain_signature(kind)
    assert found == NAMES[kind]


@pytest.mark.parametrize("kind", NAMES, ids=lambda kind: kind.__name__)
def test_channel_members_have_docstrings(kind: Any) -> None:
    assert inspect.getdoc(kind)
    for name in public(kind) - {"origin_time" if kind is Loan else ""}:  # a plain attribute; the class explains it
        assert inspect.getdoc(inspect.getattr_static(kind, name)), name
