"""The library's records: values that are overwritten, queues of records, and tracking."""

from dataclasses import replace
from typing import Any

from tools.bench.adapters.base import BOARD_KEYS, Call, Exchange, Handling, Publisher, Subscriber, System, Topic, Values
from tools.bench.adapters.ours import Ours

KEY = "value"
FEW = 8
PLACES = 2  # elements of a vector whose single elements are measured


class Records(System):
    """`msgq.SeqlockVector`, `Seqlock`, `Board`, `RecordQueue` and `StageTracer` of this checkout, or the installed one.

    Values are NumPy scalars of a structured dtype, in and out; those of a board are bytes.
    """

    name = "records"
    package = "msgq-bus"
    in_flight = 8192
    shares_values = True

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic)
        import numpy as np

        import msgq

        self.msgq: Any = msgq
        self.np = np
        fields: Any = [(f"field{n}", "<f8") for n in range(topic.size // 8)]
        self.dtype = np.dtype("<f8" if topic.kind == "number" else fields)
        self.kept: list[Any] = []

    def write_values(self, message: bytes) -> Any:
        if self.topic.kind in ("board", "topic"):
            return message
        return self.np.frombuffer(message, self.dtype)[0]

    def writing(self, number: int = 0) -> Call:
        kind = self.topic.kind
        if kind == "board":
            return Call(self._board().declare(f"{KEY}{number}").write, "message")
        if kind == "seqlock":
            return Call(self._seqlock().write, "message")
        return Call(self._vector(PLACES), "message", f"CALL[{number}] = ARGUMENTS")

    def reading(self, number: int = 0) -> Call:
        kind = self.topic.kind
        if kind == "board":
            return Call(self._board().observe(f"{KEY}{number}").data)
        if kind == "seqlock":
            return Call(self._seqlock().read)
        return Call(self._vector(PLACES), form=f"CALL[{number}]")

    def values(self) -> Values:
        np, depth = self.np, self.topic.depth
        vector, rows, room = self._vector(depth), np.zeros(depth, self.dtype), np.zeros(depth, self.dtype)
        few = np.arange(0, depth, depth // FEW)
        some = rows[few]

        return Values(
            rows,
            room,
            write=Call(vector.write, "None, message"),
            read=Call(vector.read, "None, message"),
            instant=Call(vector.snapshot, "True, message"),
            touch=Call(lambda: vector.write(few, some)),
            changes=Call(vector.changes),
        )

    def publisher(self) -> Publisher:
        if self.topic.kind in ("spmc", "mpmc"):
            produce = Call(self._queue().produce, "message")
            return Publisher(produce, many=produce, rows=lambda block: block.view(self.dtype)[:, 0])
        return Publisher(self.writing())

    def subscriber(self) -> Subscriber:
        if self.topic.kind in ("spmc", "mpmc"):
            queue = self._queue()
            consume = queue.consume
            poll, block = Call(consume, "1, 0"), Call(consume, "1")
            return Subscriber(poll, block, array=lambda kind: consume(None, 0), lost=lambda: int(queue.lost))
        seen: Any = self._board().observe(f"{KEY}0") if self.topic.kind == "board" else self._seqlock()
        read, wait = seen.data if self.topic.kind == "board" else seen.read, seen.wait

        def look() -> Any:
            return read() if seen.changed else None

        def sleep() -> Any:
            wait()
            return read()

        return Subscriber(Call(look), Call(sleep))

    def exchange(self, message: bytes) -> Exchange:
        if self.topic.kind == "topic":
            return Ours(self.topic).exchange(message)
        queue, np = self._queue(), self.np
        produce, receive = Call(queue, form="CALL.produce(message)"), Call(queue, form="CALL.receive(0)")
        each = Call(queue, form="islice(CALL, count)")  # the loop has no end
        return Exchange(produce, receive, produce, lambda count: np.frombuffer(message * count, self.dtype), each)

    def handling(self) -> Handling:
        pub, sub = self.msgq.pub_sock(self.topic.name), self.msgq.sub_sock(self.topic.name)
        tracer = self.msgq.StageTracer(self.topic.tag)
        self.kept += [pub, sub, tracer]
        handle = iter(tracer.trace_messages(sub)).__next__
        return Handling(Call(pub.send, "message"), Call(sub.receive, "True"), Call(handle))

    def open_both(self) -> Any:
        if self.topic.kind == "board":
            board, observer = self._open_board(), self._open_board()
            entry, observed = board.declare(KEY), observer.observe(KEY)
            entry.write(bytes(self.topic.size))
            return board, observer, entry, observed, observed.data()
        writer, reader = self._open(self.topic.depth), self._open(self.topic.depth)
        writer[0] = self.np.zeros((), self.dtype)[()]
        return writer, reader, reader[0]

    def close_both(self, both: Any) -> None:
        both[0].close()
        both[1].close()

    def _open(self, length: int) -> Any:
        exclusive = self.topic.kind == "exclusive"
        return self.msgq.SeqlockVector(self.topic.name, self.dtype, length, exclusive=exclusive)

    def _open_board(self) -> Any:
        return self.msgq.Board(self.topic.name, keys=BOARD_KEYS, value_bytes=self.topic.size)

    def _vector(self, length: int) -> Any:
        self.kept.append(self._open(length))
        return self.kept[-1]

    def _seqlock(self) -> Any:
        self.kept.append(self.msgq.Seqlock(self.topic.name, self.dtype))
        return self.kept[-1]

    def _board(self) -> Any:
        self.kept.append(self._open_board())
        return self.kept[-1]

    def _queue(self) -> Any:
        producers = "single" if self.topic.kind == "spmc" else "multiple"
        self.kept.append(self.msgq.RecordQueue(self.topic.name, self.dtype, self.topic.depth, producers=producers))
        return self.kept[-1]


class OneBoard(Records):
    """A board in a row in which the other records are of another kind."""

    name = "board"

    def __init__(self, topic: Topic) -> None:
        super().__init__(replace(topic, kind="board"))
