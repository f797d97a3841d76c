"""iceoryx2: loaned samples in shared memory; an event service beside it wakes who sleeps."""

import ctypes
from collections.abc import Sequence
from typing import Any

from tools.bench.adapters.base import WAIT_S, Call, Polled, Publisher, Subscriber, System, Topic, read_lines


class Iceoryx2(System):
    """Messages are fixed arrays of bytes, loaned, filled by one copy, and sent.

    A full queue makes its publisher wait, so that it needs no credits.
    """

    name = "iceoryx2"
    package = "iceoryx2"
    lossless = True
    in_flight = 1024
    writers = range(16)
    readers = range(64)

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic)
        import iceoryx2

        self.iox = iceoryx2
        iceoryx2.set_log_level(iceoryx2.LogLevel.Error)
        self.node = self._node()
        self.kept: list[Any] = []

    def publisher(self) -> Publisher:
        service = self._service()
        port = self._port(service)
        notifier = self._events().notifier_builder().create()
        self.kept += [service, port, notifier]
        loan, move, size, notify = port.loan_uninit, ctypes.memmove, self.topic.size, notifier.notify

        def send(message: bytes) -> None:
            sample = loan()
            move(sample.payload_ptr, message, size)
            sample.assume_init().send()

        def send_and_notify(message: bytes) -> None:
            send(message)
            notify()

        return Publisher(Call(send, "message"), wake=Call(send_and_notify, "message"))

    def subscriber(self) -> Subscriber:
        service = self._service()
        port = service.subscriber_builder().create()
        listener = self._events().listener_builder().create()
        self.kept += [service, port, listener]
        receive, size, wait = port.receive, self.topic.size, listener.blocking_wait
        wait_for, while_ = listener.timed_wait, self.iox.Duration.from_secs_f64(WAIT_S)

        def copy() -> bytes | None:
            sample = receive()
            return None if sample is None else ctypes.string_at(sample.payload_ptr, size)

        def look() -> int | None:
            sample = receive()
            if sample is None:
                return None
            data = sample.payload().contents
            return int(data[0] + data[-1])

        def block() -> bytes:
            while (message := copy()) is None:
                wait()
            return message

        def copy_soon() -> bytes | None:
            if (message := copy()) is None:
                wait_for(while_)
                message = copy()
            return message

        return Subscriber(poll=Call(copy), block=Call(block), wait=Call(copy_soon), in_place=Call(look))

    @classmethod
    def poll(cls, systems: Sequence[Any]) -> Polled:
        """Wait with a waitset for the events of all topics."""
        iox = systems[0].iox
        waitset = (
            iox.WaitSetBuilder.new().signal_handling_mode(iox.SignalHandlingMode.Disabled).create(iox.ServiceType.Ipc)
        )
        topics = []
        for system in systems:
            copy = system.subscriber().poll.function
            listener = system.kept[-1]
            topics.append((waitset.attach_notification(listener), listener.try_wait, copy))
        wait, milliseconds = waitset.wait_and_process_with_timeout, iox.Duration.from_millis

        def wait_for_messages(timeout: int) -> list[bytes]:
            attachments, _ = wait(milliseconds(timeout))
            messages = []
            for guard, clear, copy in topics:
                if any(each.has_event_from(guard) for each in attachments):
                    clear()
                    while (message := copy()) is not None:
                        messages.append(message)
            return messages

        return Polled(Call(wait_for_messages, "timeout"), Call(None, form="ready"))

    def frame_publisher(self) -> Publisher:
        copying, loan, notify = self.publisher(), self.kept[-2].loan_uninit, self.kept[-1].notify

        def publish() -> None:
            loan().assume_init().send()

        def publish_and_notify() -> None:
            publish()
            notify()

        return Publisher(copying.send, in_place=Call(publish), wake=Call(publish_and_notify))

    def frame_subscriber(self) -> Subscriber:
        import numpy as np

        self.subscriber()
        receive, wait = self.kept[-2].receive, self.kept[-1].blocking_wait
        look = read_lines(receive, lambda sample: np.frombuffer(sample.payload().contents, np.uint8))

        def block() -> Any:
            while (sample := receive()) is None:
                wait()
            return sample

        return Subscriber(Call(receive), Call(block), in_place=look)

    def open_both(self) -> Any:
        first, second = self._service(), self._service()
        return self._port(first), second.subscriber_builder().create(), first, second

    def close_both(self, both: Any) -> None:
        both[0].delete()
        both[1].delete()

    def create(self) -> None:
        self.kept.append(self._service())

    def _node(self) -> Any:
        iox = self.iox
        config = iox.config.default()
        config.global_cfg.prefix = iox.FileName.new(f"{self.topic.tag}_")
        config.global_cfg.root_path = iox.Path.new(str(self.topic.folder / "iceoryx2"))
        builder = iox.NodeBuilder.new().config(config).signal_handling_mode(iox.SignalHandlingMode.Disabled)
        return builder.create(iox.ServiceType.Ipc)

    def _service(self) -> Any:
        """Open or create the service; it does not drop when it is full only where nothing may be lost."""
        builder = self.node.service_builder(self.iox.ServiceName.new(self.topic.name))
        payload = ctypes.c_uint8 * self.topic.size
        ends = max(16, self.topic.subscribers)
        service = builder.publish_subscribe(payload).max_publishers(16).max_subscribers(ends).max_nodes(2 * ends)
        service = service.subscriber_max_buffer_size(self.topic.depth)
        return service.enable_safe_overflow(not self.topic.lossless).open_or_create()

    def _port(self, service: Any) -> Any:
        wait = self.iox.BackpressureStrategy.RetryUntilDelivered
        return service.publisher_builder().backpressure_strategy(wait).create()

    def _events(self) -> Any:
        builder = self.node.service_builder(self.iox.ServiceName.new(f"{self.topic.name}.wake")).event()
        ends = max(16, self.topic.subscribers)
        return builder.max_listeners(ends).max_nodes(2 * ends).open_or_create()
