"""The public names and signatures, pinned: what is not here is not promised, what is here does not change silently."""

from __future__ import annotations

import dataclasses
import inspect
import types

import pytest

import msgq
from msgq import api, errors, fake_events, stats

TOP = {
    "NO_TRAVERSAL_LIMIT",
    "Context",
    "Event",
    "IpcError",
    "MultiplePublishersError",
    "Poller",
    "PubSocket",
    "Schema",
    "SocketEventHandle",
    "SubSocket",
    "context",
    "delete_fake_prefix",
    "drain_sock_raw",
    "errors",
    "fake_event_handle",
    "get_fake_prefix",
    "pub_sock",
    "set_fake_prefix",
    "stats",
    "sub_sock",
    "toggle_fake_events",
    "wait_for_one_event",
    "__version__",
}
ERRORS = {
    "IpcError": "Exception",
    "MultiplePublishersError": "IpcError",
    "EndpointNameError": "IpcError ValueError",
    "InvalidValueError": "IpcError ValueError",
    "SegmentError": "IpcError",
    "SegmentSizeError": "SegmentError",
    "LayoutVersionError": "SegmentError",
    "CorruptSegmentError": "SegmentError",
    "MessageSizeError": "IpcError ValueError",
    "MessageTooLargeError": "MessageSizeError",
    "EndpointClosedError": "IpcError",
    "ForkedSocketError": "IpcError",
    "ConcurrentUseError": "IpcError",
    "WaitTimeoutError": "IpcError TimeoutError",
    "EventTimeoutError": "WaitTimeoutError RuntimeError",
    "EventError": "IpcError RuntimeError",
    "ControllerDiedError": "EventError",
    "BackendNotAvailableError": "IpcError",
}
RECORDS = {
    stats.Participant: "pid thread_id start_time name alive",
    stats.PublisherStats: "endpoint messages bytes",
    stats.SubscriberStats: "endpoint received lost resets",
    stats.SubscriberInfo: "participant received lost resets lag_bytes",
    stats.TopicStats: "endpoint path data_bytes publisher publisher_kind messages bytes write_position subscribers "
    "stock_subscribers schema created_ns",
    msgq.Schema: "name encoding data",
}
FUNCTIONS = {
    msgq.pub_sock: "(endpoint, segment_size=0)",
    msgq.sub_sock: "(endpoint, poller=None, addr='127.0.0.1', conflate=False, timeout=None, segment_size=0)",
    msgq.drain_sock_raw: "(sock, wait_for_one=False)",
    msgq.delete_fake_prefix: "()",
    msgq.fake_event_handle: "(endpoint, identifier=None, override=True, enable=False)",
    msgq.get_fake_prefix: "()",
    msgq.set_fake_prefix: "(prefix)",
    msgq.toggle_fake_events: "(enabled)",
    stats.topic: "(endpoint, prefix=None)",
    stats.topics: "(prefix=None)",
}
# Compiled methods carry their signature in the first line of their docstring; () is a property.
METHODS = {
    msgq.Context: {"closed": "", "term": ""},
    msgq.PubSocket: {
        "all_readers_updated": "(self)",
        "close": "(self)",
        "closed": "",
        "connect": "(self, context: Context, endpoint, segment_size=0, *, mode=None, schema=None)",
        "endpoint": "",
        "reserve": "(self, size)",
        "send": "(self, data)",
        "send_many": "(self, messages)",
        "stats": "(self)",
        "wait_for_readers": "(self, timeout=1.0, interval=0.001, n=None)",
    },
    msgq.SubSocket: {
        "close": "(self)",
        "closed": "",
        "conflate": "",
        "connect": "(self, context: Context, endpoint, address=b'127.0.0.1', conflate: bool = False, "
        "segment_size=0, *, mode=None, passive: bool = False, spin_us=None)",
        "endpoint": "",
        "lost": "",
        "receive": "(self, non_blocking: bool = False)",
        "receive_array": "(self, dtype, max_messages=None, wait_for_one: bool = False)",
        "receive_into": "(self, buffer, non_blocking: bool = False)",
        "receive_many": "(self, max_messages=None, wait_for_one: bool = False)",
        "setTimeout": "(self, timeout)",
        "stats": "(self)",
    },
    msgq.Event: {"clear": "(self)", "fd": "", "peek": "(self)", "set": "(self)", "wait": "(self, timeout_s=-1)"},
    msgq.SocketEventHandle: {
        "close": "(self)",
        "enabled": "",
        "endpoint": "",
        "identifier": "",
        "recv_called_event": "",
        "recv_ready_event": "",
    },
    msgq.Poller: {"poll": "(self, timeout)", "registerSocket": "(self, socket: SubSocket)"},
}


def public(namespace: object) -> set[str]:
    return {name for name in dir(namespace) if not name.startswith("_")}


def defined_in(module: types.ModuleType) -> set[str]:
    return {name for name in public(module) if getattr(getattr(module, name), "__module__", None) == module.__name__}


def plain_signature(function: object) -> str:
    signature = inspect.signature(function)
    parameters = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


def test_names_of_the_package():
    assert set(msgq.__all__) == TOP
    assert sorted(msgq.__all__) == sorted(set(msgq.__all__))
    submodules = {name for name in public(msgq) if isinstance(getattr(msgq, name), types.ModuleType)}
    assert public(msgq) - submodules <= TOP
    assert set(api.__all__) | set(fake_events.__all__) <= TOP


def test_errors_are_one_tree():
    assert defined_in(errors) == set(ERRORS)
    bases = {name: " ".join(base.__name__ for base in getattr(errors, name).__bases__) for name in ERRORS}
    assert bases == ERRORS


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_records_are_frozen_and_have_these_fields(record):
    assert [field.name for field in dataclasses.fields(record)] == RECORDS[record].split()
    assert record.__dataclass_params__.frozen


def test_names_of_stats():
    records = {record.__name__ for record in RECORDS if record.__module__ == stats.__name__}
    assert defined_in(stats) == records | {"topic", "topics"}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_signatures_of_functions(function):
    assert plain_signature(function) == FUNCTIONS[function]


@pytest.mark.parametrize("kind", METHODS, ids=lambda kind: kind.__name__)
def test_methods_and_their_signatures(kind):
    found = {}
    for name in public(kind):
        first = (inspect.getattr_static(kind, name).__doc__ or "").partition("\n")[0]
        found[name] = first.removeprefix(name)
    assert found == METHODS[kind]
