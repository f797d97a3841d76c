"""Options that several verbs about live endpoints share. The verbs run in this process, next to a publisher."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq.impl.base import clock
from msgq.stats import topic, topic_inodes
from tests.command import run
from tests.support import repeating, wait_until

U64 = struct.Struct("<Q")


@pytest.fixture
def traffic(prefix: str) -> Iterator[None]:
    """A thread that publishes the times of three clocks on the topic car: host, realtime and monotonic."""
    with msgq.pub_sock("car", tracked=True) as car:

        def publish() -> None:
            car.send(b"".join(map(U64.pack, (clock.time_ns(), time.time_ns(), time.monotonic_ns()))))

        with repeating(publish, 0.001):
            wait_until(lambda: topic("car").messages)
            yield


def lines(*arguments: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*arguments, "--json").stdout.splitlines()]


@pytest.mark.parametrize(
    ("verb", "more"),
    [
        ("bw", ["car", "-n", 1, "--interval", 0.05]),
        ("delay", ["car", "-n", 1, "--interval", 0.05]),
        ("stat", ["car", "-n", 1, "--interval", 0.05]),
        ("top", ["car", "-n", 1, "--interval", 0.05]),
        ("check", ["expected.toml"]),
        ("pub", ["lorry", "hello"]),
    ],
)
def test_prefix_option_selects_endpoints_of_prefix(
    traffic: None, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, more: list[object]
) -> None:
    monkeypatch.delenv("OPENPILOT_PREFIX")
    monkeypatch.chdir(tmp_path)
    Path("expected.toml").write_text("duration = 0.5\n[endpoints.car]\nsize = 24\n")
    said = lines(verb, *more, "--prefix", prefix)
    assert {"lorry": verb == "pub", "car": True} == {name: name in topic_inodes(prefix) for name in ("lorry", "car")}
    match verb:
        case "stat":
            assert (said[0]["topics"], said[0]["publishers"]) == (1, 1)
        case "pub":
            assert topic("lorry", prefix).messages == 1
        case _:
            assert {line["endpoint"] for line in said} == {"car"}


@pytest.mark.parametrize("verb", ["hz", "bw", "delay", "stat", "top"])
def test_count_option_limits_number_of_printed_lines(traffic: None, verb: str) -> None:
    assert len(lines(verb, "car", "-n", 3, "--interval", 0.01)) == 3


@pytest.mark.parametrize(("verb", "figure"), [("hz", "periods_us"), ("delay", "delays_us")])
def test_command_with_spin_option_measures_each_message(traffic: None, verb: str, figure: str) -> None:
    def measured() -> Any:
        (reading,) = lines(verb, "car", "--spin", "--once", "--interval", 0.05)
        assert reading["lost"] == 0
        return reading[figure] and reading

    assert wait_until(measured)[figure]["p50"] > 0


@pytest.mark.parametrize(("name", "offset"), [("host", 0), ("realtime", 8), ("monotonic", 16)])
def test_delay_with_clock_option_compares_payload_time_with_given_clock(traffic: None, name: str, offset: int) -> None:
    def measured() -> Any:
        (reading,) = lines("delay", "car", "--offset", offset, "--clock", name, "--once", "--interval", 0.05)
        assert (reading["negative_delays"], reading["without_timestamp"]) == (0, 0)
        return reading["delays_us"]

    assert 0 < wait_until(measured)["min"] < 60e6
