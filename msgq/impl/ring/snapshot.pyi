"""Read a topic's files for msgq.stats."""

from typing_extensions import disjoint_base

from msgq.common.stats.topic import TopicCounts, TopicStats

@disjoint_base
class TopicObserver:
    """One topic, kept mapped, read-only and without a trace; unmapped with the last reference.

    One thread at a time. When the ring is made anew this goes on with the old one (see `msgq.stats.topic_inodes`).
    """

    def __init__(self, endpoint: str, in_prefix: str) -> None: ...
    @property
    def endpoint(self) -> str:
        """The topic's name."""

    def bridged(self) -> bool:
        """Tell whether a bridge publishes it now, that is not known to be dead."""

    def counts(self) -> TopicCounts:
        """Return what moves; takes a microsecond."""

    def stats(self) -> TopicStats:
        """Return all of it, with who takes part and whether they live; see `msgq.stats.topic`."""
