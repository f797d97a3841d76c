"""A name or a pattern selects the same endpoints wherever endpoints are chosen."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq.bridge import Bridge
from msgq.common.selection import SelectedEndpoints, parse_pattern
from msgq.errors import InvalidValueError, MsgqWarning
from msgq.recording import LogReader, Player, Recorder, compare
from msgq.spark.source.source_options import SourceOptions
from tests.command import run
from tests.recording.logs import build_chunk_record, channel, message, write_log, write_unclosed_file

NAMES = ("a+b", "aab", "cam", "camer", "camera", "camera.front", "camera_rear", "gps", "imu0", "imu[0]", "imux")
#: Patterns as a person writes them, and the NAMES that each selects.
SELECTED = {
    "camera": {"camera"},
    "camera.front": {"camera.front"},
    "camera.*": {"camera", "camera.front", "camera_rear"},
    "camera*": {"camera", "camera.front", "camera_rear"},
    r"camera\..*": {"camera.front"},
    "*a": {"camera"},
    "cam|gps": {"cam", "gps"},
    "(cam|gps).*": {"cam", "camer", "camera", "camera.front", "camera_rear", "gps"},
    "imu?": {"imu0", "imux"},
    "imu[!0]": {"imux"},
    "a+b": {"a+b", "aab"},
    "imu[0]": {"imu0", "imu[0]"},
    r"imu\[0\]": {"imu[0]"},
    "(?i)GPS": {"gps"},
    ".*": set(NAMES),
    "nobody": set(),
}
BAD = ("(", "a(", "[", "+a", "a\\", "a)|(b", "[z-a]", "(?P<n>a)(?P<n>b)")


def warns_of_missing(text: str) -> AbstractContextManager[object]:
    """Expect a warning for a text that selects nothing."""
    return nullcontext() if SELECTED[text] else pytest.warns(MsgqWarning, match=text)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of all endpoints, with a message of each."""
    path = tmp_path_factory.mktemp("selection") / "log.mcap"
    numbered = list(enumerate(NAMES, 1))
    channels = [channel(number, name) for number, name in numbered]
    return write_unclosed_file(
        path, build_chunk_record(*channels, *(message(number, 0, number, b"x") for number, _ in numbered))
    )


@pytest.fixture
def bus(prefix: str) -> Iterator[dict[str, msgq.PubSocket]]:
    """Publishers of all endpoints."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(msgq.pub_sock(name, 4096)) for name in NAMES}


@pytest.fixture
def bus_without_publishers(bus: dict[str, msgq.PubSocket]) -> None:
    for socket in bus.values():
        socket.close()


def read_command_lines(*arguments: object, code: int = 0) -> set[str]:
    """What a verb says about endpoints, a line each."""
    lines = map(json.loads, run(*arguments, "--json", code=code).stdout.splitlines())
    return {line["endpoint"] for line in lines if "endpoint" in line}


every_text = pytest.mark.parametrize("text", SELECTED)


@every_text
def test_pattern_selects_the_same_names_after_pickling(text: str) -> None:
    selection = pickle.loads(pickle.dumps(SelectedEndpoints([parse_pattern(text)])))
    assert {name for name in NAMES if name in selection} == SELECTED[text]
    assert {name for name in NAMES if name not in SelectedEndpoints(None, [parse_pattern(text)])} == SELECTED[text]


@every_text
def test_pattern_selects_the_endpoints_of_recordings(text: str, log: Path, tmp_path: Path) -> None:
    assert set(LogReader(log, endpoints=[parse_pattern(text)]).endpoints) == SELECTED[text]
    assert set(LogReader(log, exclude=[parse_pattern(text)]).endpoints) == set(NAMES) - SELECTED[text]
    whole = LogReader(log)
    assert set(compare(whole, whole, endpoints=[parse_pattern(text)]).endpoints) == SELECTED[text]
    code = not SELECTED[text]
    assert read_command_lines("bag", "info", log, "--endpoint", text, code=code) == SELECTED[text]
    run("bag", "filter", log, "--endpoint", text, "-o", tmp_path / "some.mcap", code=code)
    if SELECTED[text]:
        assert set(LogReader(tmp_path / "some.mcap").endpoints) == SELECTED[text]


@every_text
def test_pattern_selects_the_endpoints_on_spark(text: str, log: Path) -> None:
    """Its workers get pickles."""
    for written in (text, json.dumps([text])):
        options = pickle.loads(pickle.dumps(SourceOptions.parse_options({"path": str(log), "endpoints": written})))
        assert set(options.open_log(log).endpoints) == SELECTED[text]


@every_text
def test_pattern_selects_the_endpoints_of_observing_commands(text: str, bus: dict[str, msgq.PubSocket]) -> None:
    code = not SELECTED[text]
    assert read_command_lines("list", text, "--duration", 0, code=code) == SELECTED[text]
    assert read_command_lines("top", text, "--once", "--interval", 0.01, code=code) == SELECTED[text]


@every_text
def test_pattern_selects_the_endpoints_of_a_recorder(text: str, bus: dict[str, msgq.PubSocket], tmp_path: Path) -> None:
    with warns_of_missing(text), Recorder(tmp_path / "a.mcap", [parse_pattern(text)]):
        for socket in bus.values():
            socket.send(b"x")
    assert set(LogReader(tmp_path / "a.mcap").endpoints) == SELECTED[text]


@every_text
def test_pattern_selects_the_endpoints_of_a_player(text: str, log: Path, prefix: str) -> None:
    if SELECTED[text]:
        with Player(LogReader(log, endpoints=[parse_pattern(text)])) as player:
            assert set(player.endpoints) == SELECTED[text]


@every_text
def test_pattern_selects_the_endpoints_of_a_bridge(text: str, bus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSGQ_ZMQ_TRANSPORT", "ipc")
    with Bridge([text]) as bridge:
        bridge.run(0)
        assert {flow.topic for flow in bridge.flows()} == SELECTED[text]


@every_text
def test_pattern_selects_the_endpoints_of_a_check(text: str, bus: Any, tmp_path: Path) -> None:
    file = tmp_path / "expected.toml"
    file.write_text(f"duration = 0.01\n[endpoints.'{text}']\n")
    lines = map(json.loads, run("check", file, "--json", code=not SELECTED[text]).stdout.splitlines())
    assert {line["endpoint"] for line in lines if line["ok"]} == SELECTED[text]


def test_record_command_takes_the_endpoints_of_a_pattern(bus: dict[str, msgq.PubSocket], tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    run("record", "camera.*", "-o", path, "--duration", 0.01, "--json")
    assert (
        json.loads(run("record", "camera.*", "-o", tmp_path / "b", "--duration", 0, "--json").stdout)["endpoints"] == 3
    )


def test_log_reader_warns_of_names_and_expressions_that_select_nothing(tmp_path: Path) -> None:
    path = write_log(tmp_path / "a.mcap", ("camera", 0, b"x"))
    assert not LogReader(path, endpoints=["camera", re.compile("^cam")]).problems
    with pytest.warns(MsgqWarning, match="no endpoint 'camra'; did you mean 'camera'") as caught:
        assert list(LogReader(path, endpoints=["camera", "camra"]).endpoints) == ["camera"]
    assert [warning.filename for warning in caught] == [__file__]
    with pytest.warns(MsgqWarning, match="no endpoint '\\^imu'; its endpoints are 'camera'"):
        LogReader(path, endpoints=re.compile("^imu"))
    with pytest.raises(InvalidValueError, match="kinds is empty"):
        LogReader(path).full_history()


def test_recorder_warns_at_stop_of_names_that_never_existed(
    bus: dict[str, msgq.PubSocket], prefix: str, tmp_path: Path
) -> None:
    recorder = Recorder(tmp_path / "log", ["gps", "later", "gsp", re.compile("^cam")])
    with msgq.pub_sock("later") as later:
        later.send(b"x")
    with pytest.warns(MsgqWarning, match="nothing was recorded of 'gsp', which") as caught:
        recorder.stop()
    assert [warning.filename for warning in caught] == [__file__]
    assert set(LogReader(tmp_path / "log").endpoints) == {"later"}


@pytest.mark.parametrize("text", BAD)
def test_invalid_pattern_error_is_one_line(text: str, log: Path, prefix: str, tmp_path: Path) -> None:
    file = tmp_path / "expected.toml"
    file.write_text(f"[endpoints.'{text}']")
    choosing: list[Callable[[], object]] = [
        partial(parse_pattern, text),
        partial(Bridge, [text]),
        partial(SourceOptions.parse_options, {"path": "p", "endpoints": text}),
    ]
    for choose in choosing:
        with pytest.raises(
            InvalidValueError, match=r"not a regular expression: [^\n]*for the endpoint with this name, give"
        ):
            choose()
    for words in (
        ("list", text),
        ("record", text, "-o", tmp_path / "a.mcap"),
        ("bag", "info", log, "--endpoint", text),
        ("check", file),
    ):
        (line,) = (line for line in run(*words, code=2).stderr.splitlines() if line.startswith("Error"))
        assert f"{text!r} is not a regular expression" in line


def test_endpoint_name_in_python_selects_only_that_endpoint() -> None:
    for name in ("a+b", "imu[0]", "(", "camera.*"):
        assert [one for one in (*NAMES, "(", "camera.*") if one in SelectedEndpoints([name])] == [name]


def test_compiled_regular_expression_is_searched_in_names() -> None:
    assert {name for name in NAMES if name in SelectedEndpoints(re.compile("era"), re.compile("t$"))} == {
        "camera",
        "camera_rear",
    }


def test_selection_without_patterns_has_all_and_empty_list_no_endpoints() -> None:
    assert "any" in SelectedEndpoints()
    assert "any" not in SelectedEndpoints([])
    assert "any" not in SelectedEndpoints(None, ["any"])


@every_text
def test_pattern_selects_the_endpoints_of_clean_command(text: str, bus_without_publishers: None) -> None:
    if SELECTED[text]:
        assert read_command_lines("clean", "--dry-run", text) == SELECTED[text]
    else:
        assert "no endpoint matches nobody" in run("clean", "--dry-run", text, code=1).stderr
