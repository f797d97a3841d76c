"""The arithmetic of positions, and what the participants of a scenario share. All sizes are in words of 8 bytes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import addresses as at
from .oracle import Oracle, Position, Word
from .rules import Rules

WRAP_MARK = Word(-1, 0, -1)


@dataclass(frozen=True)
class Geometry:
    """Sizes of a ring, and what follows from them."""

    size: int  # words of the data area
    chunk: int  # words that a publisher announces ahead

    @property
    def lap_end(self) -> int:
        """No message ends beyond: there is always a word left, for a wrap mark."""
        return self.size - 2

    @property
    def need_max(self) -> int:
        """The largest message, with its size word."""
        return self.size // 3

    @property
    def margin(self) -> int:
        """How far beyond write_pointer a stock publisher may have written."""
        return self.size // 3 + 1

    def wraps(self, position: Position, need: int) -> bool:
        """Does a message of `need` words go to the next cycle?"""
        return position[1] + need > self.lap_end

    def after(self, position: Position, size: int) -> Position | None:
        """Behind the message or wrap mark at `position`; None when its size makes no sense."""
        cycle, offset = position
        if size == -1:
            return (cycle + 1, 0) if offset else None
        fits = 0 <= size < self.need_max and offset + 1 + size <= self.lap_end
        return (cycle, offset + 1 + size) if fits else None

    def intact_stock(self, write_pointer: Position, position: Position, margin: int, late_cycle: bool) -> bool:
        """Validity with a publisher that announces nothing: it may be in the middle of the largest message."""
        reach = write_pointer[1] + margin
        laps = write_pointer[0] - position[0]
        if laps == 1:
            return reach <= position[1]
        if late_cycle and reach >= self.size and position[1] < self.size // 3:
            return False
        return laps == 0 and write_pointer[1] >= position[1]

    def write_bound(self, write_pointer: Position) -> Position:
        """How far a stock publisher at `write_pointer` may have written, as a limit."""
        cycle, offset = write_pointer
        if offset + self.margin >= self.size:
            return (cycle + 1, self.margin)
        return (cycle, offset + self.margin)


def intact(limit: Position, position: Position) -> bool:
    """Nothing up to `limit` has touched the message at `position` of this or the last lap."""
    laps = limit[0] - position[0]
    return limit[1] >= position[1] if laps == 0 else laps == 1 and limit[1] <= position[1]


class Topic:
    """What all participants of one scenario share besides the memory."""

    def __init__(
        self, rules: Rules, geometry: Geometry, own_uids: tuple[str, ...], slots: tuple[str, ...], publisher: object
    ) -> None:
        self.rules = rules
        self.geometry = geometry
        self.oracle = Oracle()
        self.own_uids = own_uids  # uids of the publishers that have an entry in the side segment
        self.publisher_rows: set[str] = set()  # uids of the publishers that have joined, and have not left
        self.slots = slots  # names of the subscribers that hold a slot from the beginning
        self.stock_slots: tuple[int, ...] = ()  # slots of stock subscribers
        self.stock_sleepers: dict[
            int, Callable[[], bool]
        ] = {}  # slot of a stock subscriber -> is it wrong not to wake it?
        self.publisher = publisher  # in office at the beginning
        self.lossless = False  # True: the scenario ensures that no subscriber is lapped
        self.data = [f"data[{i}]" for i in range(geometry.size)]

    def trusts(self, uid: object) -> bool:
        """Return True if the side segment is valid for this write_uid. 0: a msgq publisher has closed."""
        return uid == 0 or uid in self.own_uids

    def initial(self) -> dict[str, Any]:
        """Return the words of a topic without messages. One free slot follows the held slots."""
        start: Position = (0, 0)
        words: dict[str, Any] = dict.fromkeys(self.data, Word(-1, 0, 0))
        words |= {at.WRITE_POINTER: start, at.WRITE_UID: self.publisher, at.EVENTCOUNT: (0, False)}
        words |= {at.LIMIT: start, at.CHECKPOINT_SEQ_BEGIN: 0, at.CHECKPOINT_SEQ: 0}
        for cell in (0, 1):
            words |= {at.checkpoint(cell, field): 0 for field in ("sequence", "era")}
            words[at.checkpoint(cell, "position")] = start
        for uid in self.own_uids:
            words |= {at.begun_sequence(uid): 0, at.sent_sequence(uid): 0}
        for slot, name in enumerate((*self.slots, 0)):
            words |= {at.read_pointer(slot): start, at.read_valid(slot): 1, at.read_uid(slot): name}
        return words
