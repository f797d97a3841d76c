"""Logs as containers: endpoints by name, numbers of messages, times as texts, and what notebooks show."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import msgq
from msgq.errors import InvalidTypeError, InvalidValueError, RecordingError, UnknownEndpointError
from msgq.recording import LogReader, Writer
from msgq.recording.reader.log_times import parse_log_time

START = datetime(2026, 11, 25, 10, tzinfo=UTC)
START_NS = int(START.timestamp()) * 10**9
STEP_NS = 10**9


@pytest.fixture
def log(tmp_path: Path) -> LogReader:
    """Return a log with ten messages of "imu", one per second from `START`, and five of "gps"."""
    with Writer(tmp_path / "log.mcap") as writer:
        imu = writer.channel("imu", msgq.Schema.of("<f8", "<Imu>"))
        gps = writer.channel("gps", msgq.Schema.json("Gps"))
        for number in range(10):
            time = START_NS + number * STEP_NS
            writer.write(imu, np.float64(number).tobytes(), log_time=time)
            if number % 2:
                writer.write(gps, b"{}", log_time=time)
    return LogReader(tmp_path / "log.mcap")


def test_len_is_the_number_of_messages(log: LogReader) -> None:
    assert len(log) == len(list(log)) == 15
    assert len(log["gps"]) == len(list(log["gps"])) == 5
    assert len(log.between(START + timedelta(seconds=8))) == 3


def test_log_is_true_if_it_has_messages(log: LogReader) -> None:
    assert log
    assert not log.between(START + timedelta(days=1))


def test_index_selects_the_messages_of_an_endpoint(log: LogReader) -> None:
    only = log["imu"]
    assert {message.endpoint for message in only} == {"imu"}
    assert list(only.endpoints) == ["imu"]
    assert only.to_numpy("imu").tolist() == list(range(10))
    assert len(log.between("2026-11-25T10:00:08")["imu"]) == 2


def test_contains_tests_names_of_endpoints(log: LogReader) -> None:
    assert "imu" in log
    assert "nosuch" not in log
    assert "gps" not in log["imu"]


@pytest.mark.parametrize("read", ["__getitem__", "to_numpy", "to_arrow", "to_pandas", "times"])
def test_misspelt_endpoint_raises_with_the_nearest_name(log: LogReader, read: str) -> None:
    with pytest.raises(UnknownEndpointError, match=r"did you mean 'imu'\?") as caught:
        getattr(log, read)("imuu")
    assert isinstance(caught.value, KeyError)
    assert isinstance(caught.value, RecordingError)
    with pytest.raises(UnknownEndpointError, match="its endpoints are 'gps', 'imu'"):
        getattr(log, read)("nothing similar")


@pytest.mark.parametrize("index", [0, slice(1), b"imu"])
def test_index_of_another_type_raises(log: LogReader, index: Any) -> None:
    with pytest.raises(InvalidTypeError, match="give the name of an endpoint"):
        log[index]


CEST = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    "start",
    [
        "2026-11-25T10:00:03",
        "2026-11-25 10:00:03Z",
        "2026-11-25T12:00:03+02:00",
        START + timedelta(seconds=3),
        (START + timedelta(seconds=3)).astimezone(CEST),
        (START + timedelta(seconds=3)).replace(tzinfo=None),
        np.datetime64("2026-11-25T10:00:03"),
        START_NS + 3 * STEP_NS,
        np.int64(START_NS + 3 * STEP_NS),
    ],
)
def test_times_of_all_forms_select_the_same_messages(log: LogReader, start: Any) -> None:
    end = "2026-11-25T10:00:05"
    expected = [START_NS + number * STEP_NS for number in (3, 4)]
    assert [message.log_time for message in log["imu"].between(start, end)] == expected
    narrow = LogReader(*(file.path for file in log.files), endpoints=["imu"], start=start, end=end)
    assert [message.log_time for message in narrow] == expected


@pytest.mark.parametrize(
    ("time", "error"),
    [
        ("yesterday", InvalidValueError),
        ("", InvalidValueError),
        (np.datetime64("NaT", "s"), InvalidValueError),
        (1.5, InvalidTypeError),
        (timedelta(1), InvalidTypeError),
    ],
)
def test_invalid_time_raises(log: LogReader, time: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="give"):
        log.between(time)


UNIT_TIMES = {
    "1970": 0,
    "1969-12": -31 * 86_400,
    "9999-12-31": 253_402_214_400,
    "1600-01-01T00": -11_676_096_000,
    "2300-01-01": 10_413_792_000,
    "-20000": -693_306_259_200,
}


def test_datetime64_of_any_unit_and_year_is_converted_exactly() -> None:
    for text, seconds in UNIT_TIMES.items():
        assert parse_log_time(np.datetime64(text)) == seconds * 10**9, text
    values = {"25s": 75 * 10**9, "W": 21 * 86_400 * 10**9, "us": 3000, "ps": 0, "10Y": 946_684_800 * 10**9}
    unit: Any
    for unit, value in values.items():
        assert parse_log_time(np.datetime64(3, unit)) == value, unit
    assert parse_log_time(np.datetime64(2**62, "D")) == 2**62 * 86_400 * 10**9


def test_far_datetime64_selects_all_messages_before_it(log: LogReader) -> None:
    early, late = np.datetime64("1600-01-01"), np.datetime64("2600-01-01")
    assert len(log.between(early, late)) == len(log) > 0
    assert len(log.between(late)) == len(log.between(None, early)) == 0


def test_start_later_than_end_raises(log: LogReader) -> None:
    """Equal limits are an empty range: a program may compute them."""
    early, late = "2026-11-25T10:00:03", "2026-11-25T10:00:05"
    paths = [file.path for file in log.files]
    for read in (log.between, lambda start, end: LogReader(*paths, start=start, end=end)):
        with pytest.raises(InvalidValueError, match=f"start '{late}' is later than end '{early}'; swap start and end"):
            read(late, early)
        assert not read(early, early)
        assert len(read(early, late)) == 3
    assert not log.between(None, early).between(late)


def test_fractions_of_seconds_are_exact(log: LogReader) -> None:
    just_after = log["imu"].between("2026-11-25T10:00:00.000001")
    assert just_after.start_time == START_NS + STEP_NS


def test_times_are_datetimes_in_the_order_of_the_messages(log: LogReader) -> None:
    times = log.times("imu")
    assert times.dtype == np.dtype("datetime64[ns]")
    assert times[0] == np.datetime64("2026-11-25T10:00:00")
    assert len(times) == len(log.to_numpy("imu"))


def test_pandas_has_datetimes_on_request(log: LogReader) -> None:
    frame = log.to_pandas("imu", datetimes=True)
    assert str(frame["log_time"].iloc[3]) == "2026-11-25 10:00:03"
    assert frame["origin_time"].isna().all()
    assert log.to_pandas("imu")["log_time"].iloc[0] == START_NS


def test_repr_has_the_totals(log: LogReader) -> None:
    assert "2 endpoints, 15 messages, 9.000 s" in repr(log)
    assert "not scanned yet" in repr(log.between("2026-11-25T10:00:08"))


def test_html_lists_endpoints_and_escapes_names(log: LogReader) -> None:
    shown = log._repr_html_()
    assert "<td>imu</td>" in shown
    assert "&lt;Imu&gt; (struct)" in shown
    assert "<Imu>" not in shown


def test_text_of_a_time_has_nanoseconds() -> None:
    assert parse_log_time("2026-05-01T00:00:00.123456789") == parse_log_time("2026-05-01T00:00:00.123456") + 789  # type: ignore[operator]
    assert parse_log_time("1970-01-01T00:00:00.0000005Z") == 500
    assert parse_log_time("20260501") == parse_log_time("2026-05-01")


def test_date_without_dashes_is_no_time_of_a_spark_source() -> None:
    source_options = pytest.importorskip("msgq.spark.source.source_options")
    with pytest.raises(InvalidValueError, match="'20260501', a date or nanoseconds"):
        source_options._parse_time_option("end", "20260501")
    assert source_options._parse_time_option("end", "2026-05-01T00:00:00.0000001Z") == 1_777_593_600_000_000_100
    assert source_options._parse_time_option("end", "-5") == -5
