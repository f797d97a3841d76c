"""Work queues in a simulation: who takes which message, faults, leases, waits in virtual time."""

from __future__ import annotations

import logging
import math
import struct
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

import msgq
from msgq.common.queue_events import EVENT_HEAD_FORMAT, Event
from msgq.errors import (
    DeadlockError,
    EndpointClosedError,
    InvalidValueError,
    LeaseExpiredError,
    QueueFullError,
    SegmentError,
    StateError,
    WaitTimeoutError,
)
from msgq.impl.fake import workqueue
from msgq.impl.workqueue.options import O_CREX
from msgq.simulation import Fault, Faults, Simulation, explore
from msgq.workqueue import JobClient, Worker
from tests.contract.queue_children import waiting_call


def open_jobs_queue(**options: Any) -> Any:
    """Open the queue of these tests."""
    return msgq.MessageQueue("jobs", **options)


def send(*messages: bytes, **options: Any) -> None:
    open_jobs_queue().send_many(messages, **options)


class TestOrders:
    @pytest.mark.parametrize("takers", [1, 2, 3, 4])
    def test_each_of_several_queue_consumers_can_receive_message(self, takers: int) -> None:
        got: list[int] = []

        def scenario(sim: Simulation) -> None:
            before = len(got)
            for taker in range(takers):
                sim.on("queue/jobs", lambda _, taker=taker: got.append(taker))  # type: ignore[misc]
            send(b"message")
            sim.run()
            assert len(got) == before + 1

        found = explore(scenario)
        assert found.complete
        assert found.orders == takers
        assert sorted(got) == list(range(takers))

    def test_explore_tries_all_distributions_of_queue_messages(self) -> None:
        """Two generators that each take what there is: each message goes to either."""
        seen = set()

        def taker(name: str, got: list[str]) -> Generator[Any, Any, None]:
            queue = open_jobs_queue()
            while True:
                message = yield queue
                got.append(name + message.data.decode())
                yield 0.0

        def scenario(sim: Simulation) -> None:
            got: list[str] = []
            sim.add(taker, "a", got)
            sim.add(taker, "b", got)
            send(b"1", b"2", b"3")
            sim.run()
            assert [text[1] for text in got] == ["1", "2", "3"]
            seen.add("".join(text[0] for text in got))

        assert explore(scenario).complete
        assert len(seen) == 2**3

    def test_messages_of_each_queue_sender_keep_order(self) -> None:
        seen = set()

        def sender(name: str) -> Generator[float, Any, None]:
            queue = open_jobs_queue()
            for number in range(2):
                yield 0.0
                queue.send(f"{name}{number}".encode())

        def scenario(sim: Simulation) -> None:
            sim.add(sender, "a")
            sim.add(sender, "b")
            sim.run()
            got = [message.data for message in open_jobs_queue().receive_many()]
            assert [data for data in got if data < b"b"] == [b"a0", b"a1"]
            seen.add(tuple(got))

        assert explore(scenario).complete
        assert len(seen) == math.comb(4, 2)

    def test_explore_finds_and_replays_bug_in_one_queue_order(self) -> None:
        def scenario(sim: Simulation) -> None:
            takes: list[str] = []
            sim.on("queue/jobs", lambda _: takes.append("a"))
            sim.on("queue/jobs", lambda _: takes.append("b"))
            sim.play([(0.0, "queue/jobs", b"1"), (1.0, "queue/jobs", b"2")])
            sim.run()
            assert takes != ["b", "b"]

        found = explore(scenario)
        assert isinstance(found.error, AssertionError)
        assert found.choices is not None
        with pytest.raises(AssertionError), Simulation(choices=found.choices) as sim:
            scenario(sim)

    def test_queue_receive_returns_sent_message_immediately(self) -> None:
        with Simulation():
            send(b"message")
            assert open_jobs_queue().receive(0) == (b"message", 0)

    def test_sent_messages_of_simulation_have_queue_name(self) -> None:
        with Simulation() as sim:
            send(b"1", b"2", priority=3)
            assert sim.sent_on("queue/jobs") == [b"1", b"2"]
            assert sim.sent_messages[0].node == "main"

    def test_equal_seeds_give_equal_queue_runs(self) -> None:
        def run(seed: int) -> list[Any]:
            got: list[Any] = []

            def worker(name: str) -> None:
                queue = open_jobs_queue()
                while True:
                    with queue.take() as job:
                        got.append((name, job.data, job.deliveries))
                        sim.clock.sleep(0.05)

            with Simulation(seed, Faults(drop=0.2, delay=0.3, duplicate=0.2, reorder=0.2, lap=0.1, restart=0.1)) as sim:
                sim.add(worker, "a")
                sim.add(worker, "b")
                sim.play((0.1 * number, "queue/jobs", b"%d" % number) for number in range(40))
                sim.run()
            return got

        assert run(3) == run(3)
        assert run(3) != run(4)


def work_on_jobs(sim: Simulation, seconds: float, done: list[bytes], starts: list[float]) -> None:
    """Take each job, and have done it after so long."""
    starts.append(sim.clock.time())
    queue = open_jobs_queue()
    while True:
        with queue.take() as job:
            sim.clock.sleep(seconds)
            done.append(job.data)


class TestFaults:
    @pytest.mark.parametrize("kind", ["drop", "duplicate", "lap"])
    def test_queue_faults_neither_lose_nor_repeat_messages(self, kind: Any) -> None:
        with pytest.raises(InvalidValueError, match=kind):
            Fault(kind, "queue/jobs", message=1)
        with Simulation(1, Faults(**{kind: 1.0})) as sim:
            send(b"1", b"2")
            sim.run()
            assert [data for data, _ in open_jobs_queue().receive_many()] == [b"1", b"2"]

    def test_delayed_queue_message_is_invisible_and_occupies_slot(self) -> None:
        """Who sends is held up in the middle: nobody sees the message, and its place is taken."""
        with Simulation(fault_schedule=[Fault("delay", "queue/jobs", message=1, delay=2.5)]) as sim:
            queue = open_jobs_queue(max_messages=2)
            queue.send(b"late", 5)
            assert (queue.receive(1.0), queue.current_messages) == (None, 0)
            queue.send(b"behind it")
            with pytest.raises(QueueFullError):
                queue.send(b"no room", timeout=0)
            assert queue.receive() == (b"late", 5)
            assert sim.clock.time() == 2.5
            assert queue.receive() == (b"behind it", 0)

    def test_held_send_is_slot_of_living_sender_until_it_arrives(self) -> None:
        """The state is that of a process that was stopped in the middle of a send, also after a close of the handle."""
        with Simulation(fault_schedule=[Fault("delay", "queue/jobs", message=1, delay=1.0)]) as sim:
            with open_jobs_queue() as sender:
                sender.send(b"message")
            found = msgq.stats.queue("jobs")
            assert (found.pending_slots, found.lost_slots, found.depth) == (1, 0, 0)
            assert [(handle.pending_slots, handle.participant.alive) for handle in found.handles] == [(1, True)]
            queue = open_jobs_queue()  # its recovery finds no dead owner
            sim.run()
            assert queue.receive(0) == (b"message", 0)
            found = msgq.stats.queue("jobs")
            assert (found.pending_slots, len(found.handles)) == (0, 1)

    def test_delayed_sends_count_as_numbers_of_messages(self) -> None:
        starts: list[float] = []

        def taker() -> None:
            starts.append(sim.clock.time())
            while True:
                open_jobs_queue().take().ack()

        with Simulation(fault_schedule=[Fault("restart", "queue/jobs", message=2)]) as sim:
            sim.add(taker)
            queue = open_jobs_queue()
            queue.send(b"1")
            queue.send(b"2", delay=3.0)
            queue.send(b"3")
            sim.run()
        assert starts == [0.0, 3.0]

    def test_random_delays_lose_no_queue_message(self) -> None:
        for seed in range(20):
            with Simulation(seed, Faults(delay=0.5, reorder=0.3, drop=0.9, delay_max=1.0)) as sim:
                sim.play((0.1 * number, "queue/jobs", b"%d" % number) for number in range(30))
                sim.run()
                assert [int(data) for data, _ in open_jobs_queue().receive_many()] == list(range(30))

    def test_restart_of_consumer_returns_its_queue_message(self) -> None:
        done: list[bytes] = []
        starts: list[float] = []
        with Simulation(fault_schedule=[Fault("restart", "queue/jobs", message=2)]) as sim:
            sim.add(work_on_jobs, sim, 1.0, done, starts)
            send(b"1", b"2", b"3")
            sim.run()
        assert done == [b"1", b"2", b"3"]
        assert starts == [0.0, 1.0]

    def test_job_of_killed_node_is_recovered_by_another_consumer(self) -> None:
        """The node dies inside of `take`, and does not open the queue again: another handle finds the dead row."""
        got: list[tuple[str, bytes, int]] = []
        starts: list[float] = []

        def dies() -> None:
            starts.append(sim.clock.time())
            if len(starts) == 1:
                open_jobs_queue().take(lease=100.0)

        def works() -> None:
            sim.clock.sleep(1.0)
            job = open_jobs_queue().take()
            got.append(("works", job.data, job.deliveries))
            job.ack()

        with Simulation(fault_schedule=[Fault("restart", "queue/jobs", message=1)]) as sim:
            queue = open_jobs_queue()
            sim.add(dies)
            sim.add(works)
            queue.send(b"job")
            sim.run()
            found = queue.stats()
            assert (found.returned, found.leases, found.in_flight) == (1, 0, 0)
            assert [handle.participant.alive for handle in found.handles] == [True, False]
            assert sim.clock.time() == 1.0  # the lease has ended with its taker
        assert got == [("works", b"job", 2)]
        assert starts == [0.0, 0.0]

    def test_consumer_that_waits_gets_job_of_killed_node(self) -> None:
        got: list[tuple[bytes, int, float]] = []
        starts: list[float] = []

        def dies() -> None:
            starts.append(sim.clock.time())
            if len(starts) == 1:
                open_jobs_queue().take()

        def waits() -> None:
            job = open_jobs_queue().take()
            got.append((job.data, job.deliveries, sim.clock.time()))
            job.ack()

        with Simulation(fault_schedule=[Fault("restart", "queue/jobs", at=0.5)]) as sim:
            sim.add(dies)
            sim.add(waits)
            sim.play([(1.0, "queue/jobs", b"job")])
            sim.run()
        assert got == [(b"job", 2, 1.0)]

    def test_redelivered_queue_message_has_delivery_count(self) -> None:
        with Simulation(fault_schedule=[Fault("restart", "queue/jobs", at=0.5)]) as sim:
            deliveries: list[tuple[bytes, int]] = []

            def taker() -> None:
                queue = open_jobs_queue()
                while True:
                    with queue.take() as job:
                        deliveries.append((job.data, job.deliveries))

            sim.add(taker)
            sim.play([(0.0, "queue/jobs", b"1"), (1.0, "queue/jobs", b"2")])
            sim.run()
        assert deliveries == [(b"1", 1), (b"2", 2)]

    def test_message_received_without_job_is_lost_at_restart(self) -> None:
        got: list[bytes] = []

        def receiver() -> None:
            queue = open_jobs_queue()
            while True:
                got.append(queue.receive().data)

        with Simulation(fault_schedule=[Fault("restart", "queue/jobs", message=2)]) as sim:
            sim.add(receiver)
            send(b"1", b"2", b"3")
            sim.run()
        assert got == [b"1", b"3"]

    def test_restarted_generator_node_ends_at_next_wait(self) -> None:
        done: list[tuple[bytes, int]] = []

        def taker() -> Generator[float, Any, None]:
            queue = open_jobs_queue()
            while (job := queue.take(0)) is not None:
                with job:
                    yield 1.0
                    done.append((job.data, job.deliveries))

        with Simulation(fault_schedule=[Fault("restart", "queue/jobs", message=1)]) as sim:
            send(b"1", b"2")
            sim.add(taker)
            sim.run()
        assert done == [(b"1", 2), (b"2", 1)]

    def test_queue_restart_fault_of_main_node_is_refused(self) -> None:
        with Simulation(fault_schedule=[Fault("restart", "queue/jobs", message=1)]):
            send(b"message")
            with pytest.raises(InvalidValueError, match="'main'"):
                open_jobs_queue().take(0)

    def test_randomly_restarted_workers_complete_each_job(self) -> None:
        """Once, as a restart hits a worker that has only taken its job."""
        restarts = 0
        for seed in range(30):
            done: list[bytes] = []
            starts: list[float] = []
            with Simulation(seed, Faults(restart=0.2, delay=0.2, delay_max=0.5)) as sim:
                for _ in range(3):
                    sim.add(work_on_jobs, sim, 0.3, done, starts)
                sim.play((0.1 * number, "queue/jobs", b"%d" % number) for number in range(20))
                sim.run()
                assert open_jobs_queue().current_messages == open_jobs_queue().in_flight == 0
            assert Counter(done) == {b"%d" % number: 1 for number in range(20)}
            restarts += len(starts) - 3
        assert restarts


def test_restarted_workers_and_clients_get_all_results(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="msgq.workqueue.worker")

    def work(message: Any) -> bytes:
        if message.data == b"3" and message.deliveries == 1:
            raise ValueError("first try")
        return bytes(message.data)

    def call_workers(results: list[bytes]) -> None:
        with open_jobs_queue() as queue, JobClient(queue) as client:
            futures = [client.submit(b"%d" % number) for number in range(6)]
            results[:] = [future.result(60.0) for future in futures]

    for seed in range(5):
        results: list[bytes] = []
        with Simulation(seed, Faults(restart=0.1)) as sim:
            for _ in range(3):
                sim.add(lambda: Worker(open_jobs_queue(), work, retries=20, backoff=0.1).run(5.0))
            sim.add(call_workers, results)
            sim.run()
        assert results == [b"%d" % number for number in range(6)]


def test_equal_seeds_give_equal_runs_of_clients_and_workers() -> None:
    """The names of the clients' queues, too, which contain the process in shared memory."""

    def run() -> tuple[str, list[Any]]:
        with Simulation(1, Faults(delay=0.2)) as sim:
            for _ in range(2):
                sim.add(lambda: Worker(open_jobs_queue(), lambda message: message.data).run(1.0))
            with open_jobs_queue() as queue, JobClient(queue) as first, JobClient(queue) as second:
                futures = [client.submit(b"x") for client in (first, second) for _ in range(3)]
                assert [future.result(60.0) for future in futures] == [b"x"] * 6
            sim.run()
            return str(sim.trace), sim.sent_messages

    assert run() == run()


def test_result_of_a_job_times_out_in_virtual_time_while_other_results_arrive() -> None:
    """Each result that arrives begins another wait, whose end is that of the call."""
    with Simulation() as sim, open_jobs_queue() as queue, JobClient(queue) as client:

        def work(message: Any) -> bytes:
            sim.clock.sleep(0.4)
            return bytes(message.data)

        futures = [client.submit(b"%d" % number) for number in range(5)]
        sim.add(lambda: Worker(open_jobs_queue(), work).run(5.0))
        with pytest.raises(WaitTimeoutError):
            futures[-1].result(1.0)
        assert sim.clock.now_ns == 10**9


def collect_events(sim: Simulation) -> list[tuple[Any, ...]]:
    """Return a list that gets the queue's events when they arrive, each as the fields of its head."""
    open_jobs_queue(events=True)
    events: list[tuple[Any, ...]] = []
    sim.on("channel/jobs:events", lambda data: events.append(struct.unpack_from(EVENT_HEAD_FORMAT, data)))
    return events


class TestEvents:
    def test_delayed_queue_message_publishes_one_sent_event(self) -> None:
        with Simulation(fault_schedule=[Fault("delay", "queue/jobs", message=1, delay=5.0)]) as sim:
            events = collect_events(sim)
            sim.on("queue/jobs", lambda _: None)
            send(b"message")
            sim.run()
        assert [event for event, *_ in events] == [Event.SENT, Event.RECEIVED]
        (sent, _), (received, sent_time) = (event[5:7] for event in events)
        assert sent == sent_time
        assert received - sent == 5 * 10**9

    def test_restart_of_job_holder_publishes_returned_event(self) -> None:
        done: list[bytes] = []
        starts: list[float] = []
        with Simulation(fault_schedule=[Fault("restart", "queue/jobs", message=1)]) as sim:
            events = collect_events(sim)
            sim.add(work_on_jobs, sim, 1.0, done, starts)
            send(b"1")
            sim.run()
        assert done == [b"1"]
        kinds = [Event.SENT, Event.TAKEN, Event.RETURNED, Event.TAKEN, Event.ACKNOWLEDGED]
        assert [(event[0], event[3]) for event in events] == list(zip(kinds, [0, 1, 1, 2, 2], strict=True))
        assert len({event[4] for event in events}) == 1

    @pytest.mark.ci
    def test_random_faults_affect_queue_without_its_events_channel(self) -> None:
        restarts = 0
        for seed in range(15):
            done: list[bytes] = []
            starts: list[float] = []
            faults = Faults(drop=0.3, duplicate=0.3, delay=0.3, delay_max=0.5, reorder=0.3, restart=0.2)
            with Simulation(seed, faults) as sim:
                events = collect_events(sim)
                for _ in range(2):
                    sim.add(work_on_jobs, sim, 0.3, done, starts)
                sim.play((0.1 * number, "queue/jobs", b"%d" % number) for number in range(20))
                sim.run()
            counts = Counter(event for event, *_ in events)
            assert len(done) == counts[Event.SENT] == counts[Event.ACKNOWLEDGED] == 20
            assert counts[Event.TAKEN] == 20 + counts[Event.RETURNED]
            assert counts[Event.RETURNED] == len(starts) - 2
            restarts += counts[Event.RETURNED]
        assert restarts


class TestLeases:
    def test_job_with_expired_lease_goes_to_other_worker(self) -> None:
        done: list[tuple[str, float]] = []

        def hangs() -> None:
            job = open_jobs_queue().take(lease=2.0)
            sim.clock.sleep(100)
            del job

        def works() -> None:
            sim.clock.sleep(0.5)
            with open_jobs_queue().take() as job:
                done.append((job.data.decode(), sim.clock.time()))
                assert job.deliveries == 2

        with Simulation() as sim:
            send(b"job")
            sim.add(hangs)
            sim.add(works)
            sim.run(until=50)
        assert done == [("job", 2.0)]

    @pytest.mark.parametrize("seconds", [0.000_000_001, 0.01, 0.123_456_789, 5.0])
    def test_due_times_of_queue_are_exact(self, seconds: float) -> None:
        """In shared memory, leases and delays end up to 20 ms late."""
        with Simulation() as sim:
            queue = open_jobs_queue()
            sim.clock.sleep(0.333_333_333)
            start_ns = sim.clock.now_ns
            queue.send(b"message", delay=seconds)
            job = queue.take(lease=seconds)
            assert sim.clock.now_ns - start_ns == round(seconds * 1e9)
            assert queue.receive() == (b"message", 0)
            assert sim.clock.now_ns - start_ns == 2 * round(seconds * 1e9)
            with pytest.raises(LeaseExpiredError):
                job.ack()
            queue.send(b"again")
            queue.take().nack(delay=seconds)
            assert queue.receive() == (b"again", 0)
            assert sim.clock.now_ns - start_ns == 3 * round(seconds * 1e9)

    def test_delay_outlives_handles_of_queue(self) -> None:
        with Simulation() as sim:
            with open_jobs_queue() as sender:
                sender.send(b"message", delay=1.005)
            sim.run(until=1.0)
            assert msgq.stats.queue("jobs").delayed == 1
            sim.run()
            assert sim.clock.time() == 1.005
            assert open_jobs_queue().receive(0) == (b"message", 0)

    def test_removed_delayed_message_does_not_advance_virtual_time(self) -> None:
        with Simulation() as sim:
            queue = open_jobs_queue()
            queue.send(b"message", delay=100.0)
            assert queue._remove_waiting_message(b"age")
            sim.run()
            assert sim.clock.time() == 0

    def test_lease_of_closed_handle_does_not_advance_virtual_time(self) -> None:
        with Simulation() as sim:
            queue = open_jobs_queue()
            queue.send(b"message")
            with open_jobs_queue() as taker:
                job = taker.take(lease=100.0)
            sim.run()
            assert sim.clock.time() == 0
            assert queue.receive(0).deliveries == 2
        del job

    def test_lease_of_ended_job_does_not_advance_virtual_time(self) -> None:
        with Simulation() as sim:
            send(b"job")
            open_jobs_queue().take(0, lease=1000.0).ack()
            sim.run()
            assert sim.clock.time() == 0


class TestWaits:
    def test_close_ends_polls_of_other_nodes(self) -> None:
        ended: list[float] = []
        with Simulation() as sim:
            queue = open_jobs_queue()

            def polls() -> None:
                poller = msgq.Poller()
                poller.registerSocket(queue)
                with pytest.raises(EndpointClosedError, match="during the wait"):
                    poller.poll(-1)
                ended.append(sim.clock.time())

            sim.add(polls)
            sim.run(until=1.0)
            queue.close()
            assert msgq.stats.queue("jobs").handles == ()
            sim.run()
        assert ended == [1.0]

    def test_close_ends_waits_of_other_nodes(self) -> None:
        ended: list[float] = []
        with Simulation() as sim:
            queue = open_jobs_queue()

            def waits() -> None:
                with pytest.raises(EndpointClosedError, match="during the wait"):
                    queue.receive()
                ended.append(sim.clock.time())

            sim.add(waits)
            sim.add(waits)
            sim.run(until=1.0)
            queue.close()
            sim.run()
            assert msgq.stats.queue("jobs").handles == ()
        assert ended == [1.0, 1.0]

    def test_sender_waits_for_free_queue_slot(self) -> None:
        def receiver() -> None:
            sim.clock.sleep(2.0)
            open_jobs_queue().receive()

        with Simulation() as sim:
            queue = open_jobs_queue(max_messages=1)
            sim.add(receiver)
            queue.send(b"1")
            with pytest.raises(QueueFullError):
                queue.send(b"2", timeout=1.5)
            assert sim.clock.time() == 1.5
            queue.send(b"2")
            assert sim.clock.time() == 2.0
            assert queue.receive() == (b"2", 0)

    def test_endless_queue_wait_error_names_nodes(self) -> None:
        with Simulation() as sim:
            sim.add(lambda: open_jobs_queue().receive(), name="idle")
            with pytest.raises(DeadlockError, match="idle waits for a message of the queue 'jobs'"):
                open_jobs_queue().receive()

    def test_queue_receive_deadline_is_virtual(self) -> None:
        with Simulation() as sim:
            assert open_jobs_queue().receive(deadline=7.5) is None
            assert sim.clock.time() == 7.5

    def test_several_nodes_can_wait_on_one_queue_handle(self) -> None:
        got: list[Any] = []
        with Simulation() as sim:
            queue = open_jobs_queue()
            for _ in range(3):
                sim.add(lambda: got.append(queue.receive().data))
            queue.send_many([b"1", b"2", b"3"])
            sim.run()
        assert sorted(got) == [b"1", b"2", b"3"]

    @pytest.mark.parametrize("kind", ["blocking", "generator"])
    def test_poller_receives_from_topic_and_queue(self, kind: str) -> None:
        got: list[bytes] = []

        def registered() -> Any:
            poller = msgq.Poller()
            poller.registerSocket(open_jobs_queue())
            msgq.sub_sock("topic", poller)
            return poller

        def take(ready: list[Any]) -> None:
            for each in ready:
                message = each.receive(0)
                got.append(message if isinstance(message, bytes) else message.data)

        def blocking() -> None:
            poller = registered()
            while True:
                take(poller.poll(-1))

        def generator() -> Any:
            poller = registered()
            while True:
                take((yield poller))

        with Simulation() as sim:
            sim.add(blocking if kind == "blocking" else generator)
            sim.play([(1.0, "topic", b"topic"), (2.0, "queue/jobs", b"queue")])
            sim.run()
        assert got == [b"topic", b"queue"]

    def test_queue_timestamps_are_virtual(self) -> None:
        with Simulation() as sim:
            sim.clock.sleep(1.5)
            send(b"message")
            assert open_jobs_queue().receive().sent_time == 1_500_000_000

    def test_notify_callback_is_skipped_while_another_node_waits(self) -> None:
        told: list[float] = []
        with Simulation() as sim:
            queue = open_jobs_queue()
            queue.notify(lambda _: told.append(sim.clock.time()))
            sim.add(lambda: open_jobs_queue().receive())
            sim.play([(1.0, "queue/jobs", b"for the receiver"), (2.0, "queue/jobs", b"for whoever is told")])
            sim.run()
        assert told == [2.0]

    def test_notify_callback_exception_names_node(self) -> None:
        def watcher() -> None:
            queue = open_jobs_queue()
            queue.notify(lambda _: 1 / 0)
            sim.clock.sleep(10)

        with Simulation() as sim:
            sim.add(watcher)
            sim.play([(1.0, "queue/jobs", b"message")])
            with pytest.raises(ZeroDivisionError) as caught:
                sim.run()
            assert "in node 'watcher' at 1 s" in caught.value.__notes__

    def test_notify_callback_is_skipped_after_end_of_simulation(self) -> None:
        told: list[Any] = []
        with Simulation():
            working, watching = open_jobs_queue(), open_jobs_queue()
            working.send(b"message")
            job = working.take(0)
            watching.notify(told.append)
        assert told == []
        del job

    def test_simulation_replaces_message_queue_class(self) -> None:
        with Simulation():
            assert msgq.MessageQueue.__module__ == workqueue.__name__
        assert msgq.MessageQueue.__module__ != workqueue.__name__

    def test_simulated_node_cannot_open_real_queue(self, endpoint: str) -> None:
        real = msgq.MessageQueue
        with Simulation() as sim, pytest.raises(StateError, match="does not belong to the simulation"):
            sim.add(lambda: real(endpoint))
        with pytest.raises(SegmentError):
            real(endpoint, 0)

    def test_asyncio_wait_for_simulated_queue_raises_deadlock_error(self) -> None:
        with Simulation(), pytest.raises(DeadlockError, match="real time"):
            open_jobs_queue().fileno()

    def test_play_to_full_queue_does_not_wait_for_free_slot(self) -> None:
        with Simulation() as sim:
            open_jobs_queue(max_messages=1)
            sim.play([(0.0, "queue/jobs", b"1"), (0.0, "queue/jobs", b"2")])
            with pytest.raises(QueueFullError):
                sim.run()

    def test_end_of_simulation_removes_its_queues(self) -> None:
        for _ in range(2):
            with Simulation():
                queue = open_jobs_queue(flags=O_CREX)
                queue.send(b"message")
                job = queue.take(0)
            assert queue.closed
            del job


@pytest.mark.parametrize("call", ["send", "send_many", "receive", "take"])
@pytest.mark.parametrize("seed", range(4))
def test_blocked_queue_calls_are_served_in_order(call: str, seed: int) -> None:
    served: list[int] = []

    def waiter(number: int) -> None:
        act = waiting_call(open_jobs_queue(), call, b"%d" % number)
        while True:
            act()
            served.append(number)

    with Simulation(seed) as sim:
        queue = open_jobs_queue(max_messages=1)
        if call.startswith("send"):
            queue.send(b"there before")
        for number in range(3):
            sim.add(waiter, number)
            sim.run()
        for _ in range(12):
            queue.receive(0) if call.startswith("send") else queue.send(b"work")
            sim.run()
    assert served == [0, 1, 2] * 4
