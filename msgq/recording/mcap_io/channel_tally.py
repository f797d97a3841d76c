"""Statistics of a channel as a Python object."""

from dataclasses import dataclass


@dataclass(slots=True)
class ChannelTally:
    """Statistics of a channel. The fields and their order are those of mq_channel_tally; see tally.h."""

    messages: int = 0
    bytes: int = 0
    first_time: int = 0
    last_time: int = 0
    lost: int = 0
    next_sequence: int = 0
    first_sequence: int = 0
    largest: int = 0
