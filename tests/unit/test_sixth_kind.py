"""A kind that the library does not know: one folder, `examples/plugin`, and one call of `register`."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgq_blobs.names import KIND, blob_files, blob_path
from msgq_blobs.stats import append, read_messages

from msgq import kinds, stats
from msgq.errors import InvalidValueError
from msgq.impl.meter import run_meters
from msgq.kinds.opening import open_feed, open_meter
from msgq.recording import LogReader, Player, Recorder, compare
from msgq.recording.player.remapping import EndpointRemapping
from msgq.recording.player.timed_messages import find_latest_state
from msgq.simulation import Fault, Simulation
from tests import command
from tests.blob_logs import MESSAGES, write_log
from tests.support import wait_until


@pytest.fixture(autouse=True)
def blob_kind(monkeypatch: pytest.MonkeyPatch, prefix: str) -> Iterator[None]:
    monkeypatch.setattr(kinds, "_registered_kinds", {})
    kinds.register_kind(KIND)
    yield
    for path in blob_path("x", prefix).parent.glob("*"):
        path.unlink()
    if blob_path("x", prefix).parent.exists():
        blob_path("x", prefix).parent.rmdir()


@pytest.fixture
def blob(prefix: str) -> str:
    for message in MESSAGES:
        append("notes", prefix, message)
    return "blob/notes"


STORED_PLURALS = ("topics", "channels", "records", "queues")


def lines(*words: object, code: int | None = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in command.run(*words, "--json", code=code).output.splitlines()]


def test_added_endpoint_kind_is_listed_and_counted(blob: str, prefix: str) -> None:
    (row,) = lines("list", "--duration", "0")
    assert (row["endpoint"], row["kind"], row["messages"], row["memory"]) == (blob, "blob", 2, 11)
    (line,) = lines("stat", "--once", "--interval", "0.01")
    assert (line["blobs"], line["topics"]) == (1, 0)
    assert command.run("stat", "--once", "--interval", "0.01").output.split()[:5] == [*STORED_PLURALS, "blobs"]
    assert "messages     2" in command.run("info", blob).output
    one = stats.endpoint(blob)
    assert (one.kind, one.messages, one.bytes) == ("blob", 2, 11)
    assert [found.endpoint for found in stats.endpoints()] == [blob]


def test_echo_shows_messages_of_added_endpoint_kind(blob: str) -> None:
    assert [line["hex"] for line in lines("echo", blob, "-n", "2")] == [message.hex() for message in MESSAGES]


def test_polled_feed_returns_each_message_once(blob: str, prefix: str) -> None:
    feed = open_feed(blob)
    assert [item.data for item in feed.take_items()] == MESSAGES
    append("notes", prefix, b"third")
    assert [item.data for item in feed.take_items()] == [b"third"]
    assert feed.take_items() == []


def test_commands_refuse_endpoint_whose_kind_has_no_such_part(blob: str) -> None:
    assert [kind.name for kind in kinds.list_stored_kinds("bridge")] == ["topic", "channel"]
    assert "blobs do not support this" in command.run("pub", blob, "x", code=1).output
    assert "use --index for records/NAME" in command.run("pub", "topic", "x", "--index", "1", code=2).output


def test_commands_skip_endpoints_whose_kind_has_no_parts(prefix: str) -> None:
    bare = kinds.Kind(
        name="blob",
        package="tests.meta",
        validate_name=str,
        name_prefix="blob/",
        plural_name="blobs",
        locate_files=blob_files,
    )
    kinds.register_kind(bare)
    append("notes", prefix, b"first")
    assert stats.endpoints() == []
    assert lines("list", "--duration", "0") == lines("clean") == []
    assert "blobs" not in {check["check"] for check in lines("doctor", code=None)}


def test_doctor_and_clean_handle_added_endpoint_kind(blob: str, prefix: str) -> None:
    append("empty", prefix, b"")
    checks = {check["check"]: check for check in lines("doctor", code=None)}
    assert checks["blobs"]["text"].startswith("2 blobs, ")
    assert [one["action"] for one in lines("clean", blob)] == ["removed"]
    assert not blob_path("notes", prefix).exists()


def test_recording_of_added_endpoint_kind_is_read_and_played(tmp_path: Path, prefix: str) -> None:
    path = write_log(tmp_path / "log.mcap")
    log = LogReader(path)
    assert {name: info.kind for name, info in log.endpoints.items()} == {"blob/notes": "blob"}
    with Player(log, rate=1000.0) as player:
        player.run()
    assert read_messages("notes", prefix) == MESSAGES
    assert compare(path, path)


def test_latest_state_of_added_kind_has_last_change_of_each_index(tmp_path: Path) -> None:
    header = (("count", "<u8"), ("index", "<u2"))
    kind = kinds.Kind(name="cells", package="msgq_blobs", validate_name=str, change_header=header)
    kinds.register_kind(kind)
    changes = [struct.pack("<QH", *change) for change in ((1, 5), (2, 5), (1, 7), (3, 5))]
    log = LogReader(write_log(tmp_path / "log.mcap", kind, changes))
    assert [message.data for message in find_latest_state(log, EndpointRemapping({}))] == changes[2:]


def test_added_endpoint_kind_is_recorded(blob: str, prefix: str, tmp_path: Path) -> None:
    with Recorder(tmp_path / "log", [blob]) as recorder:
        append("notes", prefix, b"third")
        wait_until(lambda: recorder.stats().messages == 1)
    log = LogReader(tmp_path / "log")
    assert [(message.kind, message.data) for message in log] == [("blob", b"third")]


def test_simulation_plays_added_endpoint_kind(prefix: str) -> None:
    with Simulation() as sim:
        sim.play([(1.0, "blob/notes", b"first"), (2.0, "blob/notes", b"second")])
        sim.run(1.5)
        assert read_messages("notes", prefix) == [b"first"]
        sim.run_until_idle()
    assert read_messages("notes", prefix) == MESSAGES
    with pytest.raises(InvalidValueError, match="'vanish' is unknown"):
        Fault("vanish", "blob/notes", message=1)  # type: ignore[arg-type]


def test_meter_counts_messages_of_added_endpoint_kind(blob: str, prefix: str) -> None:
    meter = open_meter(blob)
    append("notes", prefix, b"third")
    run_meters([meter], 0.0)
    reading = meter.take_reading()
    assert (reading.endpoint, reading.messages, reading.bytes, reading.lost) == (blob, 1, 5, 0)
