"""Receives the messages of a SubMaster, and sets the states of its topics, in compiled code."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, final

from msgq.topic.masters.submaster import SubMaster

#: Periods of a topic's own rate after which the topic is not alive.
ALIVE_PERIODS: int
#: Length of the longer window of a rate check, in seconds.
RATE_WINDOW_SECONDS: int

@final
class RateCheck:
    """Receipt times of one topic, and the check of its rate.

    Alive: the newest message is younger than 10 periods, ``now - newest < 10 / rate``. A topic is not alive at exactly
    10 periods, and not before its first message.

    Rate: the average rate over a window must be ``low`` to ``high``, limits included. Of two windows, one is enough.
    The windows have ``n = round(10 * expected)`` and ``max(1, n // 10)`` intervals between messages. The average over k
    intervals is ``k / (newest - oldest)``. A window that is not full uses its messages, so two messages are the first
    that have a rate.

    Silence: a window fails when a message that arrives now would give a too low average, ``now > oldest + (k + 1) /
    low``.

    Each message costs the same time at any rate.

    Args:
        rate: publishing rate of the topic in Hz, above 0.
        expected: expected rate of arrival in Hz.
        low: lowest correct rate in Hz.
        high: highest correct rate in Hz.
    """

    def __new__(cls, rate: float, expected: float, low: float, high: float) -> Self: ...

@final
class MasterTopic:
    """One topic of a `SubMaster`, with its options.

    Attributes:
        name: name of the topic.
        is_polled: True if an update waits for the topic.
        keep_all: True if an update takes all messages; False: the newest.
    """

    name: str
    is_polled: bool
    keep_all: bool

    def __init__(
        self,
        name: str,
        rate_check: RateCheck | None,
        is_polled: bool,
        keep_all: bool,
        decoder: Callable[[Any], Any] | None,
        validator: Callable[[Any], Any] | None,
    ) -> None:
        """Set the options. A topic without a `rate_check` is alive after its first message."""

@final
class TopicReceiver:
    """Receives messages of topics, and sets the dictionaries of a `SubMaster`, which describes them.

    An update with few messages takes a time that does not depend on the number of topics, apart from topics that it
    does not wait for: it checks the rates of the topics with messages, and those of all topics when the first state in
    `alive` or `freq_ok` ends.

    Args:
        master: owner of the dictionaries, to which the receiver keeps no reference.
        topics: topics of the master by name.

    Attributes:
        frame: number of updates.
    """

    frame: int

    def __init__(self, master: SubMaster, topics: Mapping[str, MasterTopic]) -> None: ...
    def add_socket(self, topic: MasterTopic, socket: Any) -> None:
        """Add the subscriber of a topic.

        Args:
            topic: its options.
            socket: connected subscriber.
        """

    def update(self, ready: list[Any], clock: Callable[[], float] | None) -> None:
        """Take the messages of ready subscribers and of topics that are not polled, and do one update.

        If a subscriber raises an error, the update has the messages that were received before.

        Args:
            ready: subscribers that a poll returned.
            clock: function that returns the seconds of the update; None: `time.monotonic`.
        """

    def update_msgs(self, now: float, messages: Iterable[tuple[str, Any]]) -> None:
        """Do one update with given messages. See `SubMaster.update_msgs`.

        Args:
            now: seconds of the update. Must not be before the previous update.
            messages: names of topics and their raw messages, in the order of arrival.
        """
