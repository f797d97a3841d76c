"""The verbs that show live topics, with real publishers."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq.stats import topic
from tests.command import run, start
from tests.support import DEADLINE, Child, repeating, wait_until
from tests.unit import publisher_children
from visionipc import VisionIpcServer


def lines(*arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*arguments, "--json").stdout.splitlines()]


@pytest.fixture
def traffic(prefix: str) -> Iterator[Child]:
    """A process that publishes on three endpoints, some 100 messages a second each."""
    with Child(publisher_children.publish_steadily, ["car", "weather", "plain"], 0.01) as child:
        assert child.hear() == "up"
        wait_until(lambda: topic("plain").messages)
        yield child


def test_list_shows_rates_for_names_and_patterns(traffic: Child) -> None:
    found = {line["endpoint"]: line for line in lines("list", "--duration", "0.3")}
    assert found.keys() == {"car", "weather", "plain"}
    assert found["plain"]["rate"] > 5
    assert found["plain"]["byte_rate"] == pytest.approx(10 * found["plain"]["rate"])
    assert found["plain"]["kind"] == "topic"
    assert [line["endpoint"] for line in lines("list", "car", "w.*")] == ["car", "weather"]
    assert lines("list", "plain", "--duration", "0")[0]["rate"] is None


def test_info_shows_publisher_schema_and_file(traffic: Child) -> None:
    (found,) = lines("info", "car", "--duration", "0.05")
    assert (found["publisher"]["pid"], found["mode"], found["schema"]["encoding"]) == (traffic.pid, "600", "struct")
    text = run("info", "car", "--duration", "0.05").stdout
    assert f"{traffic.pid}" in text
    assert "Car, struct" in text
    done = run("info", "bicycle", code=1)
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)


def test_echo_decodes_message_by_its_schema(traffic: Child) -> None:
    for line in lines("echo", "car", "-n", "3"):
        assert line["value"].keys() == {"publish_time", "speed", "wheels"}
        assert line["value"]["wheels"] == [line["value"]["speed"], -1]
    (said,) = lines("echo", "weather", "--once")
    assert said["value"]["text"] == "grüß"
    assert json.loads(run("echo", "weather", "--once").stdout)["text"] == "grüß"


def test_echo_shows_bytes_without_a_schema_in_hexadecimal(traffic: Child) -> None:
    (said,) = lines("echo", "plain", "--once")
    assert (said["size"], said["hex"][:4]) == (10, "0001")
    assert len(bytes.fromhex(run("echo", "plain", "--once").stdout)) == 10
    assert json.loads(bytes.fromhex(run("echo", "weather", "--once", "--hex").stdout))["text"] == "grüß"
    raw = run("echo", "plain", "-n", "2", "--raw").stdout_bytes
    assert (len(raw), raw[:2]) == (20, b"\x00\x01")


def test_echo_of_several_topics_shows_each_topic(traffic: Child) -> None:
    done = run("echo", "car|weather", "-n", "4")
    assert {line.partition(":")[0] for line in done.stdout.splitlines()} == {"car", "weather"}


@pytest.mark.parametrize("verb", ["echo", "hz", "bw"])
def test_measuring_command_exits_with_3_on_timeout(prefix: str, verb: str) -> None:
    assert run(verb, "nothing", "--timeout", "0.1", code=3).stdout == ""
    with msgq.pub_sock("silent"):
        assert "no message within 0.1 s" in run(verb, "silent", "--timeout", "0.1", code=3).stderr


def test_hz_shows_exact_rate_at_full_speed(prefix: str) -> None:
    with Child(publisher_children.publish_blocks, "busy", 2000) as child:
        child.hear()
        with start("hz", "busy", "--json", "--interval", "0.2") as meter:
            assert meter.line()["messages"] == 0  # `hz` runs before the first message
            child.say()
            sent = child.result()
            seen = 0
            while seen < sent:
                reading = meter.line()
                assert reading["lost"] is not None
                seen += reading["messages"] + reading["lost"]
            assert seen == sent == topic("busy").messages
            assert meter.end(signal.SIGINT)[1] == ""


def test_hz_bw_and_delay_measure_without_using_subscriber_slot(traffic: Child) -> None:
    (hz,) = lines("hz", "car", "--once", "--interval", "0.3")
    assert hz["periods_us"]["min"] <= hz["periods_us"]["p50"] <= hz["periods_us"]["max"]
    assert hz["rate"] == pytest.approx(1e6 / hz["periods_us"]["mean"])
    (bw,) = lines("bw", "car", "-n", "1", "--interval", "0.3")
    assert (bw["sizes"]["min"], bw["sizes"]["max"]) == (16, 16)
    assert bw["byte_rate"] == pytest.approx(16 * bw["rate"])
    for offset in ([], ["--offset", "0"]):
        (delay,) = lines("delay", "car", "--once", "--interval", "0.3", *offset)
        assert 0 < delay["delays_us"]["p50"] < 60e6
        assert delay["negative_delays"] == 0
    assert topic("car").subscribers == ()
    assert "p99.9" in run("hz", "car", "--once", "--interval", "0.1").stdout


def test_delay_without_publish_time_exits_with_usage_error(traffic: Child) -> None:
    complaint = run("delay", "weather", "--once", code=1).stderr
    assert "--offset" in complaint
    assert complaint.count("\n") == 1


def test_delay_of_frames_suggests_offset_of_frame_time(prefix: str) -> None:
    with VisionIpcServer("cam") as server:
        server.create_buffers(0, 2, 64, 64)
        server.start_listener()
        said = run("delay", "visionipc_cam_0", "--once", code=1).stderr
        offset = re.findall(r"--offset \d+ --clock \w+", said)[0].split()

        def serve() -> None:
            with server.frame(0):
                pass

        with repeating(serve, 0.01):
            (delay,) = lines("delay", "visionipc_cam_0", "--once", "--interval", "0.3", *offset)
        assert 0 < delay["delays_us"]["p50"] < 60e6
        assert delay["negative_delays"] == 0


def test_stat_shows_sums_and_top_sorts_rows(traffic: Child) -> None:
    (line,) = lines("stat", "--once", "--interval", "0.3")
    assert (line["topics"], line["publishers"], line["dead_participants"], line["silent_endpoints"]) == (3, 1 * 3, 0, 0)
    assert line["rate"] > 15
    rows = lines("top", "-n", "2", "--interval", "0.2", "--sort", "name")
    assert [row["endpoint"] for row in rows] == ["car", "plain", "weather"] * 2
    assert rows[0]["rate"] > 5
    shown = run("top", "--once", "--interval", "0.2", "--sort", "bytes").stdout.splitlines()
    assert shown[0].startswith("3 endpoints")
    assert [line.split()[0] for line in shown[2:]] == ["weather", "car", "plain"]


def test_pub_sends_text_hex_json_file_and_input_lines(prefix: str, tmp_path: Path) -> None:
    subscriber = msgq.sub_sock("said", timeout=0)

    def pub(*arguments: str, stdin: str | None = None) -> list[bytes]:
        run("pub", "said", *arguments, stdin=stdin)
        return subscriber.receive_many()

    file = tmp_path / "message"
    file.write_bytes(b"\x00file")
    assert pub("grüß") == ["grüß".encode()]
    assert pub("00 ff", "--format", "hex") == [b"\x00\xff"]
    assert pub("--file", str(file), "-n", "2") == [b"\x00file"] * 2
    assert pub("--lines", stdin="a\nb\n") == [b"a", b"b"]
    assert pub("x", "--rate", "500", "-n", "3") == [b"x"] * 3
    assert pub('{"a": [1]}', "--format", "json") == [b'{"a":[1]}']
    found = topic("said").schema
    assert found is not None
    assert found.encoding == "json"
    subscriber.close()


def test_pub_converts_json_by_struct_schema(prefix: str) -> None:
    with publisher_children.publisher("car"):
        pass
    with msgq.sub_sock("car", timeout=0) as subscriber:
        run("pub", "car", '{"speed": 2.5, "wheels": [1, 2]}', "--format", "json")
        (row,) = subscriber.receive_array(publisher_children.CAR)
        assert (row["speed"], *row["wheels"]) == (2.5, 1, 2)
        assert "wings" in run("pub", "car", '{"wings": 2}', "--format", "json", code=1).stderr


def test_pub_refuses_to_replace_live_publisher(traffic: Child) -> None:
    assert str(traffic.pid) in run("pub", "plain", "mine", code=1).stderr
    publisher = topic("plain").publisher
    assert publisher is not None
    assert publisher.pid == traffic.pid
    run("pub", "plain", "mine", "--force")


def test_pub_waits_for_subscribers(prefix: str) -> None:
    run("pub", "said", "x", "--wait-for-subscribers", "1", "--timeout", "0.1", code=3)
    with msgq.sub_sock("said", timeout=0) as subscriber:
        run("pub", "said", "x", "--wait-for-subscribers", "1", "--timeout", "20")
        assert subscriber.receive() == b"x"


@pytest.mark.parametrize("arguments", [(), ("a", "--lines"), ("--rate", "0", "a"), ("a", "--format", "xml")])
def test_pub_with_invalid_options_exits_with_usage_error(prefix: str, arguments: tuple[str, ...]) -> None:
    run("pub", "said", *arguments, code=2)


@pytest.mark.parametrize(
    "arguments",
    [("echo", "plain"), ("hz", "plain"), ("bw", "plain"), ("delay", "car"), ("stat",), ("top",), ("pub", "new", "x")],
    ids=lambda arguments: arguments[0],
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_measuring_command_prints_no_error_on_signal(traffic: Child, arguments: tuple[str, ...], number: int) -> None:
    pace = ["--rate", "50"] if arguments[0] == "pub" else [] if arguments[0] == "echo" else ["--interval", "0.1"]
    with start(*arguments, *pace) as running:
        assert running.stdout is not None
        if arguments[0] == "pub":
            wait_until(lambda: "new" in {line.endpoint for line in msgq.stats.topics()} and topic("new").messages)
        else:
            assert running.stdout.readline()
        running.send_signal(number)
        _, complaints = running.communicate(timeout=DEADLINE)
        assert running.returncode == 0
        assert re.fullmatch(r"published \d+, no subscribers .*\n" if arguments[0] == "pub" else "", complaints)


@pytest.mark.parametrize("arguments", ["echo plain", "hz plain", "stat", "top", "echo plain --json"])
def test_measuring_command_prints_no_error_on_closed_pipe(traffic: Child, arguments: str) -> None:
    pace = [] if arguments.startswith("echo") else ["--interval", "0.05"]
    with start(*arguments.split(), *pace) as running:
        assert running.stdout is not None
        assert running.stdout.readline()
        running.stdout.close()
        assert running.wait(DEADLINE) == 0
        assert running.stderr is not None
        assert running.stderr.read() == ""


def test_echo_shows_messages_of_recreated_topic(prefix: str) -> None:
    with msgq.pub_sock("x"):
        pass
    with start("echo", "x", "-n", "1") as running:
        running.wait_opened("msgq_" + prefix)
        run("clean", "x")
        with msgq.pub_sock("x") as publisher:
            while running.poll() is None:
                publisher.send(b"\xab")
        assert running.communicate()[0] == "ab\n"


def test_measuring_command_reads_topics_of_prefix_option(traffic: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = os.environ["OPENPILOT_PREFIX"]
    monkeypatch.delenv("OPENPILOT_PREFIX")
    assert len(lines("echo", "plain", "--once", "--prefix", prefix)) == 1
    assert len(lines("hz", "plain", "--once", "--interval", "0.05", "--prefix", prefix)) == 1
    assert lines("info", "plain", "--duration", "0.01", "--prefix", prefix)[0]["endpoint"] == "plain"


def test_completion_offers_endpoint_names(traffic: Child) -> None:
    environment = {"_MSGQ_COMPLETE": "bash_complete", "COMP_WORDS": "msgq echo w", "COMP_CWORD": "2"}
    with start(env=environment) as running:
        assert running.communicate()[0].split() == ["plain,weather"]


@pytest.mark.parametrize("verb", ["list", "echo", "hz", "top", "stat"])
def test_invalid_expression_exits_with_usage_error(prefix: str, verb: str) -> None:
    assert "not a regular expression" in run(verb, "(", code=2).stderr


@pytest.mark.needs_shm(32 << 20)
def test_bench_command_measures_latency_and_removes_topic(prefix: str) -> None:
    with start("bench", "--duration", "0.05", "--size", "64", "--size", "4096", "--json") as running:
        found, _ = running.end()
    assert [line["size"] for line in found] == [64, 4096]
    for line in found:
        assert 0 < line["p50_us"] <= line["p99_us"] <= line["max_us"]
        assert line["rate"] > 0
        assert 0 <= line["received_share"] <= 1  # a busy machine may run the other process too late
    assert msgq.stats.topics(prefix) == []


@pytest.mark.needs_shm(32 << 20)
def test_bench_command_after_sigterm_removes_topics(prefix: str) -> None:
    with start("bench", "--duration", "60", "--size", "64") as running:
        wait_until(lambda: len(msgq.stats.topics(prefix)) == 2)
        running.send_signal(signal.SIGTERM)
        assert running.communicate(timeout=DEADLINE) == ("", "")
        assert running.returncode == 143
    assert msgq.stats.topics(prefix) == []


@pytest.mark.parametrize("verb", ["hz", "bw", "delay"])
def test_meter_of_one_interval_without_messages_prints_unknown_values(prefix: str, verb: str) -> None:
    with msgq.pub_sock("idle", tracked=True):
        *_, values = run(verb, "idle", "-n", "1", "--interval", "0.05").stdout.splitlines()
    assert values.split()[:2] == ["idle", "-"]
