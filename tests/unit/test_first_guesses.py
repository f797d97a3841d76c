"""Calls that newcomers try first raise an error that names the right call."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq.errors import InvalidTypeError, MsgqError, RecordTypeError
from msgq.recording import LogReader, Writer

SOCKETS: Any = msgq  # without the types of the arguments


@pytest.mark.parametrize(
    ("poller", "cure"),
    [
        (1000, "give a msgq.Poller, or timeout=1000 in milliseconds"),
        (0.5, "give a msgq.Poller, or timeout=0.5 in milliseconds"),
        ("127.0.0.1", "give a msgq.Poller, or addr='127.0.0.1'"),
        ([], "of type list; give a msgq.Poller"),
    ],
)
def test_sub_sock_with_other_second_argument_raises_with_its_parameter(endpoint: str, poller: Any, cure: str) -> None:
    with pytest.raises(InvalidTypeError, match=re.escape(cure)):
        msgq.sub_sock(endpoint, poller)


@pytest.mark.parametrize(
    ("kind", "function"), [("PubSocket", "pub_sock"), ("SubSocket", "sub_sock")], ids=["PubSocket", "SubSocket"]
)
def test_constructor_of_socket_with_name_raises_with_function(kind: str, function: str) -> None:
    with pytest.raises(InvalidTypeError, match=rf"takes no arguments, but got 'm1'; use msgq\.{function}\(name\)"):
        getattr(SOCKETS, kind)("m1")


def test_receive_with_seconds_raises_with_timeout(endpoint: str) -> None:
    with msgq.sub_sock(endpoint) as sub, pytest.raises(InvalidTypeError, match=r"use receive\(timeout=0\.05\)"):
        sub.receive(0.05)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("schema", "cure"),
    [
        ("json", "give msgq.Schema.json(name), or a dtype"),
        ("cbor", "give msgq.Schema(name, 'cbor'), or a dtype"),
        ("protobuf", "give msgq.Schema(name, 'protobuf', data), or a dtype"),
        ({"x": "f4", "y": "f4"}, "give a list of fields: [('x', 'f4'), ('y', 'f4')]"),
    ],
)
def test_pub_sock_with_other_schema_raises_with_right_one(endpoint: str, schema: Any, cure: str) -> None:
    with pytest.raises(RecordTypeError, match=re.escape(cure)):
        msgq.pub_sock(endpoint, schema=schema)


@pytest.mark.parametrize("schema", ["f8", {"names": ["x"], "formats": ["f4"]}, {"x": ("f4", 0)}])
def test_pub_sock_takes_each_form_of_a_dtype(endpoint: str, schema: Any) -> None:
    msgq.pub_sock(endpoint, schema=schema).close()


@pytest.fixture
def log(tmp_path: Path) -> LogReader:
    path = tmp_path / "a.mcap"
    Writer(path).close()
    return LogReader(path)


@pytest.mark.parametrize(
    "call", [LogReader.to_pandas, LogReader.to_arrow, LogReader.to_polars, LogReader.to_numpy, LogReader.times]
)
def test_table_of_several_endpoints_raises_with_cure(log: LogReader, call: Callable[..., Any]) -> None:
    with pytest.raises(InvalidTypeError, match=r"endpoint is \['a', 'b'\], of type list; give one name, and repeat"):
        call(log, ["a", "b"])


def test_topics_of_log_raise_with_endpoints(log: LogReader) -> None:
    with pytest.raises(MsgqError, match="LogReader has no topics; use endpoints"):
        log.topics  # type: ignore[attr-defined]  # noqa: B018
