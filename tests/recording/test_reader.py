"""LogReader: ours and foreign files, one and several, whole and truncated."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pyarrow as pa
import pytest
from mcap import records

from msgq import Schema
from msgq.common.selection import SelectedEndpoints
from msgq.errors import IpcError, RecordingError
from msgq.recording import LogReader
from tests.recording.logs import (
    FOREIGN,
    build_chunk_record,
    by_library,
    channel,
    encode_parts,
    message,
    write_foreign,
    write_unclosed_file,
)


@pytest.mark.parametrize("kind", FOREIGN)
def test_reader_agrees_with_mcap_library_on_foreign_files(tmp_path: Path, kind: str) -> None:
    log = LogReader(write_foreign(tmp_path / "a.mcap", **FOREIGN[kind]))
    found = list(log)
    assert [m.data for m in found] == [b'{"n": %d}' % i for i in range(300)]
    assert [m.log_time for m in found] == [1000 + 10 * i for i in range(300)]
    assert {m.schema for m in found} == {Schema("Number", "json", b"{}")}
    assert found[4].endpoint == "topic1"
    assert (found[4].sequence, found[4].publish_time, found[4].epoch) == (1, 1035, 0)
    if kind not in ("no summary", "schemas in chunks only"):  # the other library cannot read these
        assert [(m.endpoint, m.data, m.log_time) for m in found] == by_library(Path(str(log.files[0].path)))
    assert not log.problems
    assert (log.start_time, log.end_time, log.messages) == (1000, 3990, 300)


@pytest.mark.parametrize("kind", FOREIGN)
def test_reader_batches_have_same_messages_as_iteration(tmp_path: Path, kind: str) -> None:
    log = LogReader(write_foreign(tmp_path / "a.mcap", **FOREIGN[kind]))
    batches = list(log.batches(rows=70))
    assert [batch.num_rows for batch in batches] == [70, 70, 70, 70, 20]
    table = pa.Table.from_batches(batches)
    table.validate(full=True)
    rows = sorted(table.to_pylist(), key=lambda row: row["log_time"])
    assert rows == [
        {name: getattr(m, name) for name in ("endpoint", "epoch", "sequence", "log_time", "publish_time", "data")}
        for m in log
    ]


def test_reader_batches_have_selected_columns(tmp_path: Path) -> None:
    log = LogReader(write_foreign(tmp_path / "a.mcap"))
    assert [batch.schema.names for batch in log.batches(["log_time", "endpoint"])] == [["log_time", "endpoint"]]
    with pytest.raises(IpcError, match="column 'topic' does not exist"):
        list(log.batches(["topic"]))


def test_reader_selects_endpoints_and_times(tmp_path: Path) -> None:
    path = write_foreign(tmp_path / "a.mcap")
    assert {m.endpoint for m in LogReader(path, endpoints=["topic1"])} == {"topic1"}
    assert {m.endpoint for m in LogReader(path, endpoints=[re.compile("[12]$")], exclude=["topic2"])} == {"topic1"}
    assert [m.log_time for m in LogReader(path, start=1500, end=1530)] == [1500, 1510, 1520]
    assert sum(batch.num_rows for batch in LogReader(path, start=1500, end=1530).batches()) == 3
    nothing = LogReader(path, endpoints=SelectedEndpoints(["another"]))
    assert list(nothing) == []
    assert (nothing.start_time, nothing.end_time, nothing.endpoints) == (None, None, {})


def test_reader_skips_chunks_outside_selection(tmp_path: Path) -> None:
    path = write_foreign(tmp_path / "a.mcap")
    data = bytearray(path.read_bytes())
    damaged = LogReader(path).files[0].blocks[3]
    data[damaged.offset + 80] ^= 0xFF
    path.write_bytes(data)
    assert len(LogReader(path).problems) == 0  # opening reads no chunk
    before = LogReader(path, end=damaged.start_time)
    assert len(list(before)) == (damaged.start_time - 1000) // 10
    assert not before.problems
    log = LogReader(path)
    assert 300 - len(list(log)) == (damaged.end_time - damaged.start_time) // 10 + 1
    assert [problem.offset for problem in log.problems] == [damaged.offset]


def test_reader_orders_messages_of_files_by_time(tmp_path: Path) -> None:
    write_unclosed_file(
        tmp_path / "000000.mcap", build_chunk_record(channel(1, "a"), *(message(1, i, 10 * i) for i in range(5)))
    )
    write_unclosed_file(
        tmp_path / "000001.mcap", build_chunk_record(channel(1, "b"), *(message(1, i, 10 * i + 5) for i in range(5)))
    )
    log = LogReader(tmp_path)
    assert [m.endpoint for m in log] == ["a", "b"] * 5
    assert [m.log_time for m in log] == list(range(0, 50, 5))
    assert list(log.endpoints) == ["a", "b"]


def test_sequence_gap_is_loss_only_within_epoch(tmp_path: Path) -> None:
    first = write_unclosed_file(
        tmp_path / "000000.mcap",
        build_chunk_record(channel(1, "a"), message(1, 2**32 - 2, 1), message(1, 2**32 - 1, 2), message(1, 3, 3)),
        build_chunk_record(channel(2, "a", epoch=2), message(2, 70, 4), message(2, 71, 5)),
    )
    second = write_unclosed_file(
        tmp_path / "000001.mcap", build_chunk_record(channel(9, "a", epoch=2), message(9, 75, 6), message(9, 74, 7))
    )
    info = LogReader(first, second).endpoints["a"]
    assert (info.lost, info.epochs, info.messages) == (3 + 3, 2, 7)
    assert (info.first_time, info.last_time) == (1, 7)
    assert LogReader(write_foreign(tmp_path / "f.mcap")).endpoints["topic0"].lost is None


def test_array_has_all_messages_of_struct_endpoint(tmp_path: Path) -> None:
    from mcap import records

    schema = records.Schema(id=1, name="p", encoding="struct", data=b'[["x", "<f8"], ["n", "<i4", [2]]]')
    path = write_unclosed_file(
        tmp_path / "a.mcap",
        build_chunk_record(
            schema,
            channel(1, "a", schema_id=1, encoding="struct"),
            message(1, 0, 1, bytes(16)),
            channel(2, "b"),
            message(2, 0, 1),
            message(1, 1, 2, bytes(32)),
        ),
    )
    log = LogReader(path)
    array = log.to_numpy("a")
    assert array.shape == (3,)
    assert array.dtype.names == ("x", "n")
    assert array["n"].shape == (3, 2)
    with pytest.raises(RecordingError, match="no schema"):
        log.to_numpy("b")
    with pytest.raises(RecordingError, match="no messages"):
        log.to_numpy("c")


def test_reader_decodes_by_schema(tmp_path: Path) -> None:
    path = write_unclosed_file(
        tmp_path / "a.mcap",
        build_chunk_record(
            channel(1, "json", encoding="json"),
            message(1, 0, 1, b'{"a": 1}'),
            message(1, 1, 2, b"{"),
            channel(2, "plain"),
            message(2, 0, 3, b"raw"),
            channel(3, "odd", encoding="odd"),
            message(3, 0, 4),
        ),
    )
    values = [value for _, value in LogReader(path).decoded()]
    assert values[0] == {"a": 1}
    assert values[1].data == b"{"
    assert "json" in values[1].reason
    assert values[2] == b"raw"
    assert "encoding 'odd' is not supported" in values[3].reason


def test_reader_of_file_truncated_at_each_byte_gives_whole_chunks(tmp_path: Path) -> None:
    channels = channel(1, "a")
    chunks = [build_chunk_record(channels, *(message(1, 10 * i + j, 10 * i + j) for j in range(5))) for i in range(4)]
    whole = write_unclosed_file(tmp_path / "a.mcap", *chunks).read_bytes()
    ends = [len(whole) - sum(map(len, chunks[i + 1 :])) for i in range(4)]
    path = tmp_path / "b.mcap"
    for size in range(ends[1], len(whole) + 1):
        path.write_bytes(whole[:size])
        log = LogReader(path)
        assert len(list(log)) == 5 * sum(end <= size for end in ends)
        assert not log.files[0].is_complete
        assert bool(log.problems) == (size not in ends)


def test_reader_of_other_file_type_raises_error(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    (tmp_path / "empty").touch()
    (tmp_path / "nothing").mkdir()
    for name, text in (
        ("text", "is not an MCAP file"),
        ("empty", "is not an MCAP file"),
        ("nothing", "contains no .mcap file"),
        ("missing", "No such file"),
    ):
        with pytest.raises(RecordingError, match=text):
            LogReader(tmp_path / name)
    with pytest.raises(IpcError, match="pass a file"):
        LogReader()


@pytest.mark.parametrize("kind", FOREIGN)
def test_log_pieces_read_in_other_processes_contain_all_messages(tmp_path: Path, kind: str) -> None:
    log = LogReader(write_foreign(tmp_path / "a.mcap", **FOREIGN[kind]), exclude=["topic2"])
    pieces = pickle.loads(pickle.dumps(log.split(2000)))
    assert len(pieces) > 2 or kind in ("one chunk", "unchunked")
    wanted = ["log_time", "data"]
    rows = [row for piece in pieces for batch in piece.batches(wanted) for row in batch.to_pylist()]
    assert rows == [row for batch in log.batches(wanted) for row in batch.to_pylist()]
    assert not any(piece.problems for piece in pieces)


def test_schema_is_found_in_any_chunk(tmp_path: Path) -> None:
    """The summary has channels; the chunk of the first messages has the schema, or a later one, or none."""
    path = write_foreign(tmp_path / "a.mcap", repeat_schemas=False)
    for log in (
        LogReader(path, start=3000),
        LogReader(path, endpoints=["topic1"], start=3980),
        *LogReader(path).split(1),
    ):
        assert {m.schema for m in pickle.loads(pickle.dumps(log))} == {Schema("Number", "json", b"{}")}
        assert {c.channel_record.schema for c in log.channels} <= {("Number", "jsonschema", b"{}")}
    assert LogReader(path, endpoints=["nothing"]).endpoints == {}
    found = records.Channel(id=1, topic="a", message_encoding="json", metadata={}, schema_id=9)
    schema = records.Schema(id=9, name="Late", encoding="jsonschema", data=b"{}")
    log = LogReader(
        write_unclosed_file(
            path, build_chunk_record(found, message(1, 0, 1)), build_chunk_record(schema, message(1, 1, 2))
        )
    )
    assert [(m.schema and m.schema.name) for m in log] == ["Late", "Late"]
    assert not log.problems
    log = LogReader(
        write_unclosed_file(path, build_chunk_record(found, message(1, 0, 1)), build_chunk_record(message(1, 1, 2)))
    )
    assert [(m.schema and m.schema.data) for m in log] == [b"", b""]
    assert [problem.reason for problem in log.problems] == ["channel 1 has schema 9, which is missing"]


@pytest.mark.parametrize("kind", FOREIGN)
def test_two_spans_of_a_log_contain_all_messages(tmp_path: Path, kind: str) -> None:
    path = write_foreign(tmp_path / "a.mcap", **FOREIGN[kind])
    batches = LogReader(path).batches(["log_time", "byte_offset", "channel"])
    offsets = [row["byte_offset"] for batch in batches for row in batch.to_pylist()]
    middle = offsets[len(offsets) // 2]
    spans = [LogReader(path, span=span) for span in ((0, middle), (middle, path.stat().st_size))]
    assert sorted(m.log_time for part in spans for m in part) == [m.log_time for m in LogReader(path)]


def test_truncated_chunk_index_hides_no_messages(tmp_path: Path) -> None:
    """What a reader sees of a chunk that is just being written: the chunk, and a part of its index."""
    both = build_chunk_record(channel(1, "a"), channel(2, "b"), message(1, 0, 10), message(2, 0, 20))
    index = encode_parts(records.MessageIndex(1, [(10, 0)]), records.MessageIndex(2, [(20, 9)]))
    path = tmp_path / "a.mcap"
    for size in range(0, len(index), 7):
        write_unclosed_file(path, both, index[:size])
        assert [m.endpoint for m in LogReader(path, endpoints=["b"])] == ["b"]
        write_unclosed_file(path, both, index[:size], b"\x77" * 30, both)
        assert [m.endpoint for m in LogReader(path, endpoints=["b"])] == ["b", "b"]
