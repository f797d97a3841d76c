"""`msgq stat --prometheus`, scraped over HTTP, and parsed by Prometheus's own parser."""

from __future__ import annotations

import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

import msgq
from msgq.monitor.endpoint_selection import EndpointSelection
from msgq.monitor.prometheus_metrics import EndpointMetrics
from tests.command import Process, run, start
from tests.support import DEADLINE, Child, hear, say, wait_asleep


def scrape(url: str) -> dict[str, list[Sample]]:
    """Return the samples at an address by their names."""
    with urllib.request.urlopen(url, timeout=DEADLINE) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        families = [*text_string_to_metric_families(answer.read().decode())]
    assert all(family.documentation.endswith(".") for family in families)
    assert {family.type for family in families} == {"counter", "gauge"}
    samples: dict[str, list[Sample]] = {}
    for sample in (sample for family in families for sample in family.samples):
        samples.setdefault(sample.name, []).append(sample)
    return samples


def read_values(samples: dict[str, list[Sample]], name: str) -> dict[str, float]:
    return {sample.labels["name"]: sample.value for sample in samples.get(f"msgq_endpoint_{name}", [])}


@pytest.fixture
def server(prefix: str) -> Iterator[Process]:
    with start("stat", "--prometheus", "0", "--json") as process:
        yield process


def test_scrape_returns_counters_of_all_kinds(server: Process, prefix: str) -> None:
    url = server.line()["url"]
    assert url.startswith("http://127.0.0.1:")
    with ExitStack() as stack:
        enter = stack.enter_context
        topic, channel, queue = enter(msgq.pub_sock("car")), enter(msgq.Channel("car")), enter(msgq.MessageQueue("car"))
        publisher, record = enter(channel.publisher()), enter(msgq.Seqlock("car", "<f8"))
        enter(msgq.sub_sock("car"))
        topic.send(b"12345")
        publisher.send(b"123")
        queue.send(b"x")
        queue.send(b"y")
        record.value = 1.5
        first = scrape(url)
        every = {"car": "topic", "channel/car": "channel", "queue/car": "queue", "records/car": "records"}
        kinds = {sample.labels["name"]: sample.labels["kind"] for sample in first["msgq_endpoint_messages_total"]}
        assert kinds == every
        assert read_values(first, "messages_total") == {"car": 1, "channel/car": 1, "queue/car": 2, "records/car": 1}
        assert read_values(first, "bytes_total") == {"car": 5, "channel/car": 3, "records/car": 8}
        assert read_values(first, "lost_messages_total") == {"car": 0, "channel/car": 0, "queue/car": 0}
        assert read_values(first, "publishers") == dict.fromkeys(every, 1)
        assert read_values(first, "subscribers") == {"car": 1, "channel/car": 0, "queue/car": 0}
        assert read_values(first, "dead_participants") == dict.fromkeys(every, 0)
        assert read_values(first, "backlog_messages")["queue/car"] == 2
        assert all(value > 0 for value in read_values(first, "memory_bytes").values())
        assert first["msgq_shared_memory_free_bytes"][0].value > 0
        topic.send(b"1")
        second = scrape(url)
        assert (read_values(second, "messages_total")["car"], read_values(second, "bytes_total")["car"]) == (2, 6)
    queue.unlink()
    assert "queue/car" not in read_values(scrape(url), "messages_total")


def test_names_with_special_characters_survive_scrape(server: Process, prefix: str) -> None:
    url = server.line()["url"]
    name = 'a"b\\c\nd{e="f"} ü'
    with msgq.pub_sock(name):
        assert read_values(scrape(url), "messages_total") == {name: 0}


def test_endpoints_are_not_opened_before_first_scrape(prefix: str) -> None:
    with msgq.pub_sock("car"), start("stat", "--prometheus", "0", "--json") as process:
        url = process.line()["url"]
        maps = Path(f"/proc/{process.pid}/maps")
        wait_asleep(process.pid)
        assert prefix not in maps.read_text()
        scrape(url)
        assert prefix in maps.read_text()


def test_simultaneous_scrapes_agree(server: Process, prefix: str) -> None:
    url = server.line()["url"]
    with msgq.pub_sock("car") as topic, ThreadPoolExecutor(4) as pool:
        topic.send(b"x")
        found = [read_values(samples, "messages_total") for samples in pool.map(scrape, [url] * 12)]
    assert found == [{"car": 1}] * 12


def test_endpoints_are_read_by_one_scrape_at_a_time(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics, polls = EndpointMetrics(EndpointSelection([], prefix)), []

    def poll(fresh: bool) -> list[object]:
        polls.append((fresh, metrics._lock.locked()))
        return []

    monkeypatch.setattr(metrics._endpoints, "poll", poll)
    assert [*metrics.collect()]
    assert polls == [(True, True)]


def subscribe_slowly(endpoint: str) -> None:
    with msgq.sub_sock(endpoint, timeout=0) as subscriber:
        say()
        while hear():
            subscriber.receive_many()
            say()


def test_lost_messages_of_subscriber_that_leaves_stay_counted(prefix: str) -> None:
    def read_lost() -> float:
        (family,) = (family for family in metrics.collect() if family.name == "msgq_endpoint_lost_messages")
        return float(family.samples[0].value)

    metrics = EndpointMetrics(EndpointSelection([], prefix))
    with msgq.pub_sock("car", 4096) as topic:
        for _ in range(2):
            with msgq.sub_sock("car", timeout=0) as subscriber:
                before = read_lost()
                while not subscriber.lost:
                    topic.send_many([b"x" * 100] * 100)
                    subscriber.receive_many()
                during = read_lost()
                assert during - before == subscriber.lost
            assert read_lost() == during


def test_killed_publisher_is_dead_participant(server: Process, prefix: str) -> None:
    url = server.line()["url"]
    with Child(subscribe_slowly, "car") as child:
        child.hear()
        assert read_values(scrape(url), "subscribers") == {"car": 1}
        child.kill()
        assert read_values(scrape(url), "dead_participants") == {"car": 1}
        assert read_values(scrape(url), "subscribers") == {"car": 0}


def test_selection_limits_metrics_to_its_endpoints(prefix: str) -> None:
    with msgq.pub_sock("car"), msgq.pub_sock("weather"), start("stat", "c*", "--prometheus", "0") as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("metrics for Prometheus: http://127.0.0.1:")
        assert read_values(scrape(line.split()[-1]), "messages_total") == {"car": 0}
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=DEADLINE) == ("", "msgq: matched 1 topic: car\n")
        assert process.returncode == 0


def test_used_port_is_reported_in_one_line(server: Process) -> None:
    port = server.line()["url"].split(":")[-1].partition("/")[0]
    (line,) = run("stat", "--prometheus", port, code=1).stderr.splitlines()
    assert line.startswith("Error: ")
    assert "in use" in line


def test_address_option_selects_network_address(prefix: str) -> None:
    with start("stat", "--prometheus", "0", "--address", "127.0.0.2", "--json") as process:
        url = process.line()["url"]
        assert url.startswith("http://127.0.0.2:")
        scrape(url)
        with pytest.raises(urllib.error.URLError):
            scrape(url.replace("127.0.0.2", "127.0.0.1"))


def test_server_ends_after_duration(prefix: str) -> None:
    with start("stat", "--prometheus", "0", "--duration", "0.05", "--json") as process:
        process.line()
        assert process.wait(DEADLINE) == 0


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("--prometheus 0 --once", "omit --count and --once"),
        ("--prometheus 0 -n 3", "omit --count and --once"),
        ("--address 0.0.0.0", "--address and --allow-host need --prometheus"),
        ("--allow-host robot", "--address and --allow-host need --prometheus"),
        ("--prometheus 70000", "70000"),
    ],
)
def test_contradicting_options_exit_with_usage_error(prefix: str, words: str, text: str) -> None:
    assert text in run("stat", *words.split(), code=2).stderr
