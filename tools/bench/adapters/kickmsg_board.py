"""kickmsg's blackboard: named values, each with one writer."""

from typing import Any

from tools.bench.adapters.base import BOARD_KEYS, Call, Publisher, Subscriber, System, Topic

LONG_S = 3600.0
NAMESPACE = "bench"


class KickmsgBoard(System):
    """`kickmsg.Blackboard`. A reader asks for the board's change number, which is cheaper than to read a value."""

    name = "kickmsg-board"
    package = "kickmsg"

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic)
        import kickmsg

        self.kind = kickmsg.Blackboard
        self.config = kickmsg.BlackboardConfig()
        self.config.capacity = BOARD_KEYS
        self.config.max_value_size = topic.size
        self.kept: list[Any] = []

    def writing(self, number: int = 0) -> Call:
        return Call(self._board().declare(f"value{number}").write, "message")

    def reading(self, number: int = 0) -> Call:
        return Call(self._board().observe(f"value{number}").read, form="CALL().data")

    def publisher(self) -> Publisher:
        return Publisher(self.writing())

    def subscriber(self) -> Subscriber:
        board = self._board()
        read, wait = board.observe("value0").read, board.wait
        seen = board.change_seq

        def poll() -> Any:
            nonlocal seen
            if (now := board.change_seq) == seen:
                return None
            seen = now
            return read().data

        def block() -> Any:
            wait(seen, LONG_S)
            return poll()

        return Subscriber(Call(poll), Call(block))

    def open_both(self) -> Any:
        writer, reader = self._open(), self._open()
        entry, observed = writer.declare("value0"), reader.observe("value0")
        entry.write(bytes(self.topic.size))
        return entry, observed, observed.read().data, writer, reader

    def close_both(self, both: Any) -> None:
        both[0].release()  # the others are closed when the caller drops them

    def remove(self) -> None:
        self.kind.unlink(NAMESPACE, self.topic.name)

    def _board(self) -> Any:
        self.kept.append(self._open())
        return self.kept[-1]

    def _open(self) -> Any:
        return self.kind.open_or_create(NAMESPACE, self.topic.name, self.config)
