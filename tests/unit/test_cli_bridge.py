"""`msgq bridge` as a command: its options, what it prints, how it ends. What it carries: see test_bridge.py."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from msgq import MessageQueue, pub_sock
from msgq.bridge import FORWARDING_STATE, FlowStats
from msgq.channel import Channel
from msgq.cli import bridge
from msgq.cli.app import app
from msgq.cli.common.columns import print_table
from tests.command import Process, start


def msgq(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["bridge", *arguments], catch_exceptions=False)


def make_flow_stats(topic: str, messages: int, state: str = FORWARDING_STATE) -> FlowStats:
    return FlowStats(topic, "out", "", messages, 10 * messages, 0, 0, state)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "nothing to forward"),
        (("--in", "a@x", "--in", "a@y"), "given twice"),
        (("--out", "a", "--interval", "0"), "--interval"),
        (("--in", "state@"), "host missing after '@'"),
        (("--in", r"camera\..*"), "ZMQ cannot list topics"),
        (("--in", "camera.(left|right)@10.0.0.7"), "ZMQ cannot list topics"),
    ],
)
def test_bridge_command_with_invalid_options_exits_with_usage_error(arguments: tuple[str, ...], complaint: str) -> None:
    result = msgq(*arguments)
    assert result.exit_code == 2
    assert complaint in result.output


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--out", "("), "regular expression"),
        (("--out", "a", "--in", "a"), "cannot be in --out and --in"),
        (("--out", "a", "--out", "channel/a"), "a and channel/a have the same ZMQ name"),
        (("--out", "queue/a"), "only topics and channels can"),
        (("--in", "records/a"), "only topics and channels can"),
        (("--in", "a/b"), "a/b"),
        (("--in", "a@no host"), "no host"),
        (("--in", "a@nowhere.invalid"), "host 'nowhere.invalid' cannot be resolved"),
        (("--in", "a", "--host", "nowhere.invalid"), "host 'nowhere.invalid' cannot be resolved"),
        (("--out", "a", "--bind", "nowhere.invalid"), "host 'nowhere.invalid' (--bind, MSGQ_ZMQ_BIND) cannot be bound"),
        (
            ("--out", "a", "--bind", "192.0.2.1"),
            "host '192.0.2.1' (--bind, MSGQ_ZMQ_BIND) cannot be bound",
        ),  # an address for documentation, which no host has
        (("--in", "a", "--segment-size", "1"), "segment_size"),
    ],
)
def test_bridge_command_prints_error_in_one_line(prefix: str, arguments: tuple[str, ...], word: str) -> None:
    result = msgq(*arguments)
    assert result.exit_code == 1
    assert result.output.count("\n") == 1
    assert word in result.output


def test_host_option_is_default_host_of_in_option() -> None:
    assert bridge._parse_sources(["a", "b@there", "c@::1"], "here") == {"a": "here", "b": "there", "c": "::1"}


def test_completion_of_bridge_command_offers_topics_and_channels(prefix: str) -> None:
    with pub_sock("topic a"), Channel("a"), MessageQueue("a"):
        completion = ShellComplete(app, {}, "msgq", "_MSGQ_COMPLETE")
        found = [item.value for item in completion.get_completions(["bridge", "--out"], "")]
        assert found == ["topic a", "channel/a"]


def test_bridge_command_shows_rates_since_last_report(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("msgq.cli.bridge.time.monotonic", lambda: now[0])
    report = bridge.FlowReport()
    now[0] += 2
    assert report.compute_recent_rates([make_flow_stats("a", 10)]) == [(make_flow_stats("a", 10), 5.0, 50.0)]
    now[0] += 1
    assert report.compute_recent_rates([make_flow_stats("a", 13)]) == [(make_flow_stats("a", 13), 3.0, 30.0)]
    now[0] += 1
    assert report.compute_overall_rates([make_flow_stats("a", 20)]) == [(make_flow_stats("a", 20), 5.0, 50.0)]


def test_bridge_command_table_shows_names_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(bridge._FLOW_COLUMNS, [(make_flow_stats("a[b]", 1234, "taken [red]"), 5.0, 50.0)])
    shown = capsys.readouterr().out
    for text in ("a[b]", "1,234", "taken [red]", "50 B"):
        assert text in shown


IN = ("bridge", "--in", "a", "--json", "--interval", "0.1")


@pytest.fixture
def running(prefix: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    """A bridge in a process of its own, that has begun."""
    monkeypatch.setenv("MSGQ_ZMQ_TRANSPORT", "ipc")
    with start(*IN) as made:
        first = made.line()
        assert (first["topic"], first["direction"], first["state"], first["final"]) == (
            "a",
            "in",
            FORWARDING_STATE,
            False,
        )
        yield made


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_bridge_command_prints_totals_at_end(running: Process, number: int) -> None:
    said, complaints = running.end(number)
    assert complaints == ""
    assert said[-1]["final"] is True


def test_second_bridge_command_waits_until_first_ends(running: Process, prefix: str) -> None:
    with start(*IN, "--prefix", prefix, env={"OPENPILOT_PREFIX": ""}) as second:
        assert f"msgq bridge {running.pid} is its publisher" in second.line()["state"]
        running.kill()
        running.wait()
        while second.line()["state"] != FORWARDING_STATE:
            pass
        _, complaints = second.end(signal.SIGTERM)
        assert len(complaints.splitlines()) == 1
