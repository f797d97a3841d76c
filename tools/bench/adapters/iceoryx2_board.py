"""iceoryx2's blackboard: values under keys fixed when it is made; an event service beside it wakes who sleeps."""

import ctypes
from typing import Any

from tools.bench.adapters.base import BOARD_KEYS, Call, Publisher, Subscriber, Topic, Unsupported
from tools.bench.adapters.iceoryx2 import Iceoryx2


class Iceoryx2Board(Iceoryx2):
    """Values are arrays of ctypes, as its users have them; `update_with_copy` is faster here than to loan."""

    name = "iceoryx2-board"

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic)
        self.type = ctypes.c_uint8 * topic.size

    def write_values(self, message: bytes) -> Any:
        return self.type.from_buffer_copy(message)

    def writing(self, number: int = 0) -> Call:
        if number:
            raise Unsupported("one process writes all values")
        return Call(self._entry(self._service(), number).update_with_copy, "message")

    def reading(self, number: int = 0) -> Call:
        return Call(self._handle(self._service(), number).get, form="CALL().data")

    def publisher(self) -> Publisher:
        entry, notifier = self._entry(self._service(), 0), self._events().notifier_builder().create()
        self.kept.append(notifier)
        update, notify = entry.update_with_copy, notifier.notify

        def update_and_notify(value: Any) -> None:
            update(value)
            notify()

        return Publisher(Call(update, "message"), wake=Call(update_and_notify, "message"))

    def subscriber(self) -> Subscriber:
        handle, listener = self._handle(self._service(), 0), self._events().listener_builder().create()
        self.kept.append(listener)
        get, is_up_to_date, wait = handle.get, handle.is_up_to_date, listener.blocking_wait
        seen = get()

        def poll() -> Any:
            nonlocal seen
            if is_up_to_date(seen):
                return None
            seen = get()
            return seen.data

        def block() -> Any:
            while (data := poll()) is None:
                wait()
            return data

        return Subscriber(Call(poll), Call(block))

    def open_both(self) -> Any:
        first, second = self._service(), self._service()
        entry, handle = self._entry(first, 0), self._handle(second, 0)
        entry.update_with_copy(self.type())
        return entry, handle, handle.get().data, first, second

    def create(self) -> None:
        self._service()
        self.held = self.kept.pop()  # a blackboard exists as long as a process has it open

    def close_both(self, both: Any) -> None:
        both[0].delete()
        for port in self.kept:
            port.delete()
        self.kept.clear()

    def _service(self) -> Any:
        """Open the service, or make it with all its values."""
        builder, name = self.node.service_builder, self.iox.ServiceName.new(self.topic.name)
        try:
            service = builder(name).blackboard_opener(ctypes.c_uint64).open()
        except self.iox.BlackboardOpenError:
            creator = builder(name).blackboard_creator(ctypes.c_uint64).max_readers(16)
            for number in range(BOARD_KEYS):
                creator = creator.add(ctypes.c_uint64(number), self.type())
            service = creator.create()
        self.kept.append(service)
        return service

    def _entry(self, service: Any, number: int) -> Any:
        self.kept.append(service.writer_builder().create())
        return self.kept[-1].entry(ctypes.c_uint64(number), self.type)

    def _handle(self, service: Any, number: int) -> Any:
        self.kept.append(service.reader_builder().create())
        return self.kept[-1].entry(ctypes.c_uint64(number), self.type)
