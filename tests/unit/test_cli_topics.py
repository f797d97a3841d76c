"""`msgq list` and `msgq clean` on real topics, with participants that live, died, or cannot be judged."""

import json
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from click.testing import CliRunner, Result

from msgq import pub_sock, stats, sub_sock
from msgq.cli.app import app
from msgq.errors import LayoutVersionError
from msgq.stats import Participant, SubscriberInfo, TopicStats
from msgq.topic.cleanup import find_topic_users
from msgq.topic.stats import may_have_publisher, read_topic
from tests.support import SHM, Child, hear, say
from tests.unit.ringfile import VERSION

HEADER_BYTES, WRITE_UID = 384, 16


def publish(endpoint: str) -> None:
    with pub_sock(endpoint) as socket:
        socket.send(b"hello")
        say()
        hear()


def subscribe(endpoint: str) -> None:
    with sub_sock(endpoint):
        say()
        hear()


Start = Callable[[Callable[[str], None], str], Child]


@pytest.fixture
def start(prefix: str) -> Iterator[Start]:
    """Start a participant in a process of its own; returns when it is attached."""
    with ExitStack() as stack:

        def start(function: Callable[[str], None], endpoint: str) -> Child:
            child = stack.enter_context(Child(function, endpoint))
            child.hear()
            return child

        yield start


def msgq(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, catch_exceptions=False)


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.output.splitlines()]


def segments(prefix: str) -> list[str]:
    return sorted(path.name for kind in ("msgq_", "msgqside_") for path in (SHM / f"{kind}{prefix}").glob("*"))


def make_stock_segment(prefix: str, endpoint: str, publisher_uid: int) -> None:
    """What a stock process leaves: a ring without a side segment."""
    directory = SHM / f"msgq_{prefix}"
    directory.mkdir(mode=0o700, exist_ok=True)
    header = bytearray(HEADER_BYTES)
    struct.pack_into("<Q", header, WRITE_UID, publisher_uid)
    path = directory / endpoint
    path.write_bytes(bytes(header) + bytes(1 << 20))
    path.chmod(0o600)


def test_list_shows_topic_with_publisher_and_subscriber(prefix: str, start: Start) -> None:
    publisher, subscriber = start(publish, "weather"), start(subscribe, "weather")
    result = msgq("list", "--prefix", prefix)
    assert result.exit_code == 0
    assert "weather" in result.output
    assert str(publisher.pid) in result.output
    assert str(subscriber.pid) in result.output


def test_list_with_json_prints_one_object_per_topic(prefix: str, start: Start) -> None:
    publisher = start(publish, "weather")
    start(publish, "traffic")
    found = {topic["endpoint"]: topic for topic in lines(msgq("list", "--json", "--prefix", prefix))}
    assert found.keys() == {"weather", "traffic"}
    assert found["weather"]["publisher"]["pid"] == publisher.pid
    assert found["weather"]["publisher"]["alive"] is True
    assert found["weather"]["messages"] == 1


def test_list_marks_dead_publisher(prefix: str, start: Start) -> None:
    publisher, _ = start(publish, "weather"), start(subscribe, "weather")
    publisher.kill()
    assert "(dead)" in msgq("list", "--prefix", prefix).output


def test_list_hides_dead_topics_unless_requested(prefix: str, start: Start) -> None:
    process, _ = start(publish, "weather"), start(publish, "traffic")
    process.kill()
    with pub_sock("left"):
        pass
    make_stock_segment(prefix, "stock", 0xABC00000000 + os.getpid())
    shown = msgq("list", "--prefix", prefix)
    assert [line.split()[0] for line in shown.output.splitlines()[1:-1]] == ["stock", "traffic"]
    assert shown.output.splitlines()[-1] == "hidden: 2 dead endpoints; to list all, give --all"
    assert [topic["endpoint"] for topic in lines(msgq("list", "--json", "--prefix", prefix))] == ["stock", "traffic"]
    for words in (["--all"], ["weather"], ["*"]):
        assert "(dead)" in msgq("list", *words, "--prefix", prefix).output
        assert "hidden" not in msgq("list", *words, "--prefix", prefix).output


def test_list_without_endpoints_names_searched_prefix_and_others(prefix: str, start: Start) -> None:
    other = f"{prefix}other"
    assert msgq("list", "--prefix", other).output.startswith(f"msgq: no endpoints under the prefix {other!r}")
    with pub_sock("dead"):
        pass
    said = msgq("list").output.splitlines()
    assert said[0].startswith(f"msgq: no live endpoints under the prefix {prefix!r}")
    assert said[1] == "hidden: 1 dead endpoint; to list all, give --all"


def test_list_without_endpoints_and_prefix_names_prefixes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("msgq.cli.list.list_prefixes", lambda: ["", "full", "empty"])
    monkeypatch.setattr("msgq.cli.list.endpoint_inodes", lambda prefix=None: {"a": 1} if prefix == "full" else {})
    monkeypatch.setattr("msgq.cli.list.LiveEndpoints.measure", lambda *_: [])
    monkeypatch.delenv("OPENPILOT_PREFIX", raising=False)
    assert msgq("list").output == "msgq: no endpoints without a prefix; prefixes with endpoints: full\n"


def test_list_with_json_prints_nothing_without_topics(prefix: str) -> None:
    result = msgq("list", "--json", "--prefix", prefix)
    assert result.exit_code == 0
    assert result.output == ""


def test_clean_removes_topic_with_only_dead_participants(prefix: str, start: Start) -> None:
    for process in (start(publish, "weather"), start(subscribe, "weather")):
        process.kill()
    result = msgq("clean", "--json", "--prefix", prefix)
    assert result.exit_code == 0
    assert [(line["endpoint"], line["action"]) for line in lines(result)] == [("weather", "removed")]
    assert segments(prefix) == []


@pytest.mark.parametrize("survivor", [publish, subscribe], ids=["publisher", "subscriber"])
def test_clean_keeps_topic_in_use(prefix: str, start: Start, survivor: Callable[[str], None]) -> None:
    living = start(survivor, "weather")
    start(subscribe, "weather").kill()
    before = segments(prefix)
    result = msgq("clean", "--force", "--json", "--prefix", prefix)
    assert result.exit_code == 0
    assert [line["action"] for line in lines(result)] == ["kept"]
    assert str(living.pid) in result.output
    assert segments(prefix) == before


def test_clean_of_named_topic_in_use_fails(prefix: str, start: Start) -> None:
    start(publish, "weather")
    result = msgq("clean", "weather", "--prefix", prefix)
    assert result.exit_code == 1
    assert "in use by" in result.output


def test_clean_removes_only_named_topics(prefix: str, start: Start) -> None:
    for endpoint in ("weather", "traffic"):
        start(publish, endpoint).kill()
    assert msgq("clean", "weather", "--prefix", prefix).exit_code == 0
    assert set(segments(prefix)) == {"traffic"}


def test_clean_of_unknown_name_fails_and_removes_nothing(prefix: str, start: Start) -> None:
    start(publish, "weather").kill()
    before = segments(prefix)
    result = msgq("clean", "weather", "sunshine", "--prefix", prefix)
    assert result.exit_code == 1
    assert "sunshine" in result.output
    assert segments(prefix) == before


def test_clean_dry_run_removes_nothing(prefix: str, start: Start) -> None:
    start(publish, "weather").kill()
    before = segments(prefix)
    result = msgq("clean", "--dry-run", "--prefix", prefix)
    assert result.exit_code == 0
    assert "would remove weather" in result.output
    assert segments(prefix) == before


def test_clean_without_force_keeps_topic_of_possible_stock_publisher(prefix: str) -> None:
    make_stock_segment(prefix, "camera", publisher_uid=(7 << 32) | os.getpid())
    result = msgq("clean", "--json", "--prefix", prefix)
    assert result.exit_code == 0
    assert [line["action"] for line in lines(result)] == ["kept"]
    assert "--force" in result.output
    assert msgq("clean", "--force", "--prefix", prefix).exit_code == 0
    assert segments(prefix) == []


def topic(publisher: Participant | None, kind: str, subscribers: tuple[SubscriberInfo, ...], stock: int) -> TopicStats:
    return TopicStats(
        endpoint="weather",
        path="/dev/shm/msgq_weather",
        data_bytes=1 << 20,
        publisher=publisher,
        publisher_kind=kind,
        messages=0,
        bytes=0,
        write_position=(0, 0),
        subscribers=subscribers,
        stock_subscribers=stock,
        schema=None,
        created_ns=None,
    )


def participant(pid: int, alive: bool | None) -> Participant:
    return Participant(pid, thread_id=pid, start_time=0, name=f"process{pid}", alive=alive)


def test_topic_users_distinguish_live_from_unknown_processes() -> None:
    infos = tuple(SubscriberInfo(participant(pid, alive), 0, 0, 0, 0) for pid, alive in ((2, False), (3, None)))
    living, unknown = find_topic_users(topic(participant(1, True), "ours", infos, stock=2))
    assert living == ("process1 1",)
    assert unknown == ("process3 3 (unknown)", "2 stock subscribers")
    twice = tuple(SubscriberInfo(participant(2, True), 0, 0, 0, 0) for _ in range(2))
    assert find_topic_users(topic(None, "none", twice, stock=0)) == (("process2 2",), ())


@pytest.mark.parametrize(
    ("alive", "kind", "expected"),
    [(True, "ours", True), (None, "ours", True), (False, "ours", False), ("-", "stock", True), ("-", "none", False)],
)
def test_topic_may_have_publisher_unless_it_is_certainly_dead(alive: Any, kind: str, expected: bool) -> None:
    publisher = None if alive == "-" else participant(1, alive)
    assert may_have_publisher(topic(publisher, kind, (), stock=0)) == expected


def test_read_topic_returns_none_for_a_topic_that_a_publisher_creates_or_reports(prefix: str) -> None:
    assert read_topic("weather") is None
    pub_sock("weather", 4096).close()
    assert read_topic("weather", prefix) == stats.topic("weather")
    side = SHM / f"msgqside_{prefix}" / "weather"
    with side.open("r+b") as file:
        file.seek(VERSION)
        file.write(b"\xff\xff\xff\xff")
    with pytest.raises(LayoutVersionError):
        read_topic("weather")
    side.unlink()
    os.truncate(SHM / f"msgq_{prefix}" / "weather", 0)  # its creator was killed
    assert read_topic("weather") is None
    assert msgq("pub", "weather", "sunny", "--prefix", prefix).exit_code == 0


def test_pub_refuses_to_replace_stock_publisher(prefix: str) -> None:
    make_stock_segment(prefix, "weather", 0xABC00000000 + os.getpid())
    refused = msgq("pub", "weather", "sunny", "--prefix", prefix)
    assert refused.exit_code == 1
    assert "weather is published by a stock process" in refused.output
    assert msgq("pub", "weather", "sunny", "--prefix", prefix, "--force").exit_code == 0


def test_users_of_topic_with_stock_publisher_are_unknown() -> None:
    assert find_topic_users(topic(None, "stock", (), stock=0)) == ((), ("stock publisher",))
