"""The public names and signatures of vectors and boards, pinned as those of work queues are, on both backends."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

import msgq
import msgq.records
from msgq.impl import records
from msgq.impl.fake import records as fake
from tests.meta.test_public_names import plain_signature, public
from tests.meta.test_queue_names import found_in

_MAKING = "exclusive=None, copies=None, create=None, mode=None, prefix=None, trust=None, passive=False, spin_us=None)"
OPENING = {
    "SeqlockVector": f"(name, dtype=None, length=None, *, {_MAKING}",
    "Seqlock": f"(name, dtype=None, *, {_MAKING}",
    "Board": "(name, keys=None, value_bytes=None, *, schema=None, create=None, mode=None, prefix=None, trust=None, "
    "passive=False, spin_us=None)",
}
# Methods; "" is a property.
WAITING = {
    **dict.fromkeys(["closed", "endpoint"], ""),
    "areceive": "(self)",
    "arecv": "(self)",
    "close": "(self)",
    "fileno": "(self)",
    "receive": "(self, timeout=None)",
    "watch": "(self, timeout=None)",
    "wait": "(self, timeout=None)",
}
HANDLE = {
    **WAITING,
    **dict.fromkeys(["name", "prefix", "path", "mode", "schema", "creator", "created_ns", "passive", "identity"], ""),
    "changes": "(self, limit=None)",
    "stats": "(self)",
    "unlink": "(self)",
    "unlink_name": "(name, prefix=None)",
}
VECTOR = {
    **HANDLE,
    **dict.fromkeys(["dtype", "exclusive", "copies", "changed"], ""),
    "claim": "(self)",
    "snapshot": "(self, atomic=False, out=None, timeout=1.0)",
}
MEMBERS = {
    "SeqlockVector": {
        **VECTOR,
        "counts": "(self, indices=None)",
        "read": "(self, indices=None, out=None)",
        "times": "(self, indices=None)",
        "write": "(self, indices, values, *, timeout=1.0)",
    },
    "Seqlock": {
        **VECTOR,
        **dict.fromkeys(["value", "time", "count"], ""),
        "read": "(self, out=None)",
        "write": "(self, value, timeout=1.0)",
    },
    "Board": {
        **HANDLE,
        **dict.fromkeys(["capacity", "value_bytes"], ""),
        "declare": "(self, key)",
        "items": "(self)",
        "keys": "(self)",
        "observe": "(self, key)",
    },
    "Entry": {**dict.fromkeys(["key", "closed"], ""), "close": "(self)", "write": "(self, data)"},
    "KeyObserver": {
        **WAITING,
        **dict.fromkeys(["key", "changed"], ""),
        "data": "(self)",
        "read": "(self)",
        "read_into": "(self, buffer)",
    },
}
BACKENDS = [pytest.param(records, id="msgq"), pytest.param(fake, id="fake")]


def test_records_package_has_pinned_names() -> None:
    kinds = {"Blackboard", "Board", "RecordQueue", "Seqlock", "SeqlockVector", "StageTracer", "tracked"}
    assert set(msgq.records.__all__) == kinds | {"Changes", "Value"}
    for name in kinds:
        assert getattr(msgq, name) is getattr(msgq.records, name)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", OPENING)
def test_record_constructors_have_pinned_signatures(name: Any, backend: Any) -> None:
    assert plain_signature(getattr(backend, name)) == OPENING[name]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MEMBERS)
def test_record_members_have_pinned_signatures(name: Any, backend: Any) -> None:
    assert found_in(getattr(backend, name)) == MEMBERS[name]


@pytest.mark.parametrize("name", MEMBERS)
def test_record_members_have_docstrings(name: Any) -> None:
    kind = getattr(records, name)
    assert inspect.getdoc(kind)
    for member in public(kind):
        assert inspect.getdoc(inspect.getattr_static(kind, member)), member


def test_record_values_have_pinned_fields() -> None:
    assert msgq.records.Changes._fields == ("indices", "rows", "times", "counts")
    value = {"data", "time", "count", "age_ns", "owner", "alive"}
    fields = {field.name for field in dataclasses.fields(msgq.records.Value) if field.repr}
    assert fields | set(public(msgq.records.Value)) == value
