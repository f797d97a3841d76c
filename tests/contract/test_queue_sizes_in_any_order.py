"""Work queues take the sizes that the first participant requests, and the defaults at the first send."""

from __future__ import annotations

import os
import select
import threading
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq.errors import QueueFullError, QueueMismatchError
from msgq.workqueue import JobClient, MessageQueue, Worker
from tests.contract.conftest import Queues, race_sizes, receive_all
from tests.support import DEADLINE, Child, hear, say, wait_asleep, wait_until

MANY, BIG = 1000, 100_000


def receive_data(queue: Any) -> Any:
    return queue.receive(timeout=DEADLINE).data


def fill(queue: Any, count: int) -> None:
    assert queue.send_many([b"%d" % number for number in range(count + 1)], timeout=0) == count


class TestOrder:
    def test_producer_after_consumer_gets_its_sizes(self, queues: Queues) -> None:
        consumer = queues.open()
        producer = queues.open(max_messages=MANY, max_message_size=BIG)
        assert (consumer.max_messages, consumer.max_message_size) == (MANY, BIG)
        fill(producer, MANY)
        producer.close()
        assert [int(data) for data in receive_all(consumer)] == [*range(MANY)]
        consumer.send(bytes(BIG))
        assert receive_all(consumer) == [bytes(BIG)]

    def test_consumer_that_has_left_decides_no_sizes(self, queues: Queues) -> None:
        queues.open().close()
        fill(queues.open(max_messages=3), 3)

    def test_handle_may_request_the_same_sizes_and_no_others(self, queues: Queues) -> None:
        queues.open()
        queues.open(max_messages=MANY)
        queues.open(max_messages=MANY)
        queues.open()
        with pytest.raises(QueueMismatchError, match=rf"max_messages={MANY}.*process {os.getpid()} .*chose"):
            queues.open(max_messages=MANY + 1)
        with pytest.raises(QueueMismatchError, match="max_message_size=8192"):
            queues.open(max_message_size=BIG)

    def test_first_send_chooses_the_default_sizes(self, queues: Queues) -> None:
        queue = queues.open()
        assert (queue.max_messages, queue.max_message_size) == (128, 8192)
        queue.send(b"")
        with pytest.raises(QueueMismatchError, match="max_messages=128"):
            queues.open(max_messages=MANY)

    @pytest.mark.parametrize("call", ["receive", "take", "peek", "receive_many", "wait", "properties", "stats"])
    def test_calls_that_send_nothing_choose_no_sizes(self, queues: Queues, call: str) -> None:
        queue = queues.open()
        calls = {
            "receive": lambda: queue.receive(0),
            "take": lambda: queue.take(0),
            "peek": queue.peek,
            "receive_many": queue.receive_many,
            "wait": lambda: queue.receive(0.001),
            "properties": lambda: (repr(queue), queue.current_messages, queue.in_flight, queue.delayed_messages),
            "stats": queue.stats,
        }
        assert not (result := calls[call]()) or call in ("properties", "stats")
        if call == "stats":
            assert (result.max_messages, result.max_message_size, result.free_slots) == (128, 8192, 128)
        producer = queues.open(max_messages=2)
        fill(producer, 2)
        assert receive_all(queue) == [b"0", b"1"]

    def test_wait_space_chooses_the_default_sizes(self, queues: Queues) -> None:
        queue = queues.open()
        assert queue.wait_space(0)
        with pytest.raises(QueueMismatchError):
            queues.open(max_messages=MANY)

    def test_too_large_message_is_refused_with_the_default_sizes(self, queues: Queues) -> None:
        queue = queues.open()
        with pytest.raises(msgq.errors.MessageTooLargeError, match="8192"):
            queue.send(bytes(BIG))

    def test_events_choose_the_sizes(self, queues: Queues) -> None:
        queues.open(events=True)
        with pytest.raises(QueueMismatchError):
            queues.open(max_messages=MANY)

    def test_delayed_message_reaches_handle_without_slots(self, queues: Queues) -> None:
        consumer = queues.open()
        queues.open(max_messages=2).send(b"later", delay=0.02)
        message = consumer.receive(timeout=DEADLINE)
        assert message.data == b"later"

    def test_handle_receives_after_stats_of_sizes_that_another_handle_chose(self, queues: Queues) -> None:
        consumer, producer = queues.open(), queues.open()
        producer.send(b"job")
        assert consumer.stats().depth == 1
        assert receive_all(consumer) == [b"job"]

    def test_worker_before_job_client_with_sizes(self, queues: Queues) -> None:
        worker = Worker(queues.open(), lambda message: message.data.upper())
        with JobClient(queues.open(max_messages=MANY, max_message_size=BIG)) as client:
            future = client.submit(b"a")
            worker.run(0)
            assert future.result(DEADLINE) == b"A"


@pytest.fixture
def name(token: str) -> Any:
    yield token
    MessageQueue.unlink_name(token)


def consume(name: str, how: str, count: int) -> list[int]:
    """Child: open the queue without sizes, wait in one way, and return the numbers of the messages."""
    with MessageQueue(name) as queue:
        say("open")
        numbers: list[int] = []
        poller: Any = msgq.Poller()
        poller.registerSocket(queue)
        while len(numbers) < count:
            if how == "poll":
                assert poller.poll(int(DEADLINE * 1000)) == [queue]
            elif how == "descriptor":
                assert select.select([queue.fileno()], [], [], DEADLINE)[0]
            message = queue.receive(timeout=DEADLINE if how == "receive" else 0)
            if message is not None:
                numbers.append(int(message.data[:8]))
        return numbers


@pytest.mark.parametrize("how", ["receive", "poll", "descriptor"])
def test_sleeping_consumer_receives_messages_of_later_sizes(name: str, how: str) -> None:
    with Child(consume, name, how, 40) as child:
        assert child.hear() == "open"
        wait_asleep(child.pid)
        with MessageQueue(name, max_messages=MANY, max_message_size=BIG) as queue:
            wait_asleep(child.pid)  # without a message, the choice of the sizes ends no wait
            for number in range(20):
                queue.send(b"%08d" % number + bytes(BIG - 8))
            queue.send_many([b"%08d" % number for number in range(20, 40)])
            assert child.result() == [*range(40)]


def test_threads_of_a_handle_sleep_through_the_choice_of_sizes(name: str) -> None:
    with MessageQueue(name) as queue:
        received: list[bytes] = []
        threads = [threading.Thread(target=lambda: received.append(receive_data(queue))) for _ in range(3)]
        for thread in threads:
            thread.start()
        wait_until(lambda: queue.stats().handles[0].waits == ("receiving",))
        with MessageQueue(name, max_messages=MANY) as producer:
            producer.send_many([b"1", b"2", b"3"])
            for thread in threads:
                thread.join()
    assert sorted(received) == [b"1", b"2", b"3"]


def test_notification_before_the_choice_of_sizes_is_delivered(name: str) -> None:
    with MessageQueue(name) as queue:
        told = threading.Event()
        queue.notify(lambda _queue: told.set())
        with MessageQueue(name, max_messages=MANY) as producer:
            producer.send(b"", delay=0.02)
            assert told.wait(DEADLINE)
            assert queue.receive(0) is not None


def request_sizes(name: str, max_messages: int) -> str:
    """Child: at the parent's word, request a number of messages; return the error."""
    say("ready")
    hear()
    try:
        with MessageQueue(name, max_messages=max_messages) as queue:
            say("won")
            hear()
            fill(queue, max_messages)
    except QueueMismatchError as error:
        say("lost")
        hear()
        return str(error)
    return ""


def test_exactly_one_of_two_requests_wins(name: str) -> None:
    with MessageQueue(name) as consumer:
        (won, winner), (_, text) = race_sizes(request_sizes, name, [MANY, 2 * MANY])
        assert f"process {winner} " in text
        assert len(consumer.receive_many()) == won


def test_forked_child_uses_sizes_chosen_after_the_open(name: str) -> None:
    with MessageQueue(name) as queue:
        if (pid := os.fork()) == 0:
            os._exit(0 if receive_data(queue) == bytes(BIG) else 1)
        with MessageQueue(name, max_message_size=BIG) as producer:
            producer.send(bytes(BIG))
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_observers_see_messages_of_sizes_chosen_later(name: str) -> None:
    from msgq.impl.workqueue.core import QueueBrowser

    with MessageQueue(name):
        browser = QueueBrowser(name, "")
        assert browser.messages() == []
        with MessageQueue(name, max_messages=MANY) as producer:
            producer.send(b"seen")
        assert [message.data for message in browser.unseen()] == [b"seen"]
        assert browser.unseen() == []
        stats = msgq.stats.queue(name)
        assert (stats.max_messages, stats.depth, stats.free_slots) == (MANY, 1, MANY - 1)


def test_full_error_names_the_chosen_size(name: str) -> None:
    with MessageQueue(name) as consumer, MessageQueue(name, max_messages=2) as producer:
        fill(producer, 2)
        with pytest.raises(QueueFullError, match="2 messages"):
            consumer.send(b"", timeout=0)


def test_file_without_sizes_is_small(name: str) -> None:
    with MessageQueue(name) as queue:
        assert Path(queue.path).stat().st_size == 57344
