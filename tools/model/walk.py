"""Counting messages between two positions by following their sizes."""

from .ops import load
from .oracle import Position
from .task import Steps
from .topic import Topic


def walk(topic: Topic, begin: Position, end: Position) -> Steps[int | None]:
    """None: the bytes do not lead there. The caller validates `begin` afterwards."""
    count = 0
    while begin < end:
        word = yield load(topic.data[begin[1]])
        behind = topic.geometry.after(begin, word.size)
        if behind is None:
            return None
        count += word.size >= 0
        begin = behind
    return count if begin == end else None
